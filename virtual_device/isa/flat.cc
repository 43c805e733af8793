// The FLAT, GLOBAL and SCRATCH tables.
#include "isa/flat_semantics.h"
#include "isa/tables.h"

namespace vdev {
namespace flat {

Reg window_lds(const Addresses& address) {
  Reg result;
  // An offset that leaves the window must not come back at its start.
  for (int i = 0; i < kLanes; ++i)
    result.lane[i] = static_cast<u32>(std::min<u64>(address.lane[i] - kSharedBase, ~u32{0}));
  return result;
}

Addresses window_scratch(const Addresses& address) {
  Addresses result;
  for (int i = 0; i < kLanes; ++i) result.lane[i] = address.lane[i] - kPrivateBase;
  return result;
}

void scratch_atomic(const Windows& windows, const Addresses& address) {
  const int lane = std::countr_zero(windows.scratch);
  raise(FaultKind::kIllegalAddress, "atomic on the private segment", lane, address.lane[lane]);
}

}  // namespace flat

namespace {

using namespace atomic;  // operation names, as in the table
using flat::Segment;

// One instruction in up to three segments: the name without its prefix, null where a segment
// lacks it.
struct Family {
  u16 opcode;
  const char* names[3];  // FLAT, GLOBAL, SCRATCH
  Inst::Exec exec[3];
  OperandSpec dst, data;
  u32 effects;
  u32 bytes;
  bool on_floats;
  Traits traits;
  InstructionSets sets = kCdna;

  constexpr Family only(InstructionSets of) const {
    Family family = *this;
    family.sets = of;
    return family;
  }
};

constexpr const char* kLdsNote = "a dword per lane at M0[17:2]*4 + offset + 4*lane";
constexpr const char* kWideLdsNote =
    "a lane's dwords at M0[17:2]*4 + offset + 16*lane, of 3 as of 4 (ISA manual of CDNA4, 9.1.9)";

template <Shape S>
constexpr Family load(u16 opcode, const char* f, const char* g, const char* s) {
  return {opcode,
          {f, g, s},
          {&flat::load<Segment::kFlat, S>, &flat::load<Segment::kGlobal, S>,
           &flat::load<Segment::kScratch, S>},
          dwords_spec(shape_dwords(S)),
          {},
          kLoad | (shape_d16(S) ? kD16Effects : 0u),
          shape_bytes(S),
          false,
          shape_traits(S)};
}
template <Shape S>
constexpr Family store(u16 opcode, const char* f, const char* g, const char* s) {
  return {opcode,
          {f, g, s},
          {&flat::store<Segment::kFlat, S>, &flat::store<Segment::kGlobal, S>,
           &flat::store<Segment::kScratch, S>},
          {},
          dwords_spec(shape_dwords(S)),
          kStore,
          shape_bytes(S),
          false,
          shape_traits(S)};
}
template <class Op, bool kTwoData = false>
constexpr Family rmw(u16 opcode, const char* f, const char* g, const char*) {
  constexpr int kDwords = sizeof(typename Op::Value) / 4;
  // In LDS, which FLAT reaches, MODE governs denormals.
  return {opcode,
          {f, g, nullptr},
          {&flat::rmw<Segment::kFlat, Op, kTwoData>, &flat::rmw<Segment::kGlobal, Op, kTwoData>,
           nullptr},
          dwords_spec(kDwords),
          dwords_spec(kTwoData ? 2 * kDwords : kDwords),
          kAtomic | (OnFloats<Op> ? kFloat | kReadsMode : 0u),
          4 * kDwords,
          OnFloats<Op>,
          kTraits<Op>};
}
template <Shape S>
constexpr Family load_to_lds(u16 opcode, const char*, const char* g, const char* s) {
  return {
      opcode,
      {nullptr, g, s},
      {nullptr, &flat::load_to_lds<Segment::kGlobal, S>, &flat::load_to_lds<Segment::kScratch, S>},
      {},
      {},
      kLoad | kStore | kReadsM0,
      shape_bytes(S),
      false,
      shape_traits(S)};
}

#define N(stem) "flat_" stem, "global_" stem, "scratch_" stem
constexpr Family kFamilies[] = {
    load<Shape::kU8>(0x10, N("load_ubyte")),
    load<Shape::kI8>(0x11, N("load_sbyte")),
    load<Shape::kU16>(0x12, N("load_ushort")),
    load<Shape::kI16>(0x13, N("load_sshort")),
    load<Shape::kB32>(0x14, N("load_dword")),
    load<Shape::kB64>(0x15, N("load_dwordx2")),
    load<Shape::kB96>(0x16, N("load_dwordx3")),
    load<Shape::kB128>(0x17, N("load_dwordx4")),
    store<Shape::kU8>(0x18, N("store_byte")),
    store<Shape::kU8D16Hi>(0x19, N("store_byte_d16_hi")),
    store<Shape::kU16>(0x1a, N("store_short")),
    store<Shape::kB16D16Hi>(0x1b, N("store_short_d16_hi")),
    store<Shape::kB32>(0x1c, N("store_dword")),
    store<Shape::kB64>(0x1d, N("store_dwordx2")),
    store<Shape::kB96>(0x1e, N("store_dwordx3")),
    store<Shape::kB128>(0x1f, N("store_dwordx4")),
    load<Shape::kU8D16>(0x20, N("load_ubyte_d16")),
    load<Shape::kU8D16Hi>(0x21, N("load_ubyte_d16_hi")),
    load<Shape::kI8D16>(0x22, N("load_sbyte_d16")),
    load<Shape::kI8D16Hi>(0x23, N("load_sbyte_d16_hi")),
    load<Shape::kB16D16>(0x24, N("load_short_d16")),
    load<Shape::kB16D16Hi>(0x25, N("load_short_d16_hi")),
    load_to_lds<Shape::kU8>(0x26, N("load_lds_ubyte")),
    load_to_lds<Shape::kI8>(0x27, N("load_lds_sbyte")),
    load_to_lds<Shape::kU16>(0x28, N("load_lds_ushort")),
    load_to_lds<Shape::kI16>(0x29, N("load_lds_sshort")),
    load_to_lds<Shape::kB32>(0x2a, N("load_lds_dword")),
    rmw<Swap<u32>>(0x40, N("atomic_swap")),
    rmw<CmpSwap<u32>, true>(0x41, N("atomic_cmpswap")),
    rmw<Add<u32>>(0x42, N("atomic_add")),
    rmw<Sub<u32>>(0x43, N("atomic_sub")),
    rmw<Smin<u32>>(0x44, N("atomic_smin")),
    rmw<Umin<u32>>(0x45, N("atomic_umin")),
    rmw<Smax<u32>>(0x46, N("atomic_smax")),
    rmw<Umax<u32>>(0x47, N("atomic_umax")),
    rmw<And<u32>>(0x48, N("atomic_and")),
    rmw<Or<u32>>(0x49, N("atomic_or")),
    rmw<Xor<u32>>(0x4a, N("atomic_xor")),
    rmw<Inc<u32>>(0x4b, N("atomic_inc")),
    rmw<Dec<u32>>(0x4c, N("atomic_dec")),
    rmw<AddF32>(0x4d, N("atomic_add_f32")),
    rmw<AddPackedF16>(0x4e, N("atomic_pk_add_f16")),
    rmw<AddF64>(0x4f, N("atomic_add_f64")),
    rmw<FloatMin<F64>>(0x50, N("atomic_min_f64")),
    rmw<FloatMax<F64>>(0x51, N("atomic_max_f64")),
    rmw<AddPackedBf16>(0x52, N("atomic_pk_add_bf16")),
    rmw<Swap<u64>>(0x60, N("atomic_swap_x2")),
    rmw<CmpSwap<u64>, true>(0x61, N("atomic_cmpswap_x2")),
    rmw<Add<u64>>(0x62, N("atomic_add_x2")),
    rmw<Sub<u64>>(0x63, N("atomic_sub_x2")),
    rmw<Smin<u64>>(0x64, N("atomic_smin_x2")),
    rmw<Umin<u64>>(0x65, N("atomic_umin_x2")),
    rmw<Smax<u64>>(0x66, N("atomic_smax_x2")),
    rmw<Umax<u64>>(0x67, N("atomic_umax_x2")),
    rmw<And<u64>>(0x68, N("atomic_and_x2")),
    rmw<Or<u64>>(0x69, N("atomic_or_x2")),
    rmw<Xor<u64>>(0x6a, N("atomic_xor_x2")),
    rmw<Inc<u64>>(0x6b, N("atomic_inc_x2")),
    rmw<Dec<u64>>(0x6c, N("atomic_dec_x2")),
    load_to_lds<Shape::kB128>(0x7d, nullptr, "global_load_lds_dwordx4", nullptr).only(kCdna4),
    load_to_lds<Shape::kB96>(0x7e, nullptr, "global_load_lds_dwordx3", nullptr).only(kCdna4),
};
#undef N

constexpr size_t count_rows() {
  size_t count = 0;
  for (const Family& family : kFamilies)
    for (const char* name : family.names) count += name != nullptr;
  return count;
}

constexpr Row make_row(const Family& family, Segment segment) {
  constexpr Format kFormats[] = {Format::kFlat, Format::kGlobal, Format::kScratch};
  constexpr Unit kUnits[] = {Unit::kFlat, Unit::kVmem, Unit::kScratch};
  const auto s = static_cast<size_t>(segment);
  Row row;
  row.name = family.names[s];
  row.format = kFormats[s];
  row.unit = kUnits[s];
  row.opcode = family.opcode;
  row.sets = family.sets;
  row.dst = family.dst;
  // With a scalar base, or in scratch, the vector address is one dword: the decoder knows.
  row.src[0] = segment == Segment::kScratch ? Type::kU32 : Type::kU64;
  row.src[1] = family.data;
  if (segment == Segment::kGlobal) row.src[2] = Type::kU64;
  if (segment == Segment::kScratch) row.src[2] = Type::kU32;
  row.effects = family.effects;
  if (segment == Segment::kGlobal) row.effects &= ~static_cast<u32>(kReadsMode);
  row.exec = family.exec[s];
  row.access_bytes = static_cast<u8>(family.bytes);
  row.traits = family.traits;
  if (family.on_floats) {
    row.fidelity = Fidelity::kModelled;
    row.note = kL2FloatNote;
  }
  if (family.effects & kReadsM0) row.note = family.bytes > 4 ? kWideLdsNote : kLdsNote;
  return row;
}

struct Table {
  Row rows[count_rows()];
  constexpr Table() {
    size_t count = 0;
    for (const Segment segment : {Segment::kFlat, Segment::kGlobal, Segment::kScratch})
      for (const Family& family : kFamilies)
        if (family.names[static_cast<size_t>(segment)]) rows[count++] = make_row(family, segment);
  }
};
constexpr Table kTable;
static_assert(unique_opcodes(kTable.rows));

}  // namespace

std::span<const Row> flat_rows() { return kTable.rows; }

}  // namespace vdev
