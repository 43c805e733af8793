// The sums of a row's columns and of their squares, as they are, by the matrix unit: at once, and
// right where the mean is not far from 0. Elsewhere squares cancel, which `is_near` tells.
#pragma once
#include "norm/over_lanes.h"
#include "norm/sums.h"

struct PlainSums {
  float sum, squares;

  // The sum of squares of what columns differ from their mean by: at least half of that of the
  // columns, so that at most a bit is lost, and finite.
  __device__ __forceinline__ float apart(float mean) const {
    return __builtin_fmaf(-sum, mean, squares);
  }
  __device__ __forceinline__ bool is_near(float mean) const {
    const float rest = apart(mean);
    return rest >= 0.5f * squares && rest < __builtin_inff();
  }
};

// Products of 4 elements by ones: register i of each lane of 4 has the sum of lane i's.
class SumOfColumns {
 public:
  template <int kWidth>
  __device__ __forceinline__ void add(const Chunk<kWidth>& x) {
    constexpr int kPairs = Chunk<kWidth>::kPairs;
    if constexpr (kPairs == 1) add(bf16x4{x.bits[0], 0});
    for (int i = 0; i + 1 < kPairs; i += 2) add(bf16x4{x.bits[i], x.bits[i + 1]});
  }
  __device__ __forceinline__ float of_quad() const {
    return (products_[0] + products_[1]) + (products_[2] + products_[3]);
  }

 private:
  __device__ __forceinline__ void add(bf16x4 four) {
    constexpr uint32_t kOnes = kElement == Element::kBf16 ? 0x3f803f80 : 0x3c003c00;
    const bf16x4 ones = {kOnes, kOnes};
    if constexpr (kElement == Element::kBf16)
      products_ = v_mfma_f32_4x4x4_16b_bf16(four, ones, products_);
    else
      products_ = v_mfma_f32_4x4x4_16b_f16(__builtin_bit_cast(f16x4, four),
                                           __builtin_bit_cast(f16x4, ones), products_);
  }
  f32x4 products_ = {0, 0, 0, 0};
};

// Over the lanes of a wave, which are all of one row.
__device__ __forceinline__ PlainSums over_wave(float sum, float squares) {
  sum += v_mov_b32_dpp<kRowHalfMirror>(sum);
  squares += v_mov_b32_dpp<kRowHalfMirror>(squares);
  sum += v_mov_b32_dpp<kRowMirror>(sum);
  squares += v_mov_b32_dpp<kRowMirror>(squares);
  const auto rows = [](float x) {
    return (v_readlane_b32(x, 0) + v_readlane_b32(x, 16)) +
           (v_readlane_b32(x, 32) + v_readlane_b32(x, 48));
  };
  return {rows(sum), rows(squares)};
}
