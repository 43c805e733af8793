// Logarithms, probabilities and noise of a row's logits.
#pragma once
#include "sample/philox.h"
#include "sample/row.h"

// -log2 of a number from 0 to 1 that a word stands for, also where that is nearly 1.
__device__ __forceinline__ float exponential(uint32_t word) {
  constexpr float kLog2E = 1.44269504f;
  const float rest = (float(word) + 0.5f) * 0x1p-32f;  // 1 less it
  if (rest < 0x1p-8f) return kLog2E * rest * (1 + rest * (0.5f + rest * 0.33333334f));
  return -__builtin_amdgcn_logf(__builtin_fmaxf(1 - rest, 0x1p-33f));  // the last words are 1
}

// Gumbel noise in base 2, between -5.1 and 32.5.
struct Noise {
  u32x2 key, offset;

  __device__ __forceinline__ Noise(uint64_t seed, uint64_t offset)
      : key{uint32_t(seed), uint32_t(seed >> 32)},
        offset{uint32_t(offset), uint32_t(offset >> 32)} {}
  // Of columns 4 * block and the three behind it.
  __device__ __forceinline__ u32x4 words(int block) const {
    return philox(u32x4{uint32_t(block), 0, offset[0], offset[1]}, key);
  }
  static __device__ __forceinline__ float of(uint32_t word) {
    return -__builtin_amdgcn_logf(exponential(word));
  }
};

struct Weights {
  float most, scale;
  static constexpr float kOne = 1 << 20;  // of a probability: its square is 2^40

  __device__ __forceinline__ float log_of(float x) const { return (x - most) * scale; }
  // In units of 2^-40.
  __device__ __forceinline__ uint64_t part(float x) const {
    const float p = __builtin_amdgcn_exp2f(log_of(x)) * kOne;
    const uint32_t whole = p;
    return uint64_t(whole) << 20 | uint32_t((p - whole) * kOne);
  }
  // What of `all` is to be there.
  static __device__ __forceinline__ uint64_t wanted(uint64_t all, float top_p) {
    const double share = double(all) * double(top_p);
    return share < 1 ? 1 : uint64_t(share);
  }
};
