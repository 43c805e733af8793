// An attention sink: one more score of each row, whose value is 0.
#pragma once
#include "attn/work.h"
#include "isa/valu.h"

inline constexpr float kLn2 = 0.6931471805599453f, kLog2E = 1.4426950408889634f;

// 2^x with denormal results, which v_exp_f32 flushes.
__device__ __forceinline__ float exp2_of_any(float x) {
  return x < -64 ? v_exp_f32(x + 64) * 0x1p-64f : v_exp_f32(x);
}

struct Sink {
  float natural = -kInf, log2 = -kInf;

  Sink() = default;
  // Of a head; -inf without sinks. The log2 of others is finite, so that differences are.
  __device__ __forceinline__ Sink(uint64_t sinks, uint32_t head) {
    if (sinks == 0) return;
    natural = ((const Global<float>*)sinks)[head];
    constexpr float kMost = 0x1.fffffep127f;
    const float x = natural * kLog2E;
    log2 = x > kMost ? kMost : x < -kMost ? -kMost : x;
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
