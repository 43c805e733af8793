// Where the columns of a lane are: in chunks, of which lanes next to each other have one each in
// every step. The last chunk of a row is moved back to end with it. What other lanes then have as
// well counts once, and is written once.
#pragma once
#include "norm/chunk.h"

// A row of an operand; kUniform: the same of all lanes of a wave, so that its address is in SGPRs.
template <bool kUniform>
struct Row {
  uint64_t first;

  Row() = default;
  __device__ __forceinline__ explicit Row(uint64_t first) : first(first) {}
  // Of fewer than 2^31 rows.
  __device__ __forceinline__ Row(uint64_t base, int64_t stride, uint32_t number)
      : first(uint64_t(stride) * (2 * number)) {
    if constexpr (kUniform)
      ordered::s_add_u64(first, base);
    else
      first += base;
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

// kWhole: every lane has a chunk of its own in every step.
template <int kLanes, int kWidth, bool kWhole>
class Columns {
 public:
  static constexpr int kStep = kLanes * kWidth;
  using C = Chunk<kWidth>;

  // `first` of step 0, of `count` in a row.
  __device__ __forceinline__ Columns(int first, int count)
      : first_(first), lane_(Lane::in_workgroup() % kLanes * kWidth), count_(count) {}

  // Of a row of the element type, or of what `As` is made of.
  template <class As = C, class R>
  __device__ __forceinline__ As load(const R& row, int s) const {
    return As::load(row.at(bytes<As>(s)));
  }
  template <class As = C, class R>
  __device__ __forceinline__ void keep(const R& row, int s) const {
    row.keep(bytes<As>(s));
  }
  // Of a step what is this lane's alone. Without branches: they would part the matrix
  // instructions, of which the compiler does not see all distances over them.
  __device__ __forceinline__ C alone(const C& chunk, int s) const {
    if constexpr (kWhole) return chunk;
    const int beyond = first_ + s * kStep + lane_ + kWidth - count_;
    return chunk & C::mask_without(beyond < 0 ? 0 : beyond);
  }
  // A chunk each of rows of two operands, or of one.
  template <bool kBoth, class R>
  __device__ __forceinline__ void store(const C& one, const R& row, const C& other,
                                        const R& other_row, int s) const {
    const int left = count_ - (first_ + s * kStep + lane_);
    if (kWhole || left >= kWidth) {
      one.store(at(row, s));
      if constexpr (kBoth) other.store(at(other_row, s));
    } else if (left > 0) {
      one.store_last(count_ % kWidth, at(row, s));
      if constexpr (kBoth) other.store_last(count_ % kWidth, at(other_row, s));
    }
  }

 private:
  template <class R>
  __device__ __forceinline__ Global<uint16_t>* at(const R& row, int s) const {
    return row.at(bytes<C>(s));
  }
  template <class As>
  __device__ __forceinline__ uint32_t bytes(int s) const {
    const uint32_t at = first_ + s * kStep + lane_, last = count_ - kWidth;
    return As::kBytes * (kWhole || at < last ? at : last);
  }
  int first_, lane_, count_;
};
