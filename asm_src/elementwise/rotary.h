// Pairs of a head's columns, turned in float32 and rounded once. Products and their sum are those
// of `turning` of cache/rotary.h, so that both give the same bits.
#pragma once
#include "arch/target.h"
#include "isa/global.h"
#include "tile/round.h"

// As many 16-bit columns next to each other, or one.
template <int kColumns>
struct Part {
  static constexpr int kDwords = (kColumns + 1) / 2;
  DwordsAnywhere<kDwords> bits;

  static __device__ __forceinline__ Part load(const Global<uint16_t>* from) {
    if constexpr (kColumns == 1) return {*from};
    return {global_load_anywhere<kDwords>(from)};
  }
  __device__ __forceinline__ void store(Global<uint16_t>* to) const {
    if constexpr (kColumns == 1)
      *to = uint16_t(bits[0]);
    else
      global_store_anywhere<kDwords>(to, bits);
  }
};

// Two columns in float32.
template <Element kOf>
__device__ __forceinline__ f32x2 wide_pair(uint32_t two) {
  if constexpr (kOf == Element::kBf16)
    return {__builtin_bit_cast(float, two << 16), __builtin_bit_cast(float, two & 0xffff0000)};
  else
    return __builtin_convertvector(__builtin_bit_cast(f16x2, two), f32x2);
}

// Rounded once. kAny: a NaN may have any bits, as tables of float32 do.
template <Element kOf, bool kAny>
__device__ __forceinline__ uint32_t rounded_pair(f32x2 x) {
  if constexpr (Here::kConvertsPairs) return convert_pair<kOf>(x[0], x[1]);
  if constexpr (kAny) return round_pair<kOf, Rounding::kNearestEven>(x[0], x[1]);
  return round_numbers<kOf, Rounding::kNearestEven>(x[0], x[1]);
}

// kCount numbers of a table, as they lie there.
template <Element kOf, bool kFloat32, int kCount>
struct OfTable {
  static constexpr int kDwords = kFloat32 ? kCount : (kCount + 1) / 2;
  static constexpr int kAtOnce = kDwords < 4 ? kDwords : 4;
  DwordsAnywhere<kAtOnce> bits[kDwords / kAtOnce];

  OfTable() = default;
  __device__ __forceinline__ OfTable(uint64_t table, int64_t at) {
    const auto* from = (const Global<uint16_t>*)table + at * (kFloat32 ? 2 : 1);
    if constexpr (!kFloat32 && kCount == 1)
      bits[0][0] = *from;
    else
      for (int i = 0; i < kDwords / kAtOnce; ++i)
        bits[i] = global_load_anywhere<kAtOnce>(from + 2 * kAtOnce * i);
  }
  // Numbers 2i and 2i + 1; of a table of one the first is it.
  __device__ __forceinline__ f32x2 pair(int i) const {
    if constexpr (kFloat32) {
      if constexpr (kCount == 1) return {__builtin_bit_cast(float, uint32_t(bits[0][0])), 0};
      const auto& four = bits[2 * i / kAtOnce];
      return {__builtin_bit_cast(float, uint32_t(four[2 * i % kAtOnce])),
              __builtin_bit_cast(float, uint32_t(four[2 * i % kAtOnce + 1]))};
    } else {
      return wide_pair<kOf>(bits[0][i]);
    }
  }
};

// cos and sin of kPairs pairs.
template <Element kOf, bool kFloat32, int kPairs>
struct Turn {
  OfTable<kOf, kFloat32, kPairs> cos, sin;

  __device__ __forceinline__ Turn(uint64_t of_cos, uint64_t of_sin, int64_t at)
      : cos(of_cos, at), sin(of_sin, at) {}
  // Of a position that is not there: all are NaN.
  __device__ __forceinline__ void lose() {
    for (auto& part : cos.bits) part = ~0u >> 1;
  }
};

// What is turned: columns as they were read.
template <Element kOf>
struct AsRead {
  template <int kColumns>
  __device__ __forceinline__ f32x2 pair(const Part<kColumns>& part, bool, int n) const {
    return wide_pair<kOf>(part.bits[n]);
  }
};

// Both halves of kPairs pairs, or neighbours in two parts.
template <Element kOf, bool kFloat32, int kPairs>
struct Both {
  Part<kPairs> one, other;

  template <bool kAreNeighbours, class Columns = AsRead<kOf>>
  __device__ __forceinline__ void turn(const Turn<kOf, kFloat32, kPairs>& by,
                                       const Columns& columns = {}) {
    if constexpr (kPairs == 1) {
      const float x = columns.pair(one, false, 0)[0], y = columns.pair(other, true, 0)[0];
      const float cos = by.cos.pair(0)[0], sin = by.sin.pair(0)[0];
      const uint32_t both =
          rounded_pair<kOf, kFloat32>(f32x2{x * cos + -y * sin, y * cos + x * sin});
      one.bits[0] = both & 0xffff;
      other.bits[0] = both >> 16;
    } else if constexpr (kAreNeighbours) {
      for (int i = 0; i < kPairs; ++i) {
        Part<kPairs>& part = i < kPairs / 2 ? one : other;
        const int n = i % (kPairs / 2);
        const f32x2 x = columns.pair(part, i >= kPairs / 2, n), crossed = {-x[1], x[0]};
        const float cos = by.cos.pair(i / 2)[i % 2], sin = by.sin.pair(i / 2)[i % 2];
        part.bits[n] = rounded_pair<kOf, kFloat32>(x * cos + crossed * sin);
      }
    } else {
      for (int n = 0; n < kPairs / 2; ++n) {
        const f32x2 x = columns.pair(one, false, n), y = columns.pair(other, true, n);
        const f32x2 cos = by.cos.pair(n), sin = by.sin.pair(n);
        one.bits[n] = rounded_pair<kOf, kFloat32>(x * cos + -y * sin);
        other.bits[n] = rounded_pair<kOf, kFloat32>(y * cos + x * sin);
      }
    }
  }
};
