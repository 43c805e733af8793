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
template <Element kOf, bool kFloat32, int kCount>
__device__ __forceinline__ void load_angles(uint64_t table, int64_t at, float* to) {
  const auto* from = (const Global<uint16_t>*)table;
  if constexpr (kFloat32) {
    for (int i = 0; i < kCount; i += 4) {
      const auto four = global_load_anywhere<4>(from + 2 * (at + i));
      for (int j = 0; j < 4; ++j) to[i + j] = __builtin_bit_cast(float, uint32_t(four[j]));
    }
  } else {
    const auto all = global_load_anywhere<kCount / 2>(from + at);
    for (int i = 0; i < kCount; ++i) to[i] = number_of<kOf>(all, i);
  }
}
// Of both tables in one branch: neither load waits for the other.
template <Element kOf, int kCount>
__device__ __forceinline__ void load_angles(const Angles& angles, int64_t at, float* cos,
                                            float* sin) {
  if (angles.are_float32()) {
    load_angles<kOf, true, kCount>(angles.cos, at, cos);
    load_angles<kOf, true, kCount>(angles.sin, at, sin);
  } else {
    load_angles<kOf, false, kCount>(angles.cos, at, cos);
    load_angles<kOf, false, kCount>(angles.sin, at, sin);
  }
}

// Columns `column` .. + 7 of a row at `position`, of those that are turned. However pairs lie it is
// own * cos + other * sin, where other has a sign: code that all steps of a row have counts.
template <Element kOf>
__device__ __forceinline__ bf16x8 turning(const Angles& angles, const Global<uint16_t>* row,
                                          int column, int position) {
  const bf16x8 own = global_load_dwordx4(row + column);
  const int half = angles.dim / 2;
  const int64_t at = int64_t(position) * half;
  const bool interleaved = angles.interleaved(), upper = column >= half;
  bf16x8 other = own;
  float cos[8], sin[8];
  if (interleaved) {
    load_angles<kOf, 4>(angles, at + column / 2, cos, sin);
    for (int i = 7; i >= 0; --i) {
      cos[i] = cos[i / 2];
      sin[i] = sin[i / 2];
    }
  } else {
    const int first = upper ? column - half : column;
    other = global_load_dwordx4(row + (upper ? first : column + half));
    load_angles<kOf, 8>(angles, at + first, cos, sin);
  }
  // Behind the branches, where own columns may still be under way.
  const uint32_t turn = interleaved ? 16 : 0;
  const uint32_t sign = interleaved ? 0x00008000 : upper ? 0 : 0x80008000;
  for (int i = 0; i < 4; ++i) other[i] = __builtin_amdgcn_alignbit(other[i], other[i], turn) ^ sign;
  float x[8];
  for (int i = 0; i < 8; ++i)
    x[i] = number_of<kOf>(own, i) * cos[i] + number_of<kOf>(other, i) * sin[i];
  bf16x8 result;
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
