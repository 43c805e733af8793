// Two float32 sums over the kLanes lanes of a row at once, the same order every time.
#pragma once
#include "isa/wait.h"
#include "norm/over_lanes.h"

template <int kLanes>
class PairOverRow {
 public:
  static constexpr int kWaves = kLanes > kWaveLanes ? kLanes / kWaveLanes : 1;
  static constexpr int kPairs = 2 * kWaves;  // of LDS: a wave may be a row ahead of the others

  __device__ __forceinline__ explicit PairOverRow(Local<f32x2>* of_waves) : of_waves_(of_waves) {}
  __device__ __forceinline__ f32x2 operator()(f32x2 of_lane) {
    const f32x2 sums = {sum_over_lanes<kLanes>(of_lane[0]), sum_over_lanes<kLanes>(of_lane[1])};
    if constexpr (kWaves == 1) return sums;
    of_waves_[turn_ + Lane::wave()] = sums;
    s_barrier();
    f32x2 all = of_waves_[turn_];
    for (int i = 1; i < kWaves; ++i) all += of_waves_[turn_ + i];
    turn_ = kWaves - turn_;
    return all;
  }

 private:
  Local<f32x2>* of_waves_;
  int turn_ = 0;
};
