// Where the elements lie that a conversion with a scale takes and gives.
#pragma once

#include "core/wave.h"
#include "isa/inst.h"

namespace vdev {

// Elements of `source_bits` each become as many of `result_bits`. They are dense, the first in the
// lowest bits of the first register. Fewer than 32 bits of them take a byte or a half of their
// register, which op_sel names; the rest of a result's register is kept.
struct ScaledShape {
  u8 source_bits, result_bits, count;
  bool narrows;      // the result is the narrow format
  bool two_sources;  // elements are of sources 0 and 1 in turn
  bool stochastic;   // source 1 is the seed

  constexpr int scale_operand() const { return two_sources || stochastic ? 2 : 1; }
  // The source of an element, and how many elements come before it there.
  struct Place {
    u32 operand, place;
  };
  constexpr Place place(u32 i) const { return two_sources ? Place{i & 1, i / 2} : Place{0, i}; }
  constexpr u32 source_total() const { return source_bits * count / (two_sources ? 2u : 1u); }
  constexpr u32 result_total() const { return u32{result_bits} * count; }
  constexpr int result_dwords() const { return static_cast<int>((result_total() + 31) / 32); }
  constexpr bool selects_source() const { return !narrows && source_total() < 32; }
  constexpr bool keeps_rest() const { return result_total() < 32; }
  // Bits of op_sel that mean something.
  constexpr int op_sel_mask() const {
    const int source = !selects_source() ? 0 : source_total() == 8 ? 3 : 1;
    const int result = !keeps_rest() ? 0 : result_total() == 8 ? 0xc : 8;
    return source | result;
  }
  // Bit of the source's (result's) register at which the elements begin.
  constexpr u32 source_at(u8 op_sel) const {
    return !selects_source() ? 0 : source_total() * (op_sel & (source_total() == 8 ? 3u : 1u));
  }
  constexpr u32 result_at(u8 op_sel) const {
    return !keeps_rest() ? 0 : result_total() * (op_sel >> (result_total() == 8 ? 2 : 3) & 3u);
  }
};

inline constexpr int kMaxScaledDwords = 32;  // of a result

// An element of `bits` bits of one lane; `at` counts bits over the registers.
inline u32 element(const Reg* registers, int lane, u32 at, u32 bits) {
  const Reg* first = registers + at / 32;
  const u32 shift = at % 32;
  u64 word = first->lane[lane];
  if (shift + bits > 32) word |= u64{first[1].lane[lane]} << 32;
  return static_cast<u32>(word >> shift & ((u64{1} << bits) - 1));
}
inline void put_element(u32* words, u32 at, u32 bits, u32 value) {
  u32* first = words + at / 32;
  const u32 shift = at % 32;
  const u64 field = ((u64{1} << bits) - 1) << shift, placed = u64{value} << shift;
  *first = (*first & ~static_cast<u32>(field)) | static_cast<u32>(placed);
  if (shift + bits > 32)
    first[1] = (first[1] & ~static_cast<u32>(field >> 32)) | static_cast<u32>(placed >> 32);
}

}  // namespace vdev
