// Two float32 sums over the kLanes lanes of a row at once, the same order every time.
#pragma once
#include "isa/dpp.h"
#include "isa/wait.h"

template <int kLanes>
class PairOverRow {
 public:
  static constexpr int kWaves = kLanes > kWaveLanes ? kLanes / kWaveLanes : 1;
  static constexpr int kPairs = 2 * kWaves;  // of LDS: a wave may be a row ahead of the others
  static_assert(kLanes == 8 || kLanes == 16 || kLanes % kWaveLanes == 0);

  __device__ __forceinline__ explicit PairOverRow(Local<f32x2>* of_waves) : of_waves_(of_waves) {}
  __device__ __forceinline__ f32x2 operator()(f32x2 of_lane) {
    const f32x2 sums = {over_wave(of_lane[0]), over_wave(of_lane[1])};
    if constexpr (kWaves == 1) return sums;
    of_waves_[turn_ + Lane::wave()] = sums;
    s_barrier();
    f32x2 all = of_waves_[turn_];
    for (int i = 1; i < kWaves; ++i) all += of_waves_[turn_ + i];
    turn_ = kWaves - turn_;
    return all;
  }

 private:
  static __device__ __forceinline__ float over_wave(float x) {
    x += v_mov_b32_dpp<kQuad<1, 0, 3, 2>>(x);
    x += v_mov_b32_dpp<kQuad<2, 3, 0, 1>>(x);
    x += v_mov_b32_dpp<kRowHalfMirror>(x);
    if constexpr (kLanes >= 16) x += v_mov_b32_dpp<kRowMirror>(x);
    if constexpr (kLanes >= kWaveLanes)
      x = (v_readlane_b32(x, 0) + v_readlane_b32(x, 16)) +
          (v_readlane_b32(x, 32) + v_readlane_b32(x, 48));
    return x;
  }
  Local<f32x2>* of_waves_;
  int turn_ = 0;
};
