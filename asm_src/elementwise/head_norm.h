// RMS norm of heads before they are turned, each shared by lanes of one wave: x times weights of
// its columns over sqrt(mean of squares + eps), in float32 and not rounded in between.
#pragma once
#include "elementwise/rotary.h"
#include "isa/dpp.h"
#include "isa/valu.h"
#include "tile/reduce.h"

// Over as many lanes next to each other, a power of two; all of them have it.
__device__ __forceinline__ float sum_over_lanes(float x, int lanes) {
  if (lanes > 1) x += v_mov_b32_dpp<kQuad<1, 0, 3, 2>>(x);
  if (lanes > 2) x += v_mov_b32_dpp<kQuad<2, 3, 0, 1>>(x);
  if (lanes > 4) x += v_mov_b32_dpp<kRowHalfMirror>(x);
  if (lanes > 8) x += v_mov_b32_dpp<kRowMirror>(x);
  if (lanes > 16) x += from_lane_xor<16>(x);
  if (lanes > 32) x += from_lane_xor<32>(x);
  return x;
}

template <Element kOf, bool kFloat32, int kPairs>
class HeadNorm {
 public:
  using Pieces = Both<kOf, kFloat32, kPairs>;
  // Of the columns of both pieces the same weights, whichever the head.
  __device__ __forceinline__ void load(uint64_t weights, int one, int other) {
    const auto* from = (const Global<uint16_t>*)weights;
    weights_ = {Part<kPairs>::load(from + one), Part<kPairs>::load(from + other)};
  }

  // Of so many lanes all; one without columns counts for nothing. eps is not denormal.
  __device__ __forceinline__ void measure(const Pieces& pieces, bool has_columns, int lanes,
                                          int columns, float eps) {
    float sum = 0;
    for (int n = 0; n < Part<kPairs>::kDwords; ++n)
      sum += squares(pieces.one.bits[n]) + squares(pieces.other.bits[n]);
    sum = sum_over_lanes(has_columns ? sum : 0, lanes);
    scale_ = v_rsq_f32(__builtin_fmaf(sum, v_rcp_f32(float(columns)), eps));
  }
  // In float32.
  __device__ __forceinline__ f32x2 pair(const Part<kPairs>& part, bool is_other, int n) const {
    const Part<kPairs>& weights = is_other ? weights_.other : weights_.one;
    return wide_pair<kOf>(part.bits[n]) * scale_ * wide_pair<kOf>(weights.bits[n]);
  }
  // Of columns that are not turned, rounded.
  __device__ __forceinline__ void apply(Pieces& pieces) const {
    for (int n = 0; n < Part<kPairs>::kDwords; ++n) {
      pieces.one.bits[n] = rounded_pair<kOf, kFloat32>(pair(pieces.one, false, n));
      pieces.other.bits[n] = rounded_pair<kOf, kFloat32>(pair(pieces.other, true, n));
    }
  }

 private:
  static __device__ __forceinline__ float squares(uint32_t two) {
    const f32x2 x = wide_pair<kOf>(two);
    return __builtin_fmaf(x[0], x[0], x[1] * x[1]);
  }

  Pieces weights_;
  float scale_;
};
