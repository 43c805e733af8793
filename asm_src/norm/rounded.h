// Two float32 to 16 bits, to nearest even, lo first in memory: by the instruction where there is
// one.
#pragma once
#include "arch/target.h"
#include "norm/chunk.h"

__device__ __forceinline__ uint32_t rounded(float lo, float hi) {
  if constexpr (kElement == Element::kBf16 && Here::kConvertsPairs) {
    using Pair = __bf16 __attribute__((ext_vector_type(2)));
    return __builtin_bit_cast(uint32_t, __builtin_convertvector(f32x2{lo, hi}, Pair));
  }
  return round_numbers<kElement, Rounding::kNearestEven>(lo, hi);
}

template <int kWidth>
__device__ __forceinline__ Chunk<kWidth> rounded_sum(const Chunk<kWidth>& a,
                                                     const Chunk<kWidth>& b) {
  if constexpr (kElement == Element::kF16) return a + b;
  Chunk<kWidth> sum;
  for (int i = 0; i < Chunk<kWidth>::kPairs; ++i) {
    const f32x2 pair = a.pair(i) + b.pair(i);
    sum.bits[i] = rounded(pair[0], pair[1]);
  }
  return sum;
}
