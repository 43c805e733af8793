// Reading and writing operands.
#pragma once

#include "core/wave.h"
#include "isa/inst.h"

namespace vdev {

// vccz, execz, scc, apertures and the like.
u64 read_special(const Wave& w, u16 code);

// Uniform (scalar) value of an operand: SGPRs, constants, specials.
inline u32 read_scalar(const Wave& w, const Operand& o) {
  if (o.kind == OperandKind::kSgpr) return w.s[o.index];
  if (o.kind == OperandKind::kConst) return o.lo;
  return static_cast<u32>(read_special(w, o.code));
}
inline u64 read_scalar64(const Wave& w, const Operand& o) {
  if (o.kind == OperandKind::kSgpr) return w.pair(o.index);
  if (o.kind == OperandKind::kConst) return o.lo | u64{o.hi} << 32;
  return read_special(w, o.code);
}
inline void write_scalar(Wave& w, const Operand& o, u32 value) { w.s[o.index] = value; }
inline void write_scalar64(Wave& w, const Operand& o, u64 value) { w.set_pair(o.index, value); }

// Registers of a vector operand, contiguous from the first.
inline Reg* vector(Wave& w, const Operand& o) { return &w.v[o.reg()]; }
inline const Reg* vector(const Wave& w, const Operand& o) { return &w.v[o.reg()]; }

// `dwords` Regs of an operand as a vector source: registers themselves, or a scalar broadcast
// into w.tmp[slot...].
inline const Reg* lanes(Wave& w, const Operand& o, int dwords, int slot) {
  if (o.is_vector()) [[likely]]
    return &w.v[o.reg()];
  u32 value[2];
  if (o.kind == OperandKind::kSgpr) {
    value[0] = w.s[o.index];
    value[1] = dwords > 1 ? w.s[o.index + 1] : 0;
  } else if (o.kind == OperandKind::kConst) {
    value[0] = o.lo;
    value[1] = o.hi;
  } else {
    const u64 special = read_special(w, o.code);
    value[0] = static_cast<u32>(special);
    value[1] = static_cast<u32>(special >> 32);
  }
  for (int d = 0; d < dwords && d < 2; ++d)
    for (int i = 0; i < kLanes; ++i) w.tmp[slot + d].lane[i] = value[d];
  return &w.tmp[slot];
}

// dst[lane] = src[lane] where the mask has a bit.
inline void merge(Reg* dst, const Reg* src, int dwords, u64 mask) {
  for (int d = 0; d < dwords; ++d) {
    u32* out = dst[d].lane;
    const u32* in = src[d].lane;
    for (int c = 0; c < kLanes; c += 16) {
      const u32 bits = static_cast<u32>(mask >> c) & 0xffff;
      for (int i = 0; i < 16; ++i) out[c + i] = (bits >> i & 1) ? in[c + i] : out[c + i];
    }
  }
}

// Calls f(lane) for every set bit, ascending.
template <class F>
inline void for_lanes(u64 mask, F&& f) {
  if (mask == ~u64{0}) {
    for (int lane = 0; lane < kLanes; ++lane) f(lane);
    return;
  }
  for (; mask; mask &= mask - 1) f(std::countr_zero(mask));
}

}  // namespace vdev
