// Fragment products. A step contracts 32: each lane brings one octet of A and of B.
#pragma once
#include "isa/mfma.h"
#include "tile/fragment.h"

inline constexpr int kMfmaPerMma = 2;

// acc += A * B over 32 k. The instruction's k are 4 group + j; lanes bring 8 group + j to the first
// and 8 group + 4 + j to the second. A sum may take its terms in any order if A and B agree.
__device__ __forceinline__ void mma(f32x4& acc, u32x4 a, u32x4 b) {
  const auto a_halves = __builtin_bit_cast(bf16x8, a), b_halves = __builtin_bit_cast(bf16x8, b);
  acc = v_mfma_f32_16x16x16_bf16(a_halves.lo, b_halves.lo, acc);
  acc = v_mfma_f32_16x16x16_bf16(a_halves.hi, b_halves.hi, acc);
}
