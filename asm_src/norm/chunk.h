// Columns of a row next to each other, in the registers of a lane as in memory.
#pragma once
#include "isa/global.h"
#include "isa/ordered_mfma.h"
#include "tile/round.h"

inline constexpr Element kElement = Element::ELEMENT;

template <int kWidth>
struct Chunk {
  static constexpr int kBytes = 2;  // of a column
  static constexpr int kPairs = (kWidth + 1) / 2;
  static_assert(kPairs == 4 || kPairs == 2 || kPairs == 1);
  DwordsAnywhere<kPairs> bits;

  static __device__ __forceinline__ Chunk load(const Global<uint16_t>* from) {
    if constexpr (kWidth == 1) return {*from};
    return {global_load_anywhere<kPairs>(from)};
  }
  __device__ __forceinline__ void store(Global<uint16_t>* to) const {
    if constexpr (kWidth == 1)
      *to = uint16_t(bits[0]);
    else
      global_store_anywhere<kPairs>(to, bits);
  }
  // The last `count` columns only: fewer than all, as many in all lanes.
  __device__ __forceinline__ void store_last(int count, Global<uint16_t>* to) const {
    if constexpr (kWidth == 8)
      if (count & 4) global_store_anywhere<2>(to + 4, u32x2{bits[2], bits[3]});
    if constexpr (kWidth >= 4)
      if (count & 2) {
        const int i = kPairs - 1 - (count & 4) / 2;
        global_store_anywhere<1>(to + 2 * i, picked(i));
      }
    if constexpr (kWidth >= 2)
      if (count & 1) {
        const int i = kPairs - 1 - count / 2;
        to[2 * i + 1] = uint16_t(picked(i) >> 16);
      }
  }
  // Without the first `count` columns all bits are set.
  static __device__ __forceinline__ Chunk mask_without(int count) {
    Chunk mask;
    for (int i = 0; i < kPairs; ++i)
      mask.bits[i] = count <= 2 * i ? ~0u : count == 2 * i + 1 ? 0xffff0000 : 0;
    return mask;
  }

  // In float32.
  __device__ __forceinline__ f32x2 pair(int i) const {
    if constexpr (kElement == Element::kBf16)
      return {__builtin_bit_cast(float, bits[i] << 16),
              __builtin_bit_cast(float, bits[i] & 0xffff0000)};
    else
      return __builtin_convertvector(half_pair(i), f32x2);
  }
  // Rounded once.
  __device__ __forceinline__ Chunk operator+(const Chunk& other) const {
    Chunk sum;
    for (int i = 0; i < kPairs; ++i)
      if constexpr (kElement == Element::kBf16) {
        const f32x2 x = pair(i) + other.pair(i);
        sum.bits[i] = round_numbers<kElement, Rounding::kNearestEven>(x[0], x[1]);
      } else {
        sum.bits[i] = __builtin_bit_cast(uint32_t, half_pair(i) + other.half_pair(i));
      }
    return sum;
  }
  __device__ __forceinline__ Chunk operator&(const Chunk& mask) const { return {bits & mask.bits}; }

 private:
  __device__ __forceinline__ f16x2 half_pair(int i) const {
    return __builtin_bit_cast(f16x2, uint32_t(bits[i]));
  }
  __device__ __forceinline__ uint32_t picked(int i) const {
    uint32_t one = bits[0];
    for (int j = 1; j < kPairs; ++j) one = i == j ? bits[j] : one;
    return one;
  }
};

// x * scale * weight, of operands that are ready before the scale is known; of any weights that
// have pairs in float32.
template <int kWidth>
class Product {
 public:
  using C = Chunk<kWidth>;
  template <class Weight>
  __device__ __forceinline__ Product(const C& x, const Weight& weight) {
    for (int i = 0; i < C::kPairs; ++i) {
      x_[i] = x.pair(i);
      weight_[i] = weight.pair(i);
    }
  }
  // They are in registers here.
  __device__ __forceinline__ void settle() {
    if constexpr (kElement == Element::kBf16)
      for (int i = 0; i < C::kPairs; ++i) ordered::settle_by_nop(x_[i], weight_[i]);
  }
  __device__ __forceinline__ C times(float scale) const {
    C y;
    for (int i = 0; i < C::kPairs; ++i) {
      const f32x2 product = x_[i] * scale * weight_[i];
      y.bits[i] = round_numbers<kElement, Rounding::kNearestEven>(product[0], product[1]);
    }
    return y;
  }

 private:
  f32x2 x_[C::kPairs], weight_[C::kPairs];
};
