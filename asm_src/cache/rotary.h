// Rotary embedding of eight neighbours of a row: turned in float32, rounded once.
#pragma once
#include "isa/global.h"
#include "tile/round.h"

struct Angles {
  uint64_t cos, sin;
  int dim;  // columns that are turned
  bool interleaved;
};

// So many angles next to each other, of any address: two in each dword.
template <int kCount>
__device__ __forceinline__ DwordsAnywhere<kCount / 2> angles_at(uint64_t table, int64_t at) {
  return global_load_anywhere<kCount / 2>((const Global<uint16_t>*)table + at);
}
template <Element kOf, class Words>
__device__ __forceinline__ float angle_of(Words x, int i) {
  return float_of<kOf>(x[i / 2] >> 16 * (i % 2) & 0xffff);
}

// Columns `column` .. + 7 of a row at `position`, of those that are turned.
template <Element kOf>
__device__ __forceinline__ bf16x8 turning(const Angles& angles, const Global<uint16_t>* row,
                                          int column, int position) {
  const bf16x8 own = global_load_dwordx4(row + column);
  const int half = angles.dim / 2;
  const int64_t at = int64_t(position) * half;
  bf16x8 result;
  if (angles.interleaved) {
    const auto cos = angles_at<4>(angles.cos, at + column / 2);
    const auto sin = angles_at<4>(angles.sin, at + column / 2);
    for (int i = 0; i < 4; ++i) {
      const float c = angle_of<kOf>(cos, i), s = angle_of<kOf>(sin, i);
      const float a = angle_of<kOf>(own, 2 * i), b = angle_of<kOf>(own, 2 * i + 1);
      result[i] = round_pair<kOf, Rounding::kNearestEven>(a * c - b * s, a * s + b * c);
    }
    return result;
  }
  const bool upper = column >= half;
  const int first = upper ? column - half : column;
  const bf16x8 other = global_load_dwordx4(row + (upper ? first : column + half));
  const auto cos = angles_at<8>(angles.cos, at + first), sin = angles_at<8>(angles.sin, at + first);
  float x[8];
  for (int i = 0; i < 8; ++i) {
    const float c = angle_of<kOf>(cos, i), s = angle_of<kOf>(sin, i);
    const float a = angle_of<kOf>(own, i), b = angle_of<kOf>(other, i);
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
