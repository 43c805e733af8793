// The sum of squares of a row.
#pragma once
#include "arch/limits.h"
#include "isa/dpp.h"
#include "isa/mfma.h"
#include "isa/wait.h"
#include "norm/columns.h"

// Products of rows of 4 elements by themselves, in the matrix unit: sums of squares lie on the
// diagonals, register i of lane i of each 4.
class SumOfSquares {
 public:
  template <int kWidth>
  __device__ __forceinline__ void add(const Chunk<kWidth>& x) {
    constexpr int kPairs = Chunk<kWidth>::kPairs;
    if constexpr (kPairs == 1) add(bf16x4{x.bits[0], 0});
    for (int i = 0; i + 1 < kPairs; i += 2) add(bf16x4{x.bits[i], x.bits[i + 1]});
  }
  __device__ __forceinline__ float of_quad() const {
    return (v_mov_b32_dpp<kQuad<0, 0, 0, 0>>(products_[0]) +
            v_mov_b32_dpp<kQuad<1, 1, 1, 1>>(products_[1])) +
           (v_mov_b32_dpp<kQuad<2, 2, 2, 2>>(products_[2]) +
            v_mov_b32_dpp<kQuad<3, 3, 3, 3>>(products_[3]));
  }

 private:
  __device__ __forceinline__ void add(bf16x4 four) {
    if constexpr (kElement == Element::kBf16)
      products_ = v_mfma_f32_4x4x4_16b_bf16(four, four, products_);
    else
      products_ = v_mfma_f32_4x4x4_16b_f16(__builtin_bit_cast(f16x4, four),
                                           __builtin_bit_cast(f16x4, four), products_);
  }
  f32x4 products_ = {0, 0, 0, 0};
};

// Sums over the kLanes lanes of a row, of which waves leave theirs in LDS.
template <int kLanes>
class OverRow {
 public:
  static constexpr int kWaves = kLanes > kWaveLanes ? kLanes / kWaveLanes : 1;
  static_assert(kLanes == 8 || kLanes == 16 || kLanes % kWaveLanes == 0);
  static_assert(kWaves <= 2 || kWaves % 4 == 0);
  static constexpr int kQuads = (kWaves + 3) / 4;  // of float32
  static_assert(sizeof(f32x4) * kQuads <= kMaxLdsBytes);

  __device__ __forceinline__ explicit OverRow(Local<f32x4>* of_waves)
      : of_waves_(of_waves), own_(kWaves == 1 ? nullptr : (Local<float>*)of_waves + Lane::wave()) {}
  // Over this wave's lanes of the row; leaves it to the others.
  __device__ __forceinline__ void begin(const SumOfSquares& squares) {
    sum_ = squares.of_quad();
    sum_ += v_mov_b32_dpp<kRowHalfMirror>(sum_);
    if constexpr (kLanes >= 16) sum_ += v_mov_b32_dpp<kRowMirror>(sum_);
    if constexpr (kLanes >= kWaveLanes)
      sum_ = (v_readlane_b32(sum_, 0) + v_readlane_b32(sum_, 16)) +
             (v_readlane_b32(sum_, 32) + v_readlane_b32(sum_, 48));
    if constexpr (kWaves > 1) *own_ = sum_;
  }
  // Over all of them.
  __device__ __forceinline__ float end() const {
    if constexpr (kWaves == 1) return sum_;
    s_barrier();
    f32x4 sums = of_waves_[0];
    if constexpr (kWaves == 2) return sums[0] + sums[1];
    for (int i = 1; i < kQuads; ++i) sums += of_waves_[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }

 private:
  Local<f32x4>* of_waves_;
  Local<float>* own_;
  float sum_;
};

// 1 / sqrt(sum / columns + eps), within 2 ULP of what float32 makes of the sum, if that is finite.
class Scale {
 public:
  // Of any sign: that of the columns' inverse says of what type the weight is.
  __device__ __forceinline__ Scale(float inverse_columns, float eps)
      : inverse_(__builtin_fabsf(inverse_columns)), eps_(eps) {}
  __device__ __forceinline__ float operator()(float sum) const {
    const float x = sum * inverse_ + eps_;
    if (__builtin_expect(eps_ >= 0x1p-126f, true)) return v_rsq_f32(x);
    const bool small = x < 0x1p-96f;  // v_rsq_f32 takes denormal numbers for 0
    return v_rsq_f32(small ? x * 0x1p96f : x) * (small ? 0x1p48f : 1.0f);
  }

 private:
  float inverse_, eps_;
};
