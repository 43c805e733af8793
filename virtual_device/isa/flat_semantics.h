// Semantics of FLAT, GLOBAL and SCRATCH instructions, one template per kind, over the segment.
#pragma once

#include "core/apertures.h"
#include "isa/atomic.h"

namespace vdev::flat {

enum class Segment : u8 { kFlat, kGlobal, kScratch };

// GLOBAL: a 64-bit address in VGPRs, or an SGPR pair plus an unsigned 32-bit VGPR offset; FLAT:
// the former. The instruction's offset is signed (FLAT: 12 bits unsigned).
inline Addresses global_addresses(const Wave& w, const Inst& inst) {
  const Reg* const address = vector(w, inst.src[0]);
  const bool scalar_base = inst.src[2].kind == OperandKind::kSgpr;
  const u64 offset = static_cast<u64>(i64{inst.offset});
  const u64 base = (scalar_base ? w.pair(inst.src[2].index) : 0) + offset;
  Addresses result;
  if (scalar_base) {
    for (int i = 0; i < kLanes; ++i) result.lane[i] = base + address->lane[i];
  } else {
    for (int i = 0; i < kLanes; ++i)
      result.lane[i] = base + (address[0].lane[i] | u64{address[1].lane[i]} << 32);
  }
  return result;
}

// SCRATCH: bytes from the start of the lane's private segment. Sums do not wrap around: a
// negative 32-bit offset in a register is far out of bounds.
inline Addresses scratch_offsets(const Wave& w, const Inst& inst) {
  const u64 scalar = inst.src[2].kind == OperandKind::kSgpr ? w.s[inst.src[2].index] : 0;
  const u64 base = scalar + static_cast<u64>(i64{inst.offset});
  Addresses result;
  for (int i = 0; i < kLanes; ++i)
    result.lane[i] = base + (inst.src[0].is_vector() ? vector(w, inst.src[0])->lane[i] : 0);
  return result;
}

// FLAT: which lanes address LDS, scratch and device memory. Apertures are 4 GiB windows; like the
// hardware, the test looks at the register, before the offset is added.
struct Windows {
  u64 local = 0, scratch = 0, global = 0;
  Windows(const Wave& w, const Inst& inst) {
    constexpr u32 kShared = kSharedBase >> 32, kPrivate = kPrivateBase >> 32;
    const Reg& high = vector(w, inst.src[0])[1];
    global = w.exec();
    u32 any = 0;
    for (int i = 0; i < kLanes; ++i) any |= high.lane[i] == kShared || high.lane[i] == kPrivate;
    if (!any) [[likely]]
      return;
    for_lanes(w.exec(), [&](int lane) {
      const u64 bit = u64{1} << lane;
      if (high.lane[lane] == kShared) local |= bit;
      if (high.lane[lane] == kPrivate) scratch |= bit;
    });
    global &= ~(local | scratch);
  }
  bool only_global() const { return (local | scratch) == 0; }
};
Reg window_lds(const Addresses& address);            // LDS addresses of lanes in the LDS window
Addresses window_scratch(const Addresses& address);  // private segment offsets, likewise
[[noreturn]] void scratch_atomic(const Windows& windows, const Addresses& address);

template <Segment G, Shape S>
void load(Wave& w, const Inst& inst) {
  Reg* const dst = vector(w, inst.dst);
  if constexpr (G == Segment::kScratch) {
    scratch_load<S>(w, scratch_offsets(w, inst), w.exec(), dst);
  } else {
    const Addresses address = global_addresses(w, inst);
    if constexpr (G == Segment::kFlat) {
      const Windows windows(w, inst);
      if (!windows.only_global()) {
        lds_load<S>(w, window_lds(address), windows.local, dst);
        scratch_load<S>(w, window_scratch(address), windows.scratch, dst);
        return global_load<S>(w, address, windows.global, dst);
      }
    }
    global_load<S>(w, address, w.exec(), dst);
  }
}

template <Segment G, Shape S>
void store(Wave& w, const Inst& inst) {
  const Reg* const src = vector(w, inst.src[1]);
  if constexpr (G == Segment::kScratch) {
    scratch_store<S>(w, scratch_offsets(w, inst), w.exec(), src);
  } else {
    const Addresses address = global_addresses(w, inst);
    if constexpr (G == Segment::kFlat) {
      const Windows windows(w, inst);
      if (!windows.only_global()) {
        lds_store<S>(w, window_lds(address), windows.local, src);
        scratch_store<S>(w, window_scratch(address), windows.scratch, src);
        return global_store<S>(w, address, windows.global, src);
      }
    }
    global_store<S>(w, address, w.exec(), src);
  }
}

// The data operand of cmpswap is the new value followed by the value to compare with.
template <Segment G, class Op, bool kTwoData>
void rmw(Wave& w, const Inst& inst) {
  constexpr int kDwords = sizeof(typename Op::Value) / 4;
  const Reg* const data0 = vector(w, inst.src[1]);
  const Reg* const data1 = kTwoData ? data0 + kDwords : nullptr;
  Reg* const dst = inst.sc0 ? vector(w, inst.dst) : nullptr;
  const Addresses address = global_addresses(w, inst);
  if constexpr (G == Segment::kFlat) {
    const Windows windows(w, inst);
    if (!windows.only_global()) {
      if (windows.scratch) scratch_atomic(windows, address);
      lds_atomic<Op>(w, window_lds(address), windows.local, data0, data1, dst);
      return global_atomic<Op>(w, address, windows.global, data0, data1, dst);
    }
  }
  global_atomic<Op>(w, address, w.exec(), data0, data1, dst);
}

// LDS address: M0[17:2] * 4 + offset + the lane's place; the offset applies on both sides.
template <Segment G, Shape S>
void load_to_lds(Wave& w, const Inst& inst) {
  Reg* const value = w.tmp;
  if constexpr (G == Segment::kScratch)
    scratch_load<S>(w, scratch_offsets(w, inst), w.exec(), value);
  else
    global_load<S>(w, global_addresses(w, inst), w.exec(), value);
  lds_deposit(w, (w.s[kM0] & 0x3fffc) + static_cast<u32>(inst.offset), w.exec(), value,
              deposit_dwords(shape_bytes(S)));
}

}  // namespace vdev::flat
