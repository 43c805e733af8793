// Online softmax of one score row (a fragment column), in base 2.
#pragma once
#include "isa/packed.h"
#include "isa/valu.h"
#include "tile/reduce.h"

struct SoftmaxState {
  // Powers of 2 by which a row's scores may exceed its origin before results move to a new one. The
  // quotient of output and sum does not depend on the origin; V may be as large as 2^100.
  static constexpr float kHeadroom = 8;

  float max_log2 = -kInf;  // of the row when the origin was chosen; equal in its four lanes
  float origin = 0;        // max_log2, or 0 while that is -inf
  f32x2 sum = {};  // of 2^(score - origin), this lane's elements, even and odd: reduced at the end

  // The lane's own maximum. A NaN loses here, but its probability poisons the sum and so the row.
  template <int kNumFrags>
  static __device__ __forceinline__ float lane_max(const f32x4 (&scores)[kNumFrags]) {
    float most = -kInf;
    for (auto& fragment : scores)
      for (int i = 0; i < 4; ++i) most = v_max_f32(most, fragment[i]);
    return most;
  }
  __device__ __forceinline__ bool outgrown(float lane_max_log2) const {
    return lane_max_log2 > max_log2 + kHeadroom;
  }
  // The factor that brings earlier partial results to a new origin.
  __device__ __forceinline__ float rescale(float lane_max_log2) {
    const float row_max = v_max_f32(max_log2, max_over_groups(lane_max_log2));
    origin = row_max == -kInf ? 0.f : row_max;  // -inf - -inf would be NaN
    const float factor = v_exp_f32(max_log2 - origin);
    max_log2 = row_max;
    sum *= factor;
    return factor;
  }
  // scores, times scale_log2 > 0 a base-2 logarithm, become 2^(score - origin).
  template <int kNumFrags>
  __device__ __forceinline__ void exponentiate(f32x4 (&scores)[kNumFrags], float scale_log2) {
    for (auto& fragment : scores) {
      fragment.lo = v_pk_fma_f32(fragment.lo, scale_log2, -origin);
      fragment.hi = v_pk_fma_f32(fragment.hi, scale_log2, -origin);
      for (int i = 0; i < 4; ++i) fragment[i] = v_exp_f32(fragment[i]);
      sum += fragment.lo;
      sum += fragment.hi;
    }
  }
};

// What the finished row is multiplied by, and its log-sum-exp (natural log).
// A row whose scores were all -inf gives 0 and -inf, the neutral element when parts are merged.
struct SoftmaxResult {
  float inv_sum, lse;

  __device__ __forceinline__ explicit SoftmaxResult(const SoftmaxState& state) {
    constexpr float kLn2 = 0.693147180559945f;
    const float sum = sum_over_groups(state.sum[0] + state.sum[1]);
    inv_sum = sum == 0.f ? 0.f : v_rcp_f32(sum);
    lse = (state.origin + v_log_f32(sum)) * kLn2;
  }
};
