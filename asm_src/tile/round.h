// Two float32 to 16 bits each and into one register. In integer arithmetic where gfx942 has no
// instruction for it (bfloat16): ties, denormal results and overflow to infinity come out right.
#pragma once
#include "isa/ordered.h"
#include "isa/valu.h"
#include "tile/element.h"

inline constexpr uint32_t kHighHalfOfBoth = 0x07060302;  // for v_perm_b32: {hi[31:16], lo[31:16]}
inline constexpr uint32_t kLowHalfOfBoth = 0x05040100;   // {hi[15:0], lo[15:0]}
inline constexpr uint32_t kQuietBit = 0x00400000;

// The bfloat16 is the upper half of the result. A NaN whose payload is all ones would wrap:
// `round_bf16` keeps it; this is for what comes of arithmetic on 16-bit inputs, where none is.
template <Rounding kHow>
__device__ __forceinline__ uint32_t round_bf16_number(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  if constexpr (kHow == Rounding::kNearestEven) return bits + 0x7fff + ((bits >> 16) & 1);
  if constexpr (kHow == Rounding::kNearestAway) return bits + 0x8000;
  return bits;
}

// The same for any x. A NaN stays one: toward zero what is left of it, else the one that AITER's
// kernels write.
template <Rounding kHow>
__device__ __forceinline__ uint32_t round_bf16(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t nan = kHow == Rounding::kTowardZero ? bits | kQuietBit : 0x7fff0000;
  const uint32_t number = round_bf16_number<kHow>(x);
  return __builtin_unpredictable(x != x) ? nan : number;  // a select, not a branch a lane
}

// lo first in memory. float16 has no rounding away from zero.
template <Element kTo, Rounding kHow>
__device__ __forceinline__ uint32_t round_numbers(float lo, float hi) {
  if constexpr (kTo == Element::kBf16)
    return v_perm_b32<kHighHalfOfBoth>(round_bf16_number<kHow>(hi), round_bf16_number<kHow>(lo));
  else {
    static_assert(kHow != Rounding::kNearestAway);
    if constexpr (kHow == Rounding::kTowardZero)
      return v_cvt_pkrtz_f16_f32(lo, hi);
    else
      return __builtin_bit_cast(uint32_t, __builtin_convertvector(f32x2{lo, hi}, f16x2));
  }
}

// The same for any numbers and NaNs.
template <Element kTo, Rounding kHow>
__device__ __forceinline__ uint32_t round_pair(float lo, float hi) {
  if constexpr (kTo == Element::kBf16)
    return v_perm_b32<kHighHalfOfBoth>(round_bf16<kHow>(hi), round_bf16<kHow>(lo));
  else
    return round_numbers<kTo, kHow>(lo, hi);
}

template <Element kTo, Rounding kHow>
__device__ __forceinline__ bf16x4 round_pairs(f32x4 x) {
  return {round_pair<kTo, kHow>(x[0], x[1]), round_pair<kTo, kHow>(x[2], x[3])};
}
template <Element kTo, Rounding kHow>
__device__ __forceinline__ bf16x4 round_numbers(f32x4 x) {
  return {round_numbers<kTo, kHow>(x[0], x[1]), round_numbers<kTo, kHow>(x[2], x[3])};
}

// In one instruction, where it is written, to nearest even.
template <Element kTo>
__device__ __forceinline__ uint32_t convert_pair(float lo, float hi) {
  if constexpr (kTo == Element::kBf16)
    return ordered::v_cvt_pk_bf16_f32(lo, hi);
  else
    return ordered::v_cvt_pk_f16_f32(lo, hi);
}

// The second element of a pair, where it is written.
template <Element kOf>
__device__ __forceinline__ float upper_of(uint32_t pair) {
  if constexpr (kOf == Element::kBf16)
    return __builtin_bit_cast(float, ordered::v_and_b32<0xffff0000>(pair));
  else
    return ordered::v_fma_mix_f32_high(pair);
}
