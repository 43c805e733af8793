// Elements of a row as a cache holds them: as they are, or divided by the cache's scale and rounded
// to 8 bits.
#pragma once
#include "arch/numbers.h"
#include "decode/rotary.h"
#include "isa/fp8.h"

// Numbers beyond the greatest one become it, NaN stays.
__device__ __forceinline__ float within_fp8(float x) {
  const float bounded = __builtin_fminf(v_max_f32(x, -kMostFp8), kMostFp8);
  return x != x ? x : bounded;
}
__device__ __forceinline__ uint32_t fp8_of(float a, float b, float c, float d) {
  const uint32_t lower = v_cvt_pk_fp8_f32<false>(within_fp8(a), within_fp8(b), 0);
  return v_cvt_pk_fp8_f32<true>(within_fp8(c), within_fp8(d), lower);
}

// Four elements of 16 bits.
template <Element kOf>
__device__ __forceinline__ uint32_t fp8_of(bf16x4 x, float inverse_scale) {
  float each[4];
  for (int i = 0; i < 4; ++i)
    each[i] = float_of<kOf>(x[i / 2] >> 16 * (i % 2) & 0xffff) * inverse_scale;
  return fp8_of(each[0], each[1], each[2], each[3]);
}
