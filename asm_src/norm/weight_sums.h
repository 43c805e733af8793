// Gradients of weights: of the columns of a lane, over the rows that it has, in float32.
#pragma once
#include "isa/wait.h"
#include "norm/columns.h"

// Columns as `Columns` deals them from `first` on: kRows rows of kLanes lanes at once, kSteps
// chunks of a lane.
template <int kLanes, int kRows, int kWidth, int kSteps>
class WeightSums {
 public:
  static constexpr int kColumns = kLanes * kWidth * kSteps;
  static constexpr int kFloats = kRows > 1 ? kRows * kColumns : 1;  // of LDS

  __device__ __forceinline__ WeightSums(int first, int columns)
      : place_(first + Lane::in_workgroup() % kLanes * kWidth), columns_(columns) {}

  __device__ __forceinline__ void add(int s, int i, f32x2 pair) { sums_[s][i] += pair; }

  // To `to`, a float32 for a column; of several rows at once over all of them in their order.
  __device__ __forceinline__ void store(Global<float>* to, Local<float>* shared) const {
    if constexpr (kRows == 1) {
      each([&](int column, float sum) { to[column] = sum; });
    } else {
      auto* own = shared + Lane::in_workgroup() / kLanes * kColumns;
      each([&](int column, float sum) { own[column] = sum; });
      s_barrier();
      for (int column = Lane::in_workgroup(); column < columns_; column += kLanes * kRows) {
        float sum = shared[column];
        for (int r = 1; r < kRows; ++r) sum += shared[r * kColumns + column];
        to[column] = sum;
      }
    }
  }

 private:
  // What is this lane's alone: the last chunk is moved back, over what another lane has as well.
  template <class F>
  __device__ __forceinline__ void each(const F& put) const {
    for (int s = 0; s < kSteps; ++s) {
      const int at = place_ + s * kLanes * kWidth, last = columns_ - kWidth;
      for (int i = 0; i < kWidth; ++i)
        if (i >= at - last) put((at < last ? at : last) + i, sums_[s][i / 2][i % 2]);
    }
  }
  int place_, columns_;
  f32x2 sums_[kSteps][(kWidth + 1) / 2] = {};
};
