// Which keys of a block the rows of attention forward see.
#pragma once
#include "attn/shape.h"
#include "isa/ordered.h"
#include "isa/valu.h"

// The keys that rows see; this block's keys count from 4 * lane group.
struct Mask {
  int from, to;  // of the lane's row of the wave's first tile
  int keys;      // that there are

  struct Keys {
    int from, to;
    __device__ __forceinline__ Keys() = default;
    __device__ __forceinline__ Keys(int its_from, int its_to) : from(its_from), to(its_to) {
      ordered::settle(from);
      ordered::settle(to);
    }
    __device__ __forceinline__ bool has(int key) const { return key < to && key >= from; }
  };
  // The same as bits: a selection by them has no wait states, as one by a comparison has.
  struct Bits {
    uint32_t unseen;  // of each of 32 keys
    __device__ __forceinline__ Bits() = default;
    __device__ __forceinline__ Bits(int from, int to) : unseen(from_bit(to) | ~from_bit(from)) {
      ordered::settle(unseen);
    }
    __device__ __forceinline__ bool has(int key) const { return (unseen >> key & 1) == 0; }
    template <int kKey>
    __device__ __forceinline__ float seen_or_minus_infinity(float x) const {
      return ordered::v_bfi_b32(ordered::v_bfe_i32<kKey, 1>(unseen), -kInf, x);
    }
    static __device__ __forceinline__ uint32_t from_bit(int n) {
      return ~uint64_t(0) << most(0, least(n, 32));
    }
  };
  // Settled, or the compiler keeps a constant for each tile and key in a register, and all of them
  // in the prologue of every workgroup.
  template <class Seen, int kRows, int kFirstKey>
  __device__ __forceinline__ Seen further_down() const {
    return Seen(from + kRows - kFirstKey, least(keys, to + kRows) - kFirstKey);
  }
  template <int kBlock>
  __device__ __forceinline__ void skip(int blocks) {
    from -= blocks * kBlock;
    to -= blocks * kBlock;
    keys -= blocks * kBlock;
  }
};

template <bool kDirect>
struct SeenOf {
  using Type = Mask::Keys;
};
template <>
struct SeenOf<true> {
  using Type = Mask::Bits;
};
