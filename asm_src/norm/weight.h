// Weights of columns next to each other: of the type of x they are a Chunk, or float32.
#pragma once
#include "norm/chunk.h"

template <int kWidth>
struct Float32Chunk {
  static constexpr int kBytes = 4;                         // of a column
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
    const auto& loaded = bits[2 * i / kAtOnce];
    return {__builtin_bit_cast(float, uint32_t(loaded[2 * i % kAtOnce])),
            __builtin_bit_cast(float, uint32_t(loaded[(2 * i + 1) % kAtOnce]))};
  }
};
