// SMEM: scalar loads, stores and atomics through the scalar cache. The cache is not modelled here:
// every access sees memory as it is.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/launch_state.h"
#include "isa/atomic.h"
#include "isa/control.h"
#include "isa/scalar.h"
#include "isa/tables.h"

namespace vdev {
namespace {

// The byte offset: SGPR (or M0) plus SIMM21.
u64 offset_of(const Wave& w, const Inst& in) {
  const Operand& s = in.src[1];
  const u64 soffset = s.kind == OperandKind::kSgpr ? w.s[s.index] : 0;
  return soffset + static_cast<u64>(static_cast<i64>(in.offset));
}

// The hardware drops the two low bits of every address.
u64 flat_address(const Wave& w, const Inst& in) {
  return ((w.pair(in.src[0].index) & ~u64{3}) + offset_of(w, in)) & ~u64{3};
}

// A constant buffer: dwords that lie in range, the others read zero and are not written.
struct Buffer {
  u64 base, bytes;
  Buffer(const Wave& w, u32 index) {
    const u64 low = w.pair(index);
    const u32 stride = static_cast<u32>(low >> 48) & 0x3fff, records = w.s[index + 2];
    base = low & 0xffffffffffff;
    bytes = stride ? u64{records} * stride : records;
  }
  u32 dwords_in_range(u64 offset, u32 dwords) const {
    if (offset >= bytes) return 0;
    return static_cast<u32>(std::min<u64>(dwords, (bytes - offset) / 4));
  }
};

template <u32 kDwords>
void load(Wave& w, const Inst& in) {
  const std::byte* host = w.workgroup->global(flat_address(w, in), 4 * kDwords, Access::kRead, -1);
  std::memcpy(&w.s[in.dst.index], host, 4 * kDwords);
}
template <u32 kDwords>
void buffer_load(Wave& w, const Inst& in) {
  const Buffer buffer(w, in.src[0].index);
  const u64 offset = offset_of(w, in) & ~u64{3};
  const u32 n = buffer.dwords_in_range(offset, kDwords);
  u32 words[kDwords] = {};
  if (n)
    std::memcpy(words,
                w.workgroup->global((buffer.base + offset) & ~u64{3}, 4 * n, Access::kRead, -1),
                4 * n);
  std::memcpy(&w.s[in.dst.index], words, sizeof words);
}

void put(Wave& w, u64 address, const u32* words, u32 n) {
  std::byte* host = w.workgroup->global(address, 4 * n, Access::kWrite, -1);
  if (std::memcmp(host, words, 4 * n) == 0) return;
  std::memcpy(host, words, 4 * n);
  w.workgroup->progress();
}
template <u32 kDwords>
void store(Wave& w, const Inst& in) {
  put(w, flat_address(w, in), &w.s[in.src[2].index], kDwords);
}
template <u32 kDwords>
void buffer_store(Wave& w, const Inst& in) {
  const Buffer buffer(w, in.src[0].index);
  const u64 offset = offset_of(w, in) & ~u64{3};
  if (const u32 n = buffer.dwords_in_range(offset, kDwords))
    put(w, (buffer.base + offset) & ~u64{3}, &w.s[in.src[2].index], n);
}

// Two data operands only for compare-and-swap: new value first.
template <class Op, bool kBuffer>
void rmw(Wave& w, const Inst& in) {
  using T = typename Op::Value;
  constexpr u32 kDwords = sizeof(T) / 4;
  u64 address;
  if constexpr (kBuffer) {
    const Buffer buffer(w, in.src[0].index);
    const u64 offset = offset_of(w, in) & ~u64{3};
    if (buffer.dwords_in_range(offset, kDwords) < kDwords) return;
    address = buffer.base + offset;
  } else {
    address = flat_address(w, in);
  }
  if (address % sizeof(T))
    raise(FaultKind::kMisaligned, "scalar atomic on an address that is not naturally aligned", -1,
          address);
  T* host = reinterpret_cast<T*>(w.workgroup->global(address, sizeof(T), Access::kAtomic, -1));
  T data, second;
  std::memcpy(&data, &w.s[in.src[2].index], sizeof(T));
  std::memcpy(&second, &w.s[(in.src[2].index + kDwords) & 127], sizeof(T));
  std::atomic_ref<T> cell(*host);
  T old = cell.load();
  while (!cell.compare_exchange_weak(old, Op{}(old, data, second))) {
  }
  if (Op{}(old, data, second) != old) w.workgroup->progress();
  if (in.sc0) std::memcpy(&w.s[in.src[2].index], &old, sizeof(T));
}

// Deterministic clocks: the count of instructions, not of cycles.
u64 ticks(const Wave& w) { return (w.workgroup->instructions + w.instructions) * 4; }
void read_clock(Wave& w, const Inst& in) { write_scalar64(w, in.dst, ticks(w)); }
void read_counter(Wave& w, const Inst& in) {
  const Machine& machine = w.workgroup->launch->machine;
  const u64 clock_khz = static_cast<u64>(std::llround(machine.product->peak_clock_ghz * 1e6));
  write_scalar64(w, in.dst, ticks(w) * machine.arch->counter_khz / clock_khz);
}

constexpr OperandSpec kBase{Type::kB64}, kDescriptor{Type::kRaw, 4}, kOffset{Type::kB32};

constexpr Row smem(u16 opcode, const char* name, Inst::Exec exec, OperandSpec dst, OperandSpec base,
                   OperandSpec data, u32 effects, u32 bytes) {
  Row row = scalar_row(Format::kSmem, opcode, name, exec, dst, {base, kOffset, data}, effects,
                       Unit::kSmem);
  row.access_bytes = static_cast<u8>(bytes);
  return row;
}
template <u32 N>
constexpr Row load_row(u16 opcode, const char* name) {
  return smem(opcode, name, load<N>, {Type::kRaw, N}, kBase, {}, kLoad, 4 * N);
}
template <u32 N>
constexpr Row buffer_load_row(u16 opcode, const char* name) {
  return smem(opcode, name, buffer_load<N>, {Type::kRaw, N}, kDescriptor, {}, kLoad, 4 * N);
}
template <u32 N>
constexpr Row store_row(u16 opcode, const char* name) {
  return smem(opcode, name, store<N>, {}, kBase, {Type::kRaw, N}, kStore, 4 * N);
}
template <u32 N>
constexpr Row buffer_store_row(u16 opcode, const char* name) {
  return smem(opcode, name, buffer_store<N>, {}, kDescriptor, {Type::kRaw, N}, kStore, 4 * N);
}
constexpr Row cache_row(u16 opcode, const char* name) {
  return scalar_row(Format::kSmem, opcode, name, exec_nothing, {}, {}, 0, Unit::kSmem,
                    Fidelity::kModelled, "caches are transparent");
}
constexpr const char* kFlatScratch =
    "traps: scalar scratch needs a segment register that no processor here has";
constexpr Row scratch_row(u16 opcode, const char* name, OperandSpec dst, OperandSpec data) {
  Row row = smem(opcode, name, exec_unsupported, dst, kBase, data, dst.used() ? kLoad : kStore,
                 4u * (dst.used() ? dst.dwords : data.dwords));
  row.fidelity = Fidelity::kUnverified;
  row.note = kFlatScratch;
  return row;
}
// The address translation cache and cache discards have no visible effect.
constexpr Row probe_row(u16 opcode, const char* name, OperandSpec first, OperandSpec base) {
  return scalar_row(Format::kSmem, opcode, name, exec_nothing, {}, {base, kOffset, first}, 0,
                    Unit::kSmem, Fidelity::kModelled, "no visible effect");
}

template <class Op, bool kBuffer>
constexpr Row atomic_row(u16 opcode, const char* name) {
  constexpr int kDwords = sizeof(typename Op::Value) / 4;
  return smem(opcode, name, rmw<Op, kBuffer>, {}, kBuffer ? kDescriptor : kBase,
              {Type::kRaw, atomic::kCompares<Op> ? 2 * kDwords : kDwords}, kLoad | kStore | kAtomic,
              4 * kDwords)
      .with(atomic::kTraits<Op>);
}
#define ATOMIC(OP, NAME, FN)                                                       \
  atomic_row<atomic::FN<u32>, true>(0x40 + OP, "s_buffer_atomic_" NAME),           \
      atomic_row<atomic::FN<u64>, true>(0x60 + OP, "s_buffer_atomic_" NAME "_x2"), \
      atomic_row<atomic::FN<u32>, false>(0x80 + OP, "s_atomic_" NAME),             \
      atomic_row<atomic::FN<u64>, false>(0xa0 + OP, "s_atomic_" NAME "_x2")

// clang-format off
constexpr Row kSmem[] = {
    load_row<1>(0x00, "s_load_dword"),
    load_row<2>(0x01, "s_load_dwordx2"),
    load_row<4>(0x02, "s_load_dwordx4"),
    load_row<8>(0x03, "s_load_dwordx8"),
    load_row<16>(0x04, "s_load_dwordx16"),
    scratch_row(0x05, "s_scratch_load_dword", {Type::kRaw, 1}, {}),
    scratch_row(0x06, "s_scratch_load_dwordx2", {Type::kRaw, 2}, {}),
    scratch_row(0x07, "s_scratch_load_dwordx4", {Type::kRaw, 4}, {}),
    buffer_load_row<1>(0x08, "s_buffer_load_dword"),
    buffer_load_row<2>(0x09, "s_buffer_load_dwordx2"),
    buffer_load_row<4>(0x0a, "s_buffer_load_dwordx4"),
    buffer_load_row<8>(0x0b, "s_buffer_load_dwordx8"),
    buffer_load_row<16>(0x0c, "s_buffer_load_dwordx16"),
    store_row<1>(0x10, "s_store_dword"),
    store_row<2>(0x11, "s_store_dwordx2"),
    store_row<4>(0x12, "s_store_dwordx4"),
    scratch_row(0x15, "s_scratch_store_dword", {}, {Type::kRaw, 1}),
    scratch_row(0x16, "s_scratch_store_dwordx2", {}, {Type::kRaw, 2}),
    scratch_row(0x17, "s_scratch_store_dwordx4", {}, {Type::kRaw, 4}),
    buffer_store_row<1>(0x18, "s_buffer_store_dword"),
    buffer_store_row<2>(0x19, "s_buffer_store_dwordx2"),
    buffer_store_row<4>(0x1a, "s_buffer_store_dwordx4"),
    cache_row(0x20, "s_dcache_inv").with(Trait::kInvalidatesScalar),
    cache_row(0x21, "s_dcache_wb"),
    cache_row(0x22, "s_dcache_inv_vol").with(Trait::kInvalidatesScalar),
    cache_row(0x23, "s_dcache_wb_vol"),
    scalar_row(Format::kSmem, 0x24, "s_memtime", read_clock, Type::kB64, {}, 0, Unit::kSmem,
               Fidelity::kModelled, "counts instructions"),
    scalar_row(Format::kSmem, 0x25, "s_memrealtime", read_counter, Type::kB64, {}, 0, Unit::kSmem,
               Fidelity::kModelled, "counts instructions, as if at the peak clock"),
    probe_row(0x26, "s_atc_probe", {Type::kImm, 1}, kBase),
    probe_row(0x27, "s_atc_probe_buffer", {Type::kImm, 1}, kDescriptor),
    probe_row(0x28, "s_dcache_discard", {}, kBase),
    probe_row(0x29, "s_dcache_discard_x2", {}, kBase),
    ATOMIC(0, "swap", Swap),
    ATOMIC(1, "cmpswap", CmpSwap),
    ATOMIC(2, "add", Add),
    ATOMIC(3, "sub", Sub),
    ATOMIC(4, "smin", Smin),
    ATOMIC(5, "umin", Umin),
    ATOMIC(6, "smax", Smax),
    ATOMIC(7, "umax", Umax),
    ATOMIC(8, "and", And),
    ATOMIC(9, "or", Or),
    ATOMIC(10, "xor", Xor),
    ATOMIC(11, "inc", Inc),
    ATOMIC(12, "dec", Dec),
};
// clang-format on
static_assert(unique_opcodes(kSmem));

}  // namespace

std::span<const Row> smem_rows() { return kSmem; }

}  // namespace vdev
