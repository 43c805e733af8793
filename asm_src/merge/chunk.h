// What a lane loads of a row of a part: kDwords next to each other, of any element type. Sums are
// pairs of float32.
#pragma once
#include "isa/global.h"
#include "tile/round.h"

template <int kDwords>
using Dwords = uint32_t __attribute__((ext_vector_type(kDwords)));

template <Element kElement, int kCount>
struct Chunk16 {
  static constexpr int kDwords = kCount, kPairs = kDwords;
  static constexpr uint32_t kNans = 0x7fff7fff;
  using Bits = Dwords<kDwords>;

  static __device__ __forceinline__ f32x2 pair(const Bits& bits, int i) {
    const uint32_t both = bits[i];
    if constexpr (kElement == Element::kBf16)
      return {__builtin_bit_cast(float, both << 16), __builtin_bit_cast(float, both & 0xffff0000)};
    else
      return __builtin_convertvector(__builtin_bit_cast(f16x2, both), f32x2);
  }
  // `nan`: all of them are, of whatever payload. Those of o have one that rounding keeps.
  static __device__ __forceinline__ Bits rounded(const f32x2 (&x)[kPairs], bool nan) {
    Bits bits;
    for (int i = 0; i < kPairs; ++i) {
      const uint32_t both = round_numbers<kElement, Rounding::kNearestEven>(x[i][0], x[i][1]);
      bits[i] = kElement == Element::kBf16 && nan ? kNans : both;
    }
    return bits;
  }
};

template <int kCount>
struct Chunk32 {
  static constexpr int kDwords = kCount, kPairs = kDwords / 2;
  static_assert(kDwords % 2 == 0);
  using Bits = Dwords<kDwords>;

  static __device__ __forceinline__ f32x2 pair(const Bits& bits, int i) {
    const uint32_t first = bits[2 * i], second = bits[2 * i + 1];
    return {__builtin_bit_cast(float, first), __builtin_bit_cast(float, second)};
  }
  static __device__ __forceinline__ Bits rounded(const f32x2 (&x)[kPairs], bool) {
    Bits bits;
    for (int i = 0; i < kDwords; ++i) {
      const float one = x[i / 2][i % 2];
      bits[i] = __builtin_bit_cast(uint32_t, one);
    }
    return bits;
  }
};
