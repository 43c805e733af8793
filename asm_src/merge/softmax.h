// Weights of the parts of a row: exp(lse - log(sum over parts of exp(lse))).
#pragma once
#include "merge/logarithm.h"

// The greatest lse of the parts up to here, and the sum of their exponentials relative to it, times
// 2^kDepth: the instruction flushes what a weight, which its product with o makes count, need not.
class Softmax {
 public:
  template <int kParts>
  __device__ __forceinline__ void add(const float (&lse)[kParts]) {
    const float before = greatest_;
    for (float x : lse) greatest_ = v_max_f32(greatest_, x);
    base_ = greatest_ == -kInf ? 0 : greatest_;  // no part has keys, or NaN
    sum_ *= exponential(before) * kUnit;
    for (float x : lse) sum_ += exponential(x);
  }
  // All parts are there.
  __device__ __forceinline__ void end() { inverse_ = sum_ == 0 ? 0 : v_rcp_f32(sum_); }

  // 0 below 2^-149.
  __device__ __forceinline__ float weight(float lse) const { return exponential(lse) * inverse_; }
  __device__ __forceinline__ float lse() const {
    return greatest_ + v_log_f32(sum_ * kUnit) * kLn2;
  }
  __device__ __forceinline__ bool is_nan() const { return sum_ != sum_; }

 private:
  __device__ __forceinline__ float exponential(float lse) const {
    return v_exp_f32(__builtin_fmaf(lse - base_, kLog2E, kDepth));
  }
  static constexpr float kDepth = 24, kUnit = 0x1p-24f;
  float greatest_ = -kInf, base_ = 0, sum_ = 0, inverse_ = 0;
};
