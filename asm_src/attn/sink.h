// An attention sink: one more score of each row, whose value is 0.
#pragma once
#include "attn/work.h"
#include "isa/valu.h"

inline constexpr float kLn2 = 0.6931471805599453f, kLog2E = 1.4426950408889634f;
inline constexpr float kGreatestFloat = 3.4028234663852886e38f;

// 2^x with denormal results, which v_exp_f32 flushes.
__device__ __forceinline__ float exp2_of_any(float x) {
  return x < -64 ? v_exp_f32(x + 64) * 0x1p-64f : v_exp_f32(x);
}

struct Sink {
  float natural = -kInf, log2 = -kInf;

  Sink() = default;  // none
  __device__ __forceinline__ explicit Sink(float of_head) : natural(of_head) {
    log2 = natural * kLog2E;
    // A finite one stays finite, or its difference to itself would be NaN.
    if (__builtin_fabsf(natural) <= kGreatestFloat)
      log2 = __builtin_amdgcn_fmed3f(log2, -kGreatestFloat, kGreatestFloat);
  }
  // The reference (log2) and the sum of a row with it. Returns what the row's O is to be multiplied
  // by: 1 / sum, of the reference before.
  __device__ __forceinline__ float join(float& reference, float& sum) const {
    const float with = reference > log2 ? reference : log2, fresh = with == -kInf ? 0 : with;
    const float weight = exp2_of_any(reference - fresh);
    sum = sum * weight + exp2_of_any(log2 - fresh);
    reference = fresh;
    return sum == 0 ? 0 : weight * v_rcp_f32(sum);
  }
  // Natural, of a row that has it.
  __device__ __forceinline__ float log_sum_exp(float reference, float sum) const {
    if (sum == 0) return -kInf;
    return (reference == log2 ? natural : reference * kLn2) + v_log_f32(sum) * kLn2;
  }
};
