// Columns of a row next to each other, in the registers of a lane as in memory.
#pragma once
#include "isa/global.h"
#include "isa/ordered.h"
#include "tile/round.h"

inline constexpr Element kElement = Element::ELEMENT;

// kWidth of them. Some operands have lanes that hold fewer: the first `twice` are not theirs.
template <int kWidth>
struct Chunk {
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
  __device__ __forceinline__ void store_without(int twice, Global<uint16_t>* to) const {
    if (twice == 0) return store(to);
    for (int i = 1; i < kWidth; ++i)
      if (i >= twice) to[i] = uint16_t(bits[i / 2] >> 16 * (i % 2));
  }

  // In float32.
  __device__ __forceinline__ f32x2 pair(int i) const {
    if constexpr (kElement == Element::kBf16)
      return {__builtin_bit_cast(float, bits[i] << 16),
              __builtin_bit_cast(float, bits[i] & 0xffff0000)};
    else
      return {float_of<kElement>(bits[i]), float_of<kElement>(bits[i] >> 16)};
  }
  __device__ __forceinline__ void set_pair(int i, f32x2 x) {
    bits[i] = round_numbers<kElement, Rounding::kNearestEven>(x[0], x[1]);
  }
  // Rounded once.
  __device__ __forceinline__ Chunk operator+(const Chunk& other) const {
    Chunk sum;
    for (int i = 0; i < kPairs; ++i)
      if constexpr (kElement == Element::kBf16)
        sum.set_pair(i, pair(i) + other.pair(i));
      else
        sum.bits[i] = __builtin_bit_cast(
            uint32_t, __builtin_bit_cast(f16x2, uint32_t(bits[i])) +
                          __builtin_bit_cast(f16x2, uint32_t(other.bits[i])));
    return sum;
  }
  __device__ __forceinline__ Chunk scaled(float scale, const Chunk& weight) const {
    Chunk y;
    for (int i = 0; i < kPairs; ++i) y.set_pair(i, pair(i) * scale * weight.pair(i));
    return y;
  }
  // 0 in place of the first `count` elements.
  __device__ __forceinline__ Chunk without(int count) const {
    Chunk rest;
    for (int i = 0; i < kPairs; ++i) {
      const uint32_t kept = count <= 2 * i ? bits[i] : bits[i] & 0xffff0000;
      rest.bits[i] = count > 2 * i + 1 ? 0 : kept;
    }
    return rest;
  }
};
