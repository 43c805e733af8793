// Parts along KV of a tile, and what they come to together: O = sum_p w_p O_p / sum_p w_p, where
// the weight w_p of a part is its sum of probabilities times 2^(its reference - the greatest
// reference). In their order, so that the result does not depend on when they were computed, nor on
// who merges them: the last one to arrive (attn/epilogue.h) or a launch of its own
// (kernels/attn_merge.hip).
#pragma once
#include "attn/sink.h"

// Of a part's row: log2 units, and relative to it. The sum of a row without keys is 0.
struct MaxSum {
  float reference, sum;
};

// The greatest reference of parts that have keys, and of the sink; the sum relative to it.
// Parts: `count`, and `of(p)`, the MaxSum of the pth one.
struct MergedSoftmax {
  float base = -kInf, rest = 0, sum = 0;  // the base is `rest` more than that
  float nan = 0;                          // the first one, which makes the row NaN

  template <class Parts>
  __device__ __forceinline__ MergedSoftmax(const Parts& parts, const Sink& sink) {
#pragma clang loop unroll(disable)
    for (int p = 0; p < parts.count; ++p) {
      const MaxSum part = parts.of(p);
      if (part.sum != part.sum && nan == nan) nan = part.sum;
      if (part.sum != 0) base = v_max_f32(base, part.reference);
    }
    base = v_max_f32(base, sink.log2);
    const bool is_sink = base == sink.log2;
    if (base == -kInf) base = 0;  // no weight, or NaN
    rest = is_sink ? sink.rest : 0;
    sum = v_exp_f32(sink.log2 - base + (is_sink ? 0 : sink.rest));
#pragma clang loop unroll(disable)
    for (int p = 0; p < parts.count; ++p) {
      const MaxSum part = parts.of(p);
      const float root = root_of(part);
      if (part.sum != 0) sum += part.sum * root * root;
    }
    if (sum != sum && nan == nan) nan = sum;  // of the sink, also where no part has keys
  }
  // Of 2^(reference - base), which v_exp_f32 would flush to 0 while its product with V counts.
  __device__ __forceinline__ float root_of(MaxSum part) const {
    return v_exp_f32((part.reference - base - rest) * 0.5f);
  }
  __device__ __forceinline__ float inverse() const { return sum == 0 ? 0 : v_rcp_f32(sum); }
  __device__ __forceinline__ Log log_sum_exp(const Sink& sink, float log2_rest) const {
    return sink.log(base, sum, log2_rest);
  }
};
