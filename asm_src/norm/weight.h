// Weights of columns next to each other that are float32, and stay so. Those of x's type are a
// Chunk.
#pragma once
#include "norm/chunk.h"

template <int kWidth>
struct Float32Chunk {
  static constexpr int kBytes = 4;  // of a column
  static constexpr int kAtOnce = kWidth < 4 ? kWidth : 4;  // of a load
  DwordsAnywhere<kAtOnce> bits[kWidth / kAtOnce];

  static __device__ __forceinline__ Float32Chunk load(const Global<uint16_t>* from) {
    Float32Chunk chunk;
    for (int i = 0; i < kWidth / kAtOnce; ++i)
      chunk.bits[i] = global_load_anywhere<kAtOnce>(from + 2 * i * kAtOnce);
    return chunk;
  }
  __device__ __forceinline__ f32x2 pair(int i) const {
    if constexpr (kWidth == 1) return {__builtin_bit_cast(float, uint32_t(bits[0][0])), 0};
    const auto& four = bits[2 * i / kAtOnce];
    return {__builtin_bit_cast(float, uint32_t(four[2 * i % kAtOnce])),
            __builtin_bit_cast(float, uint32_t(four[(2 * i + 1) % kAtOnce]))};
  }
};

// Calls one.run<kWhole, Weight>(): rows of kColumns, or shorter ones; weights of x's type, or of
// float32, where the inverse of the columns is negative. Whole rows and weights of x's type take
// one branch.
template <int kColumns, int kWidth, class Kernel>
__device__ __forceinline__ void dispatch(float inverse_columns, const Kernel& one) {
  constexpr uint32_t kSign = 1u << 31, kWhole = __builtin_bit_cast(uint32_t, 1.0f / kColumns);
  const uint32_t inverse = __builtin_bit_cast(uint32_t, inverse_columns);
  if (__builtin_expect(inverse == kWhole, true))
    one.template run<true, Chunk<kWidth>>();
  else if (__builtin_expect(!(inverse & kSign), true))
    one.template run<false, Chunk<kWidth>>();
  else if (inverse == (kWhole | kSign))
    one.template run<true, Float32Chunk<kWidth>>();
  else
    one.template run<false, Float32Chunk<kWidth>>();
}
