// Rounding of pairs of float32 to 16 bits, and what else works on the bits of numbers.
#pragma once
#include "attn/shape.h"
#include "isa/device.h"
#include "isa/valu.h"

inline constexpr uint32_t kHighHalves = 0x07060302, kLowHalves = 0x05040100;

__device__ __forceinline__ uint32_t bits(float x) { return __builtin_bit_cast(uint32_t, x); }

// Half a unit of the last place of an element, in the bits of a float32.
template <Element kTo>
inline constexpr uint32_t kHalfUnit = kTo == Element::kBf16 ? 0x8000 : 0x1000;

template <Element kTo, Rounding kHow>
__device__ __forceinline__ uint32_t round_pair(float lo, float hi) {
  if constexpr (kTo == Element::kF16) {
    if constexpr (kHow == Rounding::kTowardZero)
      return __builtin_bit_cast(uint32_t, __builtin_amdgcn_cvt_pkrtz(lo, hi));
    const _Float16 a = _Float16(lo), b = _Float16(hi);
    return uint32_t(__builtin_bit_cast(uint16_t, a)) | uint32_t(__builtin_bit_cast(uint16_t, b))
                                                           << 16;
  }
  uint32_t a = bits(lo), b = bits(hi);
  if constexpr (kHow == Rounding::kNearestEven) {
    a += 0x7fff + (a >> 16 & 1);
    b += 0x7fff + (b >> 16 & 1);
  }
  if constexpr (kHow == Rounding::kNearestAway) {
    a += kHalfUnit<kTo>;
    b += kHalfUnit<kTo>;
  }
  return v_perm_b32<kHighHalves>(b, a);
}

// The value that another lane of the wave has.
__device__ __forceinline__ float from_lane(int lane, float x) {
  return __builtin_bit_cast(float,
                            __builtin_amdgcn_ds_bpermute(4 * lane, __builtin_bit_cast(int, x)));
}
