// Lane-wise memory access, shared by DS, FLAT, GLOBAL, SCRATCH, MUBUF and MTBUF: the width of one
// lane's datum, and how it moves between registers and LDS, scratch or device memory.
//
// Facts used here
//   Alignment: HSA runs gfx9 with SH_MEM_CONFIG.ALIGNMENT_MODE = UNALIGNED, and LLVM's gfx942 has
//   unaligned-access-mode and unaligned-ds-access: loads and stores of every width, read2 and
//   write2 included, take any byte address. Atomics must be naturally aligned.
//   LDS beyond the allocation: silicon returns 0 or drops the write; here it is a fault.
//   Device memory is shared between worker threads. Loads and stores are plain copies of known
//   width, which compilers turn into single moves, and so is the memory model that kernels rely
//   on: no tearing of naturally aligned dwords, order as on x86 (stronger than on the device).
#pragma once

#include <algorithm>

#include "core/wave.h"
#include "isa/operand.h"

namespace vdev {

enum class Shape : u8 {
  kU8,
  kI8,
  kU16,
  kI16,
  kB32,
  kB64,
  kB96,
  kB128,
  // One half of a register.
  kU8D16,
  kI8D16,
  kB16D16,
  kU8D16Hi,
  kI8D16Hi,
  kB16D16Hi,
};
// What a D16 load does to the other half of its register. The manual: "When ECC is enabled 16-bit
// memory loads write the full 32-bit VGPR. Unused bits are set to zero." MI300 runs as
// gfx942:sramecc+, and LLVM lets no gfx942 code rely on the other half (d16PreservesUnusedBits).
inline constexpr bool kD16KeepsOtherHalf = false;
inline constexpr u32 kD16Effects = kD16KeepsOtherHalf ? kD16 | kReadsDst : 0u;
constexpr u32 shape_bytes(Shape s) {
  switch (s) {
    case Shape::kU8:
    case Shape::kI8:
    case Shape::kU8D16:
    case Shape::kI8D16:
    case Shape::kU8D16Hi:
    case Shape::kI8D16Hi:
      return 1;
    case Shape::kU16:
    case Shape::kI16:
    case Shape::kB16D16:
    case Shape::kB16D16Hi:
      return 2;
    case Shape::kB64:
      return 8;
    case Shape::kB96:
      return 12;
    case Shape::kB128:
      return 16;
    default:
      return 4;
  }
}
constexpr bool shape_high_half(Shape s) { return s >= Shape::kU8D16Hi; }
constexpr bool shape_d16(Shape s) { return s >= Shape::kU8D16; }
constexpr Traits shape_traits(Shape s) {
  Traits traits;
  if (s == Shape::kI8 || s == Shape::kI16 || s == Shape::kI8D16 || s == Shape::kI8D16Hi)
    traits = traits | Trait::kSignExtends;
  if (shape_d16(s)) traits = traits | Trait::kHalfDatum;
  if (shape_high_half(s)) traits = traits | Trait::kHighHalf;
  return traits;
}
constexpr int shape_dwords(Shape s) {
  return shape_bytes(s) < 4 ? 1 : static_cast<int>(shape_bytes(s) / 4);
}

// The operand of a row that holds so many dwords without an arithmetic meaning.
constexpr OperandSpec dwords_spec(int dwords) {
  return dwords == 1   ? OperandSpec(Type::kB32)
         : dwords == 2 ? OperandSpec(Type::kB64)
                       : OperandSpec(Type::kRaw, dwords);
}

template <class T>
inline T read_as(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Memory to one lane of registers.
template <Shape S>
inline void load_lane(Reg* dst, int lane, const std::byte* from) {
  u32& out = dst->lane[lane];
  auto half = [&out](u32 value) {
    const u32 other = kD16KeepsOtherHalf ? out : 0;
    out =
        shape_high_half(S) ? (other & 0xffff) | value << 16 : (other & ~0xffffu) | (value & 0xffff);
  };
  if constexpr (S == Shape::kU8)
    out = read_as<u8>(from);
  else if constexpr (S == Shape::kI8)
    out = static_cast<u32>(i32{read_as<i8>(from)});
  else if constexpr (S == Shape::kU16)
    out = read_as<u16>(from);
  else if constexpr (S == Shape::kI16)
    out = static_cast<u32>(i32{read_as<i16>(from)});
  else if constexpr (S == Shape::kU8D16 || S == Shape::kU8D16Hi)
    half(read_as<u8>(from));
  else if constexpr (S == Shape::kI8D16 || S == Shape::kI8D16Hi)
    half(static_cast<u32>(i32{read_as<i8>(from)}));
  else if constexpr (S == Shape::kB16D16 || S == Shape::kB16D16Hi)
    half(read_as<u16>(from));
  else {
    constexpr int kDwords = shape_dwords(S);
    out = read_as<u32>(from);
    if constexpr (kDwords > 1) dst[1].lane[lane] = read_as<u32>(from + 4);
    if constexpr (kDwords > 2) dst[2].lane[lane] = read_as<u32>(from + 8);
    if constexpr (kDwords > 3) dst[3].lane[lane] = read_as<u32>(from + 12);
  }
}

// One lane of registers to memory.
template <Shape S>
inline void store_lane(const Reg* src, int lane, std::byte* to) {
  if constexpr (shape_bytes(S) < 4) {
    const u32 value = src->lane[lane] >> (shape_high_half(S) ? 16 : 0);
    std::memcpy(to, &value, shape_bytes(S));
  } else {
    constexpr int kDwords = shape_dwords(S);
    std::memcpy(to, &src[0].lane[lane], 4);
    if constexpr (kDwords > 1) std::memcpy(to + 4, &src[1].lane[lane], 4);
    if constexpr (kDwords > 2) std::memcpy(to + 8, &src[2].lane[lane], 4);
    if constexpr (kDwords > 3) std::memcpy(to + 12, &src[3].lane[lane], 4);
  }
}
template <Shape S>
inline bool differs(const Reg* src, int lane, const std::byte* memory) {
  std::byte value[16];
  store_lane<S>(src, lane, value);
  return std::memcmp(value, memory, shape_bytes(S)) != 0;
}

// Four dwords, one per lane or one per register, for the transposition between row-wise memory and
// planar registers.
using Quad = u32 __attribute__((vector_size(16)));
static_assert(sizeof(Quad) == 16);
inline Quad read_quad(const void* from) {
  Quad value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
inline void write_quad(void* to, Quad value) { std::memcpy(to, &value, sizeof value); }
inline void transpose(Quad& q0, Quad& q1, Quad& q2, Quad& q3) {
  const Quad a = __builtin_shufflevector(q0, q1, 0, 4, 1, 5);
  const Quad b = __builtin_shufflevector(q2, q3, 0, 4, 1, 5);
  const Quad c = __builtin_shufflevector(q0, q1, 2, 6, 3, 7);
  const Quad d = __builtin_shufflevector(q2, q3, 2, 6, 3, 7);
  q0 = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  q1 = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  q2 = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  q3 = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

// All 64 lanes; `where(lane)` is the host address of a lane's datum, already checked.
// Four lanes are spelled out because compilers keep an array of vectors in memory.
template <Shape S, class Where>
inline void load_all(Reg* dst, Where where) {
  if constexpr (S == Shape::kB128) {
    for (int lane = 0; lane < kLanes; lane += 4) {
      Quad q0 = read_quad(where(lane)), q1 = read_quad(where(lane + 1));
      Quad q2 = read_quad(where(lane + 2)), q3 = read_quad(where(lane + 3));
      transpose(q0, q1, q2, q3);
      write_quad(&dst[0].lane[lane], q0);
      write_quad(&dst[1].lane[lane], q1);
      write_quad(&dst[2].lane[lane], q2);
      write_quad(&dst[3].lane[lane], q3);
    }
  } else if constexpr (S == Shape::kB64) {
    for (int lane = 0; lane < kLanes; lane += 4) {
      const u64 rows[4] = {read_as<u64>(where(lane)), read_as<u64>(where(lane + 1)),
                           read_as<u64>(where(lane + 2)), read_as<u64>(where(lane + 3))};
      const Quad a = read_quad(rows), b = read_quad(rows + 2);
      write_quad(&dst[0].lane[lane], __builtin_shufflevector(a, b, 0, 2, 4, 6));
      write_quad(&dst[1].lane[lane], __builtin_shufflevector(a, b, 1, 3, 5, 7));
    }
  } else {
    for (int lane = 0; lane < kLanes; ++lane) load_lane<S>(dst, lane, where(lane));
  }
}

// Writes a value and collects in `changed` which bits differ, if that is wanted.
template <bool kTrack, class T>
inline void put(std::byte* to, T value, T& changed) {
  if constexpr (kTrack) {
    T old;
    std::memcpy(&old, to, sizeof old);
    changed |= old ^ value;
  }
  std::memcpy(to, &value, sizeof value);
}

// As above; the highest lane wins where lanes overlap. With kTrack returns whether any byte
// changed, which the watchdog wants to know.
template <Shape S, bool kTrack, class Where>
inline bool store_all(const Reg* src, Where where) {
  if constexpr (S == Shape::kB128) {
    Quad changed = {};
    for (int lane = 0; lane < kLanes; lane += 4) {
      Quad q0 = read_quad(&src[0].lane[lane]), q1 = read_quad(&src[1].lane[lane]);
      Quad q2 = read_quad(&src[2].lane[lane]), q3 = read_quad(&src[3].lane[lane]);
      transpose(q0, q1, q2, q3);
      put<kTrack>(where(lane), q0, changed);
      put<kTrack>(where(lane + 1), q1, changed);
      put<kTrack>(where(lane + 2), q2, changed);
      put<kTrack>(where(lane + 3), q3, changed);
    }
    return (changed[0] | changed[1] | changed[2] | changed[3]) != 0;
  } else if constexpr (S == Shape::kB64) {
    u64 changed = 0;
    for (int lane = 0; lane < kLanes; ++lane)
      put<kTrack>(where(lane), src[0].lane[lane] | u64{src[1].lane[lane]} << 32, changed);
    return changed != 0;
  } else {
    bool changed = false;
    for (int lane = 0; lane < kLanes; ++lane) {
      std::byte* const to = where(lane);
      if constexpr (kTrack) changed |= differs<S>(src, lane, to);
      store_lane<S>(src, lane, to);
    }
    return changed;
  }
}

// ---- LDS. Addresses are bytes from the workgroup's allocation.

inline bool lds_holds_all(const Workgroup& group, const Reg& address, u32 bytes) {
  u32 highest = 0;
  for (int i = 0; i < kLanes; ++i) highest = std::max(highest, address.lane[i]);
  return u64{highest} + bytes <= group.lds.size();
}

template <Shape S>
inline void lds_load(Wave& w, const Reg& address, u64 mask, Reg* dst) {
  constexpr u32 kBytes = shape_bytes(S);
  Workgroup& group = *w.workgroup;
  if (mask == ~u64{0} && lds_holds_all(group, address, kBytes)) [[likely]] {
    const auto* base = reinterpret_cast<const std::byte*>(group.lds.data());
    load_all<S>(dst, [&](int lane) { return base + address.lane[lane]; });
  } else {
    for_lanes(mask, [&](int lane) {
      load_lane<S>(dst, lane, group.local(address.lane[lane], kBytes, Access::kRead, lane));
    });
  }
}

template <Shape S>
inline void lds_store(Wave& w, const Reg& address, u64 mask, const Reg* src) {
  constexpr u32 kBytes = shape_bytes(S);
  Workgroup& group = *w.workgroup;
  if (mask == ~u64{0} && lds_holds_all(group, address, kBytes)) [[likely]] {
    auto* base = reinterpret_cast<std::byte*>(group.lds.data());
    store_all<S, false>(src, [&](int lane) { return base + address.lane[lane]; });
  } else {
    for_lanes(mask, [&](int lane) {
      store_lane<S>(src, lane, group.local(address.lane[lane], kBytes, Access::kWrite, lane));
    });
  }
}

// Loads to LDS (the `lds` forms of MUBUF, GLOBAL and SCRATCH): what a lane has of them is at its
// place whatever EXEC is, 4 bytes, or 16 of 3 and 4 dwords; 3 leave the last one as it was (ISA
// manual of CDNA4, 9.1.9).
constexpr u32 deposit_dwords(u32 access_bytes) { return access_bytes > 4 ? access_bytes / 4 : 1; }
constexpr u32 deposit_stride(u32 dwords) { return dwords > 1 ? 16 : 4; }
// `base`: M0 and instruction offset, summed by the caller.
void lds_deposit(Wave& w, u32 base, u64 mask, const Reg* value, u32 dwords);

// ---- Device memory.

struct alignas(64) Addresses {
  u64 lane[kLanes];
};

// The host view of the addresses of a wave's active lanes: one look-up when they lie in one
// allocation, else one per lane, which then faults for the lane that is wrong.
class GlobalView {
 public:
  GlobalView(Wave& w, const Addresses& address, u64 mask, u32 bytes, Access access)
      : group_(*w.workgroup), address_(address), bytes_(bytes), access_(access) {
    u64 low = ~u64{0}, high = 0;
    if (mask == ~u64{0}) {
      // Signed: SSE4.2 and AVX2 compare nothing else; no valid address has the top bit set.
      i64 least = INT64_MAX, most = INT64_MIN;
      for (int i = 0; i < kLanes; ++i) {
        const i64 a = static_cast<i64>(address.lane[i]);
        least = std::min(least, a);
        most = std::max(most, a);
      }
      low = static_cast<u64>(least);
      high = static_cast<u64>(most);
    } else {
      for_lanes(mask, [&](int i) {
        low = std::min(low, address.lane[i]);
        high = std::max(high, address.lane[i]);
      });
    }
    if (high - low >= kMaxSpan) return;  // also when low > high
    if (std::byte* host = group_.try_global(low, high - low + bytes)) {
      origin_ = reinterpret_cast<u64>(host) - low;
      whole_ = true;
    }
  }
  bool whole() const { return whole_; }
  // Only while whole().
  std::byte* at(int lane) const {
    return reinterpret_cast<std::byte*>(origin_ + address_.lane[lane]);
  }
  std::byte* checked(int lane) const {
    return whole() ? at(lane) : group_.global(address_.lane[lane], bytes_, access_, lane);
  }

 private:
  static constexpr u64 kMaxSpan = u64{1} << 48;
  Workgroup& group_;
  const Addresses& address_;
  u32 bytes_;
  Access access_;
  u64 origin_ = 0;  // host - device address
  bool whole_ = false;
};

template <Shape S>
inline void global_load(Wave& w, const Addresses& address, u64 mask, Reg* dst) {
  if (!mask) return;
  const GlobalView view(w, address, mask, shape_bytes(S), Access::kRead);
  if (mask == ~u64{0} && view.whole()) [[likely]]
    load_all<S>(dst, [&](int lane) { return view.at(lane); });
  else
    for_lanes(mask, [&](int lane) { load_lane<S>(dst, lane, view.checked(lane)); });
}

template <Shape S>
inline void global_store(Wave& w, const Addresses& address, u64 mask, const Reg* src) {
  if (!mask) return;
  const GlobalView view(w, address, mask, shape_bytes(S), Access::kWrite);
  bool changed = false;
  if (mask == ~u64{0} && view.whole()) [[likely]] {
    changed = store_all<S, true>(src, [&](int lane) { return view.at(lane); });
  } else {
    for_lanes(mask, [&](int lane) {
      std::byte* const to = view.checked(lane);
      changed |= differs<S>(src, lane, to);
      store_lane<S>(src, lane, to);
    });
  }
  if (changed) w.workgroup->progress();
}

// ---- Scratch. Addresses are bytes of the lane's own private segment; dword d of lane l lies at
// wave.scratch + (64 * d + l) * 4.

// Copies `bytes` bytes of one lane's private segment; throws beyond its end.
void scratch_read(const Wave& w, u64 offset, u32 bytes, int lane, std::byte* to);
void scratch_write(Wave& w, u64 offset, u32 bytes, int lane, const std::byte* from);

template <Shape S>
inline void scratch_load(Wave& w, const Addresses& offset, u64 mask, Reg* dst) {
  for_lanes(mask, [&](int lane) {
    std::byte datum[16];
    scratch_read(w, offset.lane[lane], shape_bytes(S), lane, datum);
    load_lane<S>(dst, lane, datum);
  });
}
template <Shape S>
inline void scratch_store(Wave& w, const Addresses& offset, u64 mask, const Reg* src) {
  for_lanes(mask, [&](int lane) {
    std::byte datum[16];
    store_lane<S>(src, lane, datum);
    scratch_write(w, offset.lane[lane], shape_bytes(S), lane, datum);
  });
}

}  // namespace vdev
