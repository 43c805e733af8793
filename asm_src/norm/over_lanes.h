// A float32 sum over the lanes of a row that are in one wave, the same order every time.
#pragma once
#include "isa/dpp.h"

template <int kLanes>
__device__ __forceinline__ float sum_over_lanes(float x) {
  static_assert(kLanes == 8 || kLanes == 16 || kLanes % kWaveLanes == 0);
  x += v_mov_b32_dpp<kQuad<1, 0, 3, 2>>(x);
  x += v_mov_b32_dpp<kQuad<2, 3, 0, 1>>(x);
  x += v_mov_b32_dpp<kRowHalfMirror>(x);
  if constexpr (kLanes >= 16) x += v_mov_b32_dpp<kRowMirror>(x);
  if constexpr (kLanes >= kWaveLanes)
    x = (v_readlane_b32(x, 0) + v_readlane_b32(x, 16)) +
        (v_readlane_b32(x, 32) + v_readlane_b32(x, 48));
  return x;
}
