// An attention sink: one more score of each row, whose value is 0.
#pragma once
#include "attn/work.h"
#include "merge/logarithm.h"

inline constexpr float kGreatestFloat = 3.4028234663852886e38f;

// 2^x with denormal results, which v_exp_f32 flushes.
__device__ __forceinline__ float exp2_of_any(float x) {
  return x < -64 ? v_exp_f32(x + 64) * 0x1p-64f : v_exp_f32(x);
}

// The log-sum-exp, natural, of a row whose sum is relative to a reference, which is in log2 units
// and `rest` greater than that. To the last digit; log2_rest: see args/attn_fwd.h.
__device__ __forceinline__ Log log_sum_exp_of(float reference, float rest, float sum,
                                              float log2_rest) {
  const Log2 log2{reference, rest + reference * log2_rest};
  return sum == 0 ? Log{-kInf, 0} : log2.natural(sum);
}
__device__ __forceinline__ float natural_log_sum_exp(float reference, float rest, float sum,
                                                     float log2_rest) {
  return log_sum_exp_of(reference, rest, sum, log2_rest).rounded();
}

struct Sink {
  // In log2 units of the kernel as two numbers: it is `rest` more than log2.
  float natural = -kInf, log2 = -kInf, rest = 0;

  Sink() = default;  // none
  __device__ __forceinline__ Sink(float of_head, float log2_rest) : natural(of_head) {
    log2 = natural * kLog2E;
    // A finite one stays finite, or its difference to itself would be NaN.
    if (__builtin_fabsf(natural) <= kGreatestFloat)
      log2 = __builtin_amdgcn_fmed3f(log2, -kGreatestFloat, kGreatestFloat);
    if (__builtin_fabsf(natural) < kFar)
      rest = __builtin_fmaf(natural, kLog2E, -log2) +
             __builtin_fmaf(natural, kLog2ERest, -log2 * log2_rest);
  }
  static constexpr float kFar = 0x1p64f;  // beyond it no key is near enough
  // The reference (log2) and the sum of a row with it. Returns what the row's O, as it is without a
  // sink, is to be multiplied by over its sum: as two factors, since of a sink far above the keys
  // their product may be flushed to 0 while that with V counts.
  struct Factors {
    float root, rest;
  };
  __device__ __forceinline__ Factors join(float& reference, float& sum) const {
    const bool is_above = !(reference > log2);
    const float with = is_above ? log2 : reference, fresh = with == -kInf ? 0 : with;
    const float root = v_exp_f32((reference - fresh - (is_above ? rest : 0)) * 0.5f);
    const float before = sum;
    sum = sum * root * root + exp2_of_any(log2 - fresh + (is_above ? 0 : rest));
    reference = fresh;
    return {root, sum == 0 ? 0 : before * root * v_rcp_f32(sum)};
  }
  // Natural, of a row that has it.
  __device__ __forceinline__ Log log(float reference, float sum, float log2_rest) const {
    return reference == log2 && sum != 0 ? Log{natural, v_log_f32(sum) * kLn2}
                                         : log_sum_exp_of(reference, 0, sum, log2_rest);
  }
  __device__ __forceinline__ float log_sum_exp(float reference, float sum, float log2_rest) const {
    return log(reference, sum, log2_rest).rounded();
  }
};
