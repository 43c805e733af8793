// The mean of a row, and the sum of squares of what its columns differ from it by. Sums are of
// differences from a mean that a wave has first, so that great means do not cancel: the waves of a
// row are then put together as Chan, Golub and LeVeque (1979) do.
#pragma once
#include "isa/uniform.h"
#include "isa/wait.h"
#include "norm/columns.h"
#include "norm/over_lanes.h"

// The mean is near + rest: of numbers that are near each other `x - near` is exact.
struct Moments {
  float near, rest, squares;
};

// Of rows of kSteps chunks of kWidth columns in each of kLanes lanes. kWhole: all of them are
// there.
template <int kLanes, int kWidth, int kSteps, bool kWhole>
class MomentsOfRow {
 public:
  static constexpr int kWaves = kLanes > kWaveLanes ? kLanes / kWaveLanes : 1;
  static constexpr int kStep = kLanes * kWidth;

  __device__ __forceinline__ MomentsOfRow(Local<f32x4>* of_waves, int count)
      : of_waves_(of_waves), count_(count) {}

  // Columns at the start of a chunk that another lane has as well.
  __device__ __forceinline__ int others(int s) const {
    if constexpr (kWhole) return 0;
    int count = count_;
    park(count);  // else masks of all steps would be kept, in too many SGPRs
    const int beyond = s * kStep + Lane::in_workgroup() % kLanes * kWidth + kWidth - count;
    return beyond < 0 ? 0 : beyond;
  }
  // Whether a column of a chunk is this lane's alone.
  static __device__ __forceinline__ bool is_own(int column, int others) {
    return column < kWidth && (kWhole || column >= others);
  }
  template <class Part>
  __device__ __forceinline__ Moments operator()(const Part (&x)[kSteps], bool centred,
                                                float inverse_columns) {
    float count = of_wave(), near = 0;
    if (centred) near = total(x) * (count > 0 ? 1 / count : 0);
    f32x2 sums = {}, squares = {};
#pragma clang loop unroll(full)
    for (int s = 0; s < kSteps; ++s) {
      const int shared = others(s);
      for (int i = 0; i < Part::kPairs; ++i) {
        f32x2 y = x[s].pair(i) - near;
        for (int j = 0; j < 2; ++j) y[j] = is_own(2 * i + j, shared) ? y[j] : 0;
        sums += y;
        squares = __builtin_elementwise_fma(y, y, squares);
      }
    }
    const float sum = centred ? sum_over_lanes<kLanes>(sums[0] + sums[1]) : 0;
    return over_waves({near, sum, sum_over_lanes<kLanes>(squares[0] + squares[1]), count},
                      inverse_columns);
  }

 private:
  template <class Part>
  __device__ __forceinline__ float total(const Part (&x)[kSteps]) const {
    f32x2 sums = {};
#pragma clang loop unroll(full)
    for (int s = 0; s < kSteps; ++s) {
      const int shared = others(s);
      for (int i = 0; i < Part::kPairs; ++i) {
        f32x2 y = x[s].pair(i);
        for (int j = 0; j < 2; ++j) y[j] = is_own(2 * i + j, shared) ? y[j] : 0;
        sums += y;
      }
    }
    return sum_over_lanes<kLanes>(sums[0] + sums[1]);
  }
  // Columns of the row that this wave has.
  __device__ __forceinline__ float of_wave() const {
    constexpr int kOfWave = kStep / kWaves;
    if constexpr (kWhole) return kOfWave * kSteps;
    if constexpr (kWaves == 1) return count_;
    int found = 0;
#pragma clang loop unroll(full)
    for (int s = 0; s < kSteps; ++s) {
      const int left = count_ - s * kStep - Lane::wave() * kOfWave;
      found += left < 0 ? 0 : left < kOfWave ? left : kOfWave;
    }
    return found;
  }
  // Of a wave: where its differences begin, their sum, that of their squares, how many.
  __device__ __forceinline__ Moments over_waves(f32x4 own, float inverse) const {
    if constexpr (kWaves == 1) {
      const float rest = own[1] * inverse;
      return {own[0], rest, positive(own[2] - own[1] * rest)};
    }
    of_waves_[Lane::wave()] = own;
    s_barrier();
    const float near = of_waves_[0][0];
    float rest = 0, squares = 0;
    for (int i = 0; i < kWaves; ++i) {
      const f32x4 wave = of_waves_[i];
      rest += wave[3] * (wave[0] - near) + wave[1];
    }
    rest *= inverse;
    for (int i = 0; i < kWaves; ++i) {
      const f32x4 wave = of_waves_[i];
      const float apart = wave[0] - near - rest;
      squares += wave[2] + apart * (2 * wave[1] + wave[3] * apart);
    }
    return {near, rest, positive(squares)};
  }
  // Rounding may leave less than 0; NaN stays.
  static __device__ __forceinline__ float positive(float x) { return x < 0 ? 0 : x; }

  Local<f32x4>* of_waves_;
  int count_;
};
