// Rotary embedding of eight neighbours of a row: turned in float32, rounded once.
#pragma once
#include "isa/global.h"
#include "tile/round.h"

struct Angles {
  uint64_t cos, sin;
  int dim;    // columns that are turned
  int flags;  // rotary_flags of the arguments
  __device__ __forceinline__ bool interleaved() const { return flags & 1; }
  __device__ __forceinline__ bool are_float32() const { return flags & 2; }
};

template <Element kOf, class Words>
__device__ __forceinline__ float number_of(Words x, int i) {
  return float_of<kOf>(x[i / 2] >> 16 * (i % 2) & 0xffff);
}

// So many angles next to each other, of any address.
template <Element kOf, int kCount>
struct CosSin {
  float cos[kCount], sin[kCount];

  __device__ __forceinline__ CosSin(const Angles& angles, int64_t at) {
    if (angles.are_float32()) {
      for (int i = 0; i < kCount; i += 4) {
        const auto c = global_load_anywhere<4>((const Global<float>*)angles.cos + at + i);
        const auto s = global_load_anywhere<4>((const Global<float>*)angles.sin + at + i);
        for (int j = 0; j < 4; ++j) {
          cos[i + j] = __builtin_bit_cast(float, uint32_t(c[j]));
          sin[i + j] = __builtin_bit_cast(float, uint32_t(s[j]));
        }
      }
    } else {
      const auto c = global_load_anywhere<kCount / 2>((const Global<uint16_t>*)angles.cos + at);
      const auto s = global_load_anywhere<kCount / 2>((const Global<uint16_t>*)angles.sin + at);
      for (int i = 0; i < kCount; ++i) {
        cos[i] = number_of<kOf>(c, i);
        sin[i] = number_of<kOf>(s, i);
      }
    }
  }
};

// Columns `column` .. + 7 of a row at `position`, of those that are turned.
template <Element kOf>
__device__ __forceinline__ bf16x8 turning(const Angles& angles, const Global<uint16_t>* row,
                                          int column, int position) {
  const bf16x8 own = global_load_dwordx4(row + column);
  const int half = angles.dim / 2;
  const int64_t at = int64_t(position) * half;
  bf16x8 result;
  if (angles.interleaved()) {
    const CosSin<kOf, 4> by(angles, at + column / 2);
    for (int i = 0; i < 4; ++i) {
      const float c = by.cos[i], s = by.sin[i];
      const float a = number_of<kOf>(own, 2 * i), b = number_of<kOf>(own, 2 * i + 1);
      result[i] = round_pair<kOf, Rounding::kNearestEven>(a * c - b * s, a * s + b * c);
    }
    return result;
  }
  const bool upper = column >= half;
  const int first = upper ? column - half : column;
  const bf16x8 other = global_load_dwordx4(row + (upper ? first : column + half));
  const CosSin<kOf, 8> by(angles, at + first);
  float x[8];
  for (int i = 0; i < 8; ++i) {
    const float c = by.cos[i], s = by.sin[i];
    const float a = number_of<kOf>(own, i), b = number_of<kOf>(other, i);
    x[i] = upper ? b * s + a * c : a * c - b * s;
  }
  for (int i = 0; i < 4; ++i)
    result[i] = round_pair<kOf, Rounding::kNearestEven>(x[2 * i], x[2 * i + 1]);
  return result;
}
// The same of any columns.
template <Element kOf>
__device__ __forceinline__ bf16x8 turned_by(const Angles& angles, const Global<uint16_t>* row,
                                            int column, int position) {
  if (!angles.cos || column >= angles.dim) return global_load_dwordx4(row + column);
  return turning<kOf>(angles, row, column, position);
}
