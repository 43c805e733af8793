// Where the columns of a lane are: in chunks, of which lanes next to each other have one each in
// every step. The last chunk of a row is moved back to end with it: what other lanes then have as
// well counts twice in a maximum, which is no other then, and is written once.
#pragma once
#include "quantize/chunk.h"
#include "quantize/narrow.h"
#include "quantize/store.h"

// kWhole: every lane has a chunk of its own in every step.
template <class Chunk, int kWidth, int kLanes, int kSteps, bool kWhole>
class Columns {
 public:
  static constexpr int kStep = kLanes * kWidth, kColumns = kStep * kSteps;

  Columns() = default;
  __device__ __forceinline__ Columns(int lane, int first, int count)
      : lane_(lane * kWidth), first_(first), count_(count) {}

  // On to those behind, if there are any.
  __device__ __forceinline__ bool next() {
    first_ += kColumns;
    return first_ < count_;
  }
  __device__ __forceinline__ void restart() { first_ = 0; }

  __device__ __forceinline__ void load(const Global<uint8_t>* row) {
    for (int s = 0; s < kSteps; ++s) x_[s] = Chunk::load(row + at(s) * Chunk::kBytes);
  }
  __device__ __forceinline__ float greatest(float of_others) const {
    for (int s = 0; s < kSteps; ++s) of_others = x_[s].greatest(of_others);
    return of_others;
  }
  // kBounded: a number may be beyond the greatest one.
  template <class To, bool kBounded>
  __device__ __forceinline__ void store(Global<uint8_t>* row, float inverse) const {
    for (int s = 0; s < kSteps; ++s) {
      const int left = count_ - own(s);
      if (!kWhole && left <= 0) continue;
      uint64_t bits = 0;
      if constexpr (kWidth == 1) {
        bits = narrow<To, kBounded>(x_[s][0] * inverse, 0, 0, 0);
      } else {
        for (int i = 0; i < kWidth; i += 4)
          bits |= uint64_t(narrow<To, kBounded>(x_[s][i] * inverse, x_[s][i + 1] * inverse,
                                                x_[s][i + 2] * inverse, x_[s][i + 3] * inverse))
                  << 8 * i;
      }
      Global<uint8_t>* to = row + at(s);
      if (kWhole || left >= kWidth)
        store_all<kWidth>(to, bits);
      else
        store_last<kWidth>(left, to, bits);
    }
  }

 private:
  __device__ __forceinline__ int own(int s) const { return first_ + s * kStep + lane_; }
  __device__ __forceinline__ uint32_t at(int s) const {
    const int here = own(s), last = count_ - kWidth;
    return kWhole || here < last ? here : last;
  }
  int lane_, first_, count_;
  Chunk x_[kSteps];
};
