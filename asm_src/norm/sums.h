// The sum of squares of a row.
#pragma once
#include "arch/limits.h"
#include "isa/dpp.h"
#include "isa/mfma.h"
#include "isa/wait.h"
#include "norm/chunk.h"
#include "tile/operand.h"

// Products of rows of 4 elements by themselves, in the matrix unit: sums of squares lie on the
// diagonals, so that register i of lane i of each 4 counts.
class SumOfSquares {
 public:
  template <int kWidth>
  __device__ __forceinline__ void add(const Chunk<kWidth>& x) {
    constexpr int kPairs = Chunk<kWidth>::kPairs;
    for (int i = 0; i < kPairs; i += 2) {
      const bf16x4 four = {x.bits[i], kPairs > 1 ? x.bits[i + (kPairs > 1)] : 0};
      if constexpr (kElement == Element::kBf16)
        products_ = v_mfma_f32_4x4x4_16b_bf16(four, four, products_);
      else
        products_ = v_mfma_f32_4x4x4_16b_f16(__builtin_bit_cast(f16x4, four),
                                             __builtin_bit_cast(f16x4, four), products_);
    }
  }
  // Over the kLanes lanes of a row. Its waves leave theirs in LDS, at a place for kLanes / 64.
  template <int kLanes>
  __device__ __forceinline__ float over(Local<float>* of_waves) const {
    static_assert(kLanes == 8 || kLanes == 16 || kLanes % kWaveLanes == 0);
    float x = v_mov_b32_dpp<kQuad<0, 0, 0, 0>>(products_[0]);
    x += v_mov_b32_dpp<kQuad<1, 1, 1, 1>>(products_[1]);
    x += v_mov_b32_dpp<kQuad<2, 2, 2, 2>>(products_[2]);
    x += v_mov_b32_dpp<kQuad<3, 3, 3, 3>>(products_[3]);
    x += v_mov_b32_dpp<kRowHalfMirror>(x);
    if constexpr (kLanes >= 16) x += v_mov_b32_dpp<kRowMirror>(x);
    if constexpr (kLanes >= kWaveLanes)
      x = (v_readlane_b32(x, 0) + v_readlane_b32(x, 16)) +
          (v_readlane_b32(x, 32) + v_readlane_b32(x, 48));
    if constexpr (kLanes <= kWaveLanes) return x;
    return over_waves<kLanes / kWaveLanes>(x, of_waves);
  }

 private:
  template <int kWaves>
  static __device__ __forceinline__ float over_waves(float x, Local<float>* of_waves) {
    static_assert(kWaves <= 2 || kWaves % 4 == 0);
    static_assert(sizeof(float) * kWaves <= kMaxLdsBytes);
    of_waves[Lane::wave()] = x;
    s_barrier();
    if constexpr (kWaves == 2) return of_waves[0] + of_waves[1];
    f32x4 sums = {0, 0, 0, 0};
    for (int i = 0; i < kWaves; i += 4) sums += *(Local<f32x4>*)(of_waves + i);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
  f32x4 products_ = {0, 0, 0, 0};
};

// 1 / sqrt(x) within 1 ULP, of denormal numbers, too.
__device__ __forceinline__ float inverse_root(float x) {
  const bool small = x < 0x1p-96f;
  return v_rsq_f32(small ? x * 0x1p96f : x) * (small ? 0x1p48f : 1.0f);
}
