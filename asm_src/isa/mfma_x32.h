// Matrix instructions of gfx950 that contract 32 elements of 16 bits, one a wrapper.
#pragma once
#include "isa/device.h"

// D[16x16] = A[16x32] * B[32x16] + C, bf16 in, f32 out. Lane l holds A[l % 16][8 * (l / 16) + j],
// B[8 * (l / 16) + j][l % 16] for j = 0..7 and C, D[4 * (l / 16) + j][l % 16] for j = 0..3.
__device__ __forceinline__ f32x4 v_mfma_f32_16x16x32_bf16(bf16x8 a, bf16x8 b, f32x4 c) {
  using Builtin = __bf16 __attribute__((ext_vector_type(8)));
  return __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(Builtin, a),
                                                 __builtin_bit_cast(Builtin, b), c, 0, 0, 0);
}

// The same for f16.
__device__ __forceinline__ f32x4 v_mfma_f32_16x16x32_f16(bf16x8 a, bf16x8 b, f32x4 c) {
  using Builtin = _Float16 __attribute__((ext_vector_type(8)));
  return __builtin_amdgcn_mfma_f32_16x16x32_f16(__builtin_bit_cast(Builtin, a),
                                                __builtin_bit_cast(Builtin, b), c, 0, 0, 0);
}
