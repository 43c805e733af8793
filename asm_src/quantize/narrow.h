// Float32 to the 8-bit floats of the architecture: of 4 exponent bits or of 5.
#pragma once
#include "arch/numbers.h"
#include "isa/fp8.h"

// To the nearest, ties to even, in the lower or the upper half; the other one stays.
template <bool kUpper>
__device__ __forceinline__ uint32_t v_cvt_pk_bf8_f32(float lo, float hi, uint32_t other) {
  return __builtin_amdgcn_cvt_pk_bf8_f32(lo, hi, other, kUpper);
}

// The middle one of three; without NaN among them.
__device__ __forceinline__ float v_med3_f32(float a, float b, float c) {
  return __builtin_amdgcn_fmed3f(a, b, c);
}

struct E4m3 {
  static constexpr float kMost = kMostFp8;
  template <bool kUpper>
  static __device__ __forceinline__ uint32_t pair(float lo, float hi, uint32_t other) {
    return v_cvt_pk_fp8_f32<kUpper>(lo, hi, other);
  }
};
struct E5m2 {
  static constexpr float kMost = 57344;
  template <bool kUpper>
  static __device__ __forceinline__ uint32_t pair(float lo, float hi, uint32_t other) {
    return v_cvt_pk_bf8_f32<kUpper>(lo, hi, other);
  }
};

// Numbers beyond the greatest one become it, NaN stays.
template <class To>
__device__ __forceinline__ float within(float x) {
  const float bounded = v_med3_f32(x, -To::kMost, To::kMost);
  return x != x ? x : bounded;
}
// kBounded: some may be beyond it.
template <class To, bool kBounded>
__device__ __forceinline__ uint32_t narrow(float a, float b, float c, float d) {
  if constexpr (kBounded) {
    a = within<To>(a), b = within<To>(b);
    c = within<To>(c), d = within<To>(d);
  }
  return To::template pair<true>(c, d, To::template pair<false>(a, b, 0));
}

// What a row is divided by: its greatest magnitude becomes the greatest number. Never below the
// least normal float32, whose reciprocal is finite, so that zeros stay zeros.
template <class To>
__device__ __forceinline__ float scale_for(float greatest) {
  return __builtin_fmaxf(greatest / To::kMost, 0x1p-126f);
}
