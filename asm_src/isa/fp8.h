// Conversions between float32 and 8-bit floats of 4 exponent bits: FNUZ on gfx942, OCP on gfx950.
#pragma once
#include "isa/device.h"

// Bytes 0 and 1 of a register, or 2 and 3; exact.
template <bool kUpper>
__device__ __forceinline__ f32x2 v_cvt_pk_f32_fp8(uint32_t bytes) {
  return __builtin_amdgcn_cvt_pk_f32_fp8(bytes, kUpper);
}

// To the nearest, ties to even, in the lower or the upper half; the other one stays. What is beyond
// the greatest number becomes NaN.
template <bool kUpper>
__device__ __forceinline__ uint32_t v_cvt_pk_fp8_f32(float lo, float hi, uint32_t other) {
  return __builtin_amdgcn_cvt_pk_fp8_f32(lo, hi, other, kUpper);
}
