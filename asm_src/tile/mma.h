// Matrix products by element type.
#pragma once
#include "isa/mfma.h"
#include "isa/ordered.h"
#include "tile/element.h"
#include "tile/operand.h"

// a * b^T + c, 16 x 16 x 16; the compiler keeps the distances.
template <Element kOf>
__device__ __forceinline__ f32x4 mma(bf16x4 a, bf16x4 b, f32x4 c) {
  if constexpr (kOf == Element::kBf16)
    return v_mfma_f32_16x16x16_bf16(a, b, c);
  else
    return v_mfma_f32_16x16x16_f16(__builtin_bit_cast(f16x4, a), __builtin_bit_cast(f16x4, b), c);
}

// 16 x 16 x 32: both halves.
template <Element kOf>
__device__ __forceinline__ f32x4 mma(bf16x8 a, bf16x8 b, f32x4 c) {
  c = mma<kOf>(half_of(a, 0), half_of(b, 0), c);
  return mma<kOf>(half_of(a, 1), half_of(b, 1), c);
}

// The same where they are written, d += a * b^T, by the size of d; waits and distances are the
// caller's. f32x4: 16 x 16 x 16; f32x16: 32 x 32 x 8.
namespace ordered {

#define MMA(Acc, shape, Operand)                                           \
  template <Element kOf>                                                   \
  __device__ __forceinline__ void mma(Acc& d, Operand a, Operand b) {      \
    if constexpr (kOf == Element::kBf16)                                   \
      v_mfma_f32_##shape##_bf16(d, a, b);                                  \
    else                                                                   \
      v_mfma_f32_##shape##_f16(d, a, b);                                   \
  }                                                                        \
  /* d = a * b^T */                                                        \
  template <Element kOf>                                                   \
  __device__ __forceinline__ void mma_zero(Acc& d, Operand a, Operand b) { \
    if constexpr (kOf == Element::kBf16)                                   \
      v_mfma_f32_##shape##_bf16_zero(d, a, b);                             \
    else                                                                   \
      v_mfma_f32_##shape##_f16_zero(d, a, b);                              \
  }                                                                        \
  /* b in accumulation registers from kB on. */                            \
  template <Element kOf, int kB>                                           \
  __device__ __forceinline__ void mma_acc(Acc& d, Operand a) {             \
    if constexpr (kOf == Element::kBf16)                                   \
      v_mfma_f32_##shape##_bf16_acc<kB>(d, a);                             \
    else                                                                   \
      v_mfma_f32_##shape##_f16_acc<kB>(d, a);                              \
  }                                                                        \
  template <Element kOf, int kB>                                           \
  __device__ __forceinline__ void mma_acc_zero(Acc& d, Operand a) {        \
    if constexpr (kOf == Element::kBf16)                                   \
      v_mfma_f32_##shape##_bf16_acc_zero<kB>(d, a);                        \
    else                                                                   \
      v_mfma_f32_##shape##_f16_acc_zero<kB>(d, a);                         \
  }
MMA(f32x4, 16x16x16, bf16x4)
MMA(f32x16, 32x32x8, bf16x4)
MMA(f32x4, 16x16x32, bf16x8)
MMA(f32x16, 32x32x16, bf16x8)
#undef MMA

// d, of kTile rows and columns, from a[kD] on.
#define MMA_INTO_ACC(kRows, shape, Operand)                            \
  template <Element kOf, int kTile, int kD>                            \
    requires(kTile == kRows)                                           \
  __device__ __forceinline__ void mma_into_acc(Operand a, Operand b) { \
    if constexpr (kOf == Element::kBf16)                               \
      v_mfma_f32_##shape##_bf16_into_acc<kD>(a, b);                    \
    else                                                               \
      v_mfma_f32_##shape##_f16_into_acc<kD>(a, b);                     \
  }
MMA_INTO_ACC(16, 16x16x16, bf16x4)
MMA_INTO_ACC(32, 32x32x8, bf16x4)
MMA_INTO_ACC(16, 16x16x32, bf16x8)
MMA_INTO_ACC(32, 32x32x16, bf16x8)
#undef MMA_INTO_ACC

}  // namespace ordered
