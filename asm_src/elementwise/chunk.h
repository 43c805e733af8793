// Eight columns of a row next to each other, or those that are left at its end: exactly these are
// read and written, so that a result may be an operand itself.
#pragma once
#include "arch/target.h"
#include "isa/global.h"
#include "tile/round.h"

template <Element kElement>
struct Chunk {
  static constexpr int kColumns = 8, kPairs = 4;
  DwordsAnywhere<kPairs> bits;

  static __device__ __forceinline__ Chunk load(const Global<uint16_t>* from) {
    return {global_load_anywhere<kPairs>(from)};
  }
  __device__ __forceinline__ void store(Global<uint16_t>* to) const {
    global_store_anywhere<kPairs>(to, bits);
  }
  // The first `count` of them, fewer than all; the others are 0.
  static __device__ __forceinline__ Chunk load_first(int count, const Global<uint16_t>* from) {
    Chunk chunk{};
    if (count & 4) {
      const auto two = global_load_anywhere<2>(from);
      chunk.bits[0] = two[0];
      chunk.bits[1] = two[1];
    }
    if (count & 2) chunk.put((count & 4) / 2, global_load_anywhere<1>(from + (count & 4))[0]);
    if (count & 1) chunk.put((count & 6) / 2, from[count & 6]);
    return chunk;
  }
  __device__ __forceinline__ void store_first(int count, Global<uint16_t>* to) const {
    if (count & 4) global_store_anywhere<2>(to, u32x2{bits[0], bits[1]});
    if (count & 2) global_store_anywhere<1>(to + (count & 4), picked((count & 4) / 2));
    if (count & 1) to[count & 6] = uint16_t(picked((count & 6) / 2));
  }

  // In float32.
  __device__ __forceinline__ f32x2 pair(int i) const {
    const uint32_t two = bits[i];
    if constexpr (kElement == Element::kBf16)
      return {__builtin_bit_cast(float, two << 16), __builtin_bit_cast(float, two & 0xffff0000)};
    else
      return __builtin_convertvector(__builtin_bit_cast(f16x2, two), f32x2);
  }
  // Rounded once: of what comes of arithmetic on 16-bit inputs.
  __device__ __forceinline__ void set_pair(int i, f32x2 x) {
    if constexpr (Here::kConvertsPairs)
      bits[i] = convert_pair<kElement>(x[0], x[1]);
    else
      bits[i] = round_numbers<kElement, Rounding::kNearestEven>(x[0], x[1]);
  }

 private:
  __device__ __forceinline__ void put(int pair, uint32_t two) {
    for (int i = 0; i < kPairs; ++i) bits[i] = i == pair ? two : bits[i];
  }
  __device__ __forceinline__ uint32_t picked(int pair) const {
    uint32_t one = bits[0];
    for (int i = 1; i < kPairs; ++i) one = i == pair ? bits[i] : one;
    return one;
  }
};
