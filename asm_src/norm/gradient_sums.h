// What the gradient of a row needs of all of it: the sums of x * x and of x * dout * weight.
#pragma once
#include "norm/columns.h"
#include "norm/weight.h"

class GradientSums {
 public:
  // Of a chunk without its first `others` columns, which another lane has as well.
  template <bool kWhole, int kWidth, class Weight>
  __device__ __forceinline__ void add(const Chunk<kWidth>& x, const Chunk<kWidth>& dout,
                                      const Weight& weight, int others) {
    for (int i = 0; i < Chunk<kWidth>::kPairs; ++i) {
      const f32x2 a = x.pair(i), product = dout.pair(i) * weight.pair(i) * a;
      for (int j = 0; j < 2; ++j) {
        const bool is_own = kWhole || 2 * i + j >= others;
        squares_[j] = is_own ? __builtin_fmaf(a[j], a[j], squares_[j]) : squares_[j];
        products_[j] += is_own ? product[j] : 0;
      }
    }
  }
  __device__ __forceinline__ f32x2 of_lane() const {
    return {squares_[0] + squares_[1], products_[0] + products_[1]};
  }

 private:
  f32x2 squares_ = {}, products_ = {};
};
