// Where the columns of a lane are: in chunks, of which lanes next to each other have one each in
// every step. The last chunk of a row is moved back to end with it. What other lanes then have as
// well counts and is written once.
#pragma once
#include "isa/ordered_memory.h"

template <int kLanes, int kWidth>
struct Columns {
  static constexpr int kStep = kLanes * kWidth;
  int first, of_lane, count;  // of step 0; columns of the row

  __device__ __forceinline__ Columns(int first, int count)
      : first(first), of_lane(Lane::in_workgroup() % kLanes * kWidth), count(count) {}
  // In bytes from the row's first column.
  __device__ __forceinline__ uint32_t bytes(int s) const {
    const uint32_t at = first + s * kStep + of_lane, last = count - kWidth;
    return 2 * (at < last ? at : last);
  }
  // Whether every lane has a chunk of its own in this step: the same in all of them.
  __device__ __forceinline__ bool whole(int s) const { return first + (s + 1) * kStep <= count; }
  // How much of the chunk others have; kWidth or more: all. Found where it is asked for, which is
  // seldom.
  __device__ __forceinline__ int twice(int s) const {
    int lane = of_lane;
    ordered::settle(lane);
    const int beyond = first + s * kStep + lane + kWidth - count;
    return beyond < 0 ? 0 : beyond;
  }
};

// A row of an operand; kUniform: the same of all lanes of a wave, so that its address is in SGPRs.
template <bool kUniform>
struct Row {
  uint64_t first;

  __device__ __forceinline__ Row(uint64_t base, int64_t stride, uint32_t number)
      : first(base + 2 * (int64_t(number) * stride)) {
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
