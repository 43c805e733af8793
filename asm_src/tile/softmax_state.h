// Online softmax of one score row (a fragment column), in base 2.
#pragma once
#include "isa/valu.h"
#include "tile/reduce.h"

struct SoftmaxState {
  float max_log2 = -kInf;  // of the row so far; equal in the four lanes of the row
  float sum = 0;           // of 2^(score - max_log2), this lane's elements only: reduced at the end

  // scores (times softmax_scale * log2(e)) become probabilities relative to the new maximum; the
  // result is the factor that brings earlier partial results to it.
  template <int kNumFrags>
  __device__ __forceinline__ float update(f32x4 (&scores)[kNumFrags]) {
    float row_max = max_log2;
    for (auto& fragment : scores)
      for (int i = 0; i < 4; ++i) row_max = v_max_f32(row_max, fragment[i]);
    row_max = max_over_groups(row_max);

    // -inf - -inf is NaN: a row with no finite score yet is measured from 0 instead. A NaN score
    // loses in v_max_f32 but gives a NaN probability, which poisons sum and through it the row.
    const float origin = row_max == -kInf ? 0.f : row_max;
    const float rescale = v_exp_f32(max_log2 - origin);
    max_log2 = row_max;

    sum *= rescale;
    for (auto& fragment : scores)
      for (int i = 0; i < 4; ++i) {
        fragment[i] = v_exp_f32(fragment[i] - origin);
        sum += fragment[i];
      }
    return rescale;
  }
};

// What the finished row is multiplied by, and its log-sum-exp (natural log).
// A row whose scores were all -inf gives 0 and -inf, the neutral element when parts are merged.
struct SoftmaxResult {
  float inv_sum, lse;

  __device__ __forceinline__ explicit SoftmaxResult(const SoftmaxState& state) {
    constexpr float kLn2 = 0.693147180559945f;
    const float sum = sum_over_groups(state.sum);
    inv_sum = sum == 0.f ? 0.f : v_rcp_f32(sum);
    lse = (state.max_log2 + v_log_f32(sum)) * kLn2;
  }
};
