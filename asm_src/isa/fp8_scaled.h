// Conversions of gfx950 from 8-bit floats of 4 exponent bits to 16 bits, one a wrapper; exact.
#pragma once
#include "isa/device.h"

// Bytes 0 and 1 of a register, or 2 and 3, times the power of two that the scale's exponent is.
template <bool kUpper>
__device__ __forceinline__ uint32_t v_cvt_scalef32_pk_bf16_fp8(uint32_t bytes, float scale) {
  return __builtin_bit_cast(uint32_t,
                            __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(bytes, scale, kUpper));
}
template <bool kUpper>
__device__ __forceinline__ uint32_t v_cvt_scalef32_pk_f16_fp8(uint32_t bytes, float scale) {
  return __builtin_bit_cast(uint32_t,
                            __builtin_amdgcn_cvt_scalef32_pk_f16_fp8(bytes, scale, kUpper));
}
