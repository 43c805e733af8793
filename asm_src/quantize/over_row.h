// The maximum over the kLanes lanes of a row, and over a wave.
#pragma once
#include "isa/dpp.h"
#include "isa/valu.h"
#include "isa/wait.h"

template <int kLanes>
__device__ __forceinline__ float max_over_lanes(float x) {
  static_assert(kLanes == 8 || kLanes == 16 || kLanes == kWaveLanes);
  x = v_max_f32(x, v_mov_b32_dpp<kQuad<1, 0, 3, 2>>(x));
  x = v_max_f32(x, v_mov_b32_dpp<kQuad<2, 3, 0, 1>>(x));
  x = v_max_f32(x, v_mov_b32_dpp<kRowHalfMirror>(x));
  if constexpr (kLanes >= 16) x = v_max_f32(x, v_mov_b32_dpp<kRowMirror>(x));
  if constexpr (kLanes == kWaveLanes)
    x = v_max_f32(v_max_f32(v_readlane_b32(x, 0), v_readlane_b32(x, 16)),
                  v_max_f32(v_readlane_b32(x, 32), v_readlane_b32(x, 48)));
  return x;
}

// Once in a kernel: nothing waits until all have read `of_waves`.
template <int kLanes>
__device__ __forceinline__ float max_over_row(float x, Local<float>* of_waves) {
  if constexpr (kLanes <= kWaveLanes) return max_over_lanes<kLanes>(x);
  of_waves[Lane::wave()] = max_over_lanes<kWaveLanes>(x);
  s_barrier();
  float all = of_waves[0];
  for (int i = 1; i < kLanes / kWaveLanes; ++i) all = v_max_f32(all, of_waves[i]);
  return all;
}
