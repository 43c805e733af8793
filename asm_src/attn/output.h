// What the kernels of the family write: where it goes, and the bits of rounded numbers.
#pragma once
#include "attn/work.h"
#include "isa/ordered.h"
#include "tile/round.h"

inline constexpr float kLn2 = 0.6931471805599453f, kLog2E = 1.4426950408889634f;

using Arguments = Constant<AttnFwdArgs>;

// Arguments to be read from memory once more: kept over a loop they would take more SGPRs than
// there are.
__device__ __forceinline__ Arguments* read_again(Arguments* from) {
  ordered::settle_uniform(from);
  return from;
}

// The first element of a row of O that the workgroup has.
template <class Args>
__device__ __forceinline__ Global<uint16_t>* output_row(const Args& args, const AttnWork& work,
                                                        int row) {
  return (Global<uint16_t>*)args.o + work.batch * args.o_stride_batch +
         work.head_q * args.o_stride_head + (work.q_base + row) * args.o_stride_seq + work.column;
}

// The log-sum-exp of a sequence's first row; those of the others follow.
template <class Args>
__device__ __forceinline__ Global<float>* lse_of_rows(const Args& args, const AttnWork& work) {
  return (Global<float>*)args.lse + work.batch * args.lse_stride_batch +
         work.head_q * args.lse_stride_head + work.q_base;
}

// Two numbers to 16 bits, NaNs to the bits that AITER gives them.
template <class S>
__device__ __forceinline__ uint32_t round_any_pair(float lo, float hi) {
  uint32_t pair = round_pair<S::kElement, S::kRounding>(lo, hi);
  if constexpr (S::kElement == Element::kBf16 && S::kRounding != Rounding::kTowardZero) {
    if (lo != lo) pair = (pair & 0xffff0000) | 0x7fff;
    if (hi != hi) pair = (pair & 0xffff) | 0x7fff0000;
  }
  return pair;
}

// 2^x with denormal results, which v_exp_f32 flushes.
__device__ __forceinline__ float exp2_of_any(float x) { return v_exp_f32(x + 64) * 0x1p-64f; }

// One more score of each row, whose value is 0. Its log2 is finite, so that differences are.
struct Sink {
  float natural = -kInf, log2 = -kInf;

  Sink() = default;
  __device__ __forceinline__ explicit Sink(float score) : natural(score) {
    constexpr float kMost = 0x1.fffffep127f;
    const float x = score * kLog2E;
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
