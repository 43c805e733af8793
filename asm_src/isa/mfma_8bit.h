// Matrix instructions of 8-bit floats, 16 rows and 32 elements of k, one a wrapper. "fp8" has four
// bits of exponent, "bf8" five. Lane l holds A[l % 16][8 * (l / 16) + j], B[8 * (l / 16) + j][l %
// 16] for j = 0..7 and C, D[4 * (l / 16) + j][l % 16] for j = 0..3.
#pragma once
#include "isa/device.h"

// D = A * B + C; the compiler keeps the distances.
#define MFMA(of_a, of_b)                                                                       \
  __device__ __forceinline__ f32x4 v_mfma_f32_16x16x32_##of_a##_##of_b(bf16x4 a, bf16x4 b,     \
                                                                       f32x4 c) {              \
    return __builtin_amdgcn_mfma_f32_16x16x32_##of_a##_##of_b(                                 \
        __builtin_bit_cast(int64_t, a), __builtin_bit_cast(int64_t, b), c, 0, 0, 0);           \
  }                                                                                            \
  namespace ordered { /* a[kD : kD + 3] += A * B, where it is written, as in isa/ordered.h. */ \
  template <int kD>                                                                            \
  __device__ __forceinline__ void v_mfma_f32_16x16x32_##of_a##_##of_b##_into_acc(bf16x4 a,     \
                                                                                 bf16x4 b) {   \
    asm volatile("v_mfma_f32_16x16x32_" #of_a "_" #of_b                                        \
                 " a[%c2:%c3], %0, %1, a[%c2:%c3]" ::"v"(a),                                   \
                 "v"(b), "n"(kD), "n"(kD + 3));                                                \
  }                                                                                            \
  }
MFMA(fp8, fp8)
MFMA(fp8, bf8)
MFMA(bf8, fp8)
MFMA(bf8, bf8)
#undef MFMA
