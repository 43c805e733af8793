// Matrix instructions, one a wrapper, named by the assembler's mnemonic.
#pragma once
#include "isa/device.h"

// D[16x16] = A[16x16] * B[16x16] + C, bf16 in, f32 out. Lane l holds A[l % 16][4 * (l / 16) + j],
// B[4 * (l / 16) + j][l % 16] and C, D[4 * (l / 16) + j][l % 16] for j = 0..3. EXEC is ignored.
__device__ __forceinline__ f32x4 v_mfma_f32_16x16x16_bf16(bf16x4 a, bf16x4 b, f32x4 c) {
  using Builtin = int16_t __attribute__((ext_vector_type(4)));
  return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(Builtin, a),
                                                   __builtin_bit_cast(Builtin, b), c, 0, 0, 0);
}

// The same for f16.
__device__ __forceinline__ f32x4 v_mfma_f32_16x16x16_f16(f16x4 a, f16x4 b, f32x4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0);
}

// D[16x16] = A[16x4] * B[4x16] + C, all f32. Lane l holds A[l % 16][l / 16], B[l / 16][l % 16] and
// C, D as above.
__device__ __forceinline__ f32x4 v_mfma_f32_16x16x4_f32(float a, float b, f32x4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x4f32(a, b, c, 0, 0, 0);
}

// Sixteen products of 4x4 by 4x4, f32 out. Block l / 4 of lane l: it holds A[l % 4][j], B[j][l % 4]
// and C, D[j][l % 4] for j = 0..3.
__device__ __forceinline__ f32x4 v_mfma_f32_4x4x4_16b_bf16(bf16x4 a, bf16x4 b, f32x4 c) {
  using Builtin = int16_t __attribute__((ext_vector_type(4)));
  return __builtin_amdgcn_mfma_f32_4x4x4bf16_1k(__builtin_bit_cast(Builtin, a),
                                                __builtin_bit_cast(Builtin, b), c, 0, 0, 0);
}
__device__ __forceinline__ f32x4 v_mfma_f32_4x4x4_16b_f16(f16x4 a, f16x4 b, f32x4 c) {
  return __builtin_amdgcn_mfma_f32_4x4x4f16(a, b, c, 0, 0, 0);
}
