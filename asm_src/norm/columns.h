// Where the columns of a lane are: in chunks, of which lanes next to each other have one each in
// every step. The last chunk of a row is moved back to end with it. What other lanes then have as
// well counts once, and is written once.
#pragma once
#include "norm/chunk.h"

template <int kLanes, int kWidth>
class Columns {
 public:
  static constexpr int kStep = kLanes * kWidth;

  // `first` of step 0, of `count` in a row.
  __device__ __forceinline__ Columns(int first, int count)
      : first_(first), lane_(Lane::in_workgroup() % kLanes * kWidth), count_(count) {}
  // In bytes from the row's first column.
  __device__ __forceinline__ uint32_t bytes(int s) const {
    const uint32_t at = first_ + s * kStep + lane_, last = count_ - kWidth;
    return 2 * (at < last ? at : last);
  }
  // Whether every lane has a chunk of its own in this step; or no lane has one. The same in all.
  __device__ __forceinline__ bool whole(int s) const { return first_ + (s + 1) * kStep <= count_; }
  __device__ __forceinline__ bool none(int s) const { return first_ + s * kStep >= count_; }
  // In the step with the end of the row: what of its chunk is this lane's alone.
  __device__ __forceinline__ Chunk<kWidth> mask() const {
    const int beyond = first_ + lane_ + kWidth - count_, end = beyond + end_step() * kStep;
    return Chunk<kWidth>::mask_without(end < 0 ? 0 : end);
  }
  // Of a step with the end of the row.
  __device__ __forceinline__ void store(const Chunk<kWidth>& chunk, Global<uint16_t>* to,
                                        int s) const {
    const int left = count_ - (first_ + s * kStep + lane_);
    if (left >= kWidth)
      chunk.store(to);
    else if (left > 0)
      chunk.store_last(count_ % kWidth, to);
  }

 private:
  __device__ __forceinline__ int end_step() const { return uint32_t(count_ - 1) / kStep; }
  int first_, lane_, count_;
};

// A row of an operand; kUniform: the same of all lanes of a wave, so that its address is in SGPRs.
template <bool kUniform>
struct Row {
  uint64_t first;

  Row() = default;
  __device__ __forceinline__ Row(uint64_t base, int64_t stride, uint32_t number)
      : first(base + (uint64_t(stride) * number << 1)) {
    if constexpr (kUniform) ordered::settle_uniform(first);
  }
  __device__ __forceinline__ Global<uint16_t>* at(uint32_t bytes) const {
    return (Global<uint16_t>*)((Global<uint8_t>*)first + bytes);
  }
  // Behind its loads, so that none of them takes the registers of another's address: where page
  // faults are retried they may be issued again.
  __device__ __forceinline__ void keep(uint32_t bytes) const {
    if constexpr (kUniform)
      ordered::keep(bytes);
    else
      ordered::keep(at(bytes));
  }
};
