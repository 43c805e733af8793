// Float32 to 16 bits in every rounding mode, whatever the number: ties, denormals, infinities,
// NaNs.
#pragma once
#include "attn/shape.h"
#include "isa/valu.h"

// A bf16 in the high half of the result; what is below it is to be dropped. Of anything but a NaN.
template <Rounding kRounding>
__device__ __forceinline__ uint32_t to_bf16_high_number(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  if constexpr (kRounding == Rounding::kNearestEven) return bits + 0x7fff + (bits >> 16 & 1);
  return kRounding == Rounding::kNearestAway ? bits + 0x8000 : bits;
}

// The same of anything. NaNs become those that AITER's kernels write: toward zero what is left of
// them, else all ones.
template <Rounding kRounding>
__device__ __forceinline__ uint32_t to_bf16_high(float x) {
  const uint32_t rounded = to_bf16_high_number<kRounding>(x);
  if constexpr (kRounding == Rounding::kTowardZero) return rounded;
  return __builtin_unpredictable(x != x) ? 0x7fff0000 : rounded;
}

// Two as one dword, lo first in memory.
template <Element kElement, Rounding kRounding>
__device__ __forceinline__ uint32_t round_pair(float lo, float hi) {
  if constexpr (kElement == Element::kBf16)
    return v_perm_b32<0x07060302>(to_bf16_high<kRounding>(hi), to_bf16_high<kRounding>(lo));
  static_assert(kElement == Element::kBf16 || kRounding == Rounding::kNearestEven);
  const _Float16 a = _Float16(lo), b = _Float16(hi);
  return uint32_t(__builtin_bit_cast(uint16_t, b)) << 16 | __builtin_bit_cast(uint16_t, a);
}
