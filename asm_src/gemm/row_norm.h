// Products of normalised rows of A: sums are multiplied by 1 / sqrt(mean(a^2) + eps) of their row,
// which A itself is not. The squares come from the matrix unit: each fragment of A is multiplied by
// itself, and the sums of squares of its rows are on the diagonal.
#pragma once
#include "gemm/epilogue.h"
#include "isa/valu.h"

template <class S>
struct RowNorm : Bias<S> {
  static_assert(S::kTile == kMatrix && S::kWavesK == 1, "a wave has whole rows");
  float factor[S::kTilesM];

  // Of m = lane % 16: its element of the diagonal is register m % 4 of lane 16 * (m / 4) + m.
  template <class Loop>
  __device__ __forceinline__ void square(const Loop& loop, const GemmArgs& args, int lane) {
    keep(loop.a);
    keep(loop.b);
    const int m = lane % kMatrix;
    unroll<S::kTilesM>([&]<int t>() {
      const f32x4 products = loop.template fragment<S::kFragments + t>();
      const float low = m % 2 ? products[1] : products[0];
      const float high = m % 2 ? products[3] : products[2];
      const float squares = from_lane(m % 4 < 2 ? low : high, m / 4 * kMatrix + m);
      factor[t] = v_rsq_f32(squares * args.inverse_k + args.rms_eps);
    });
  }
  // Behind a wait for all loads, those of steps behind the last one among them: before it no
  // register of theirs is anything else's.
  template <int kSlots, int kTiles>
  static __device__ __forceinline__ void keep(const bf16x8 (&loaded)[kSlots][kTiles][S::kParts]) {
    for (const auto& tiles : loaded)
      for (const auto& parts : tiles)
        for (const bf16x8& part : parts) ordered::keep(part);
  }
  __device__ __forceinline__ f32x4 applied(f32x4 sum, float alpha, int o, int f, int lane) const {
    return Bias<S>::applied(sum * factor[f / S::kTilesN], alpha, o, f, lane);
  }
};
