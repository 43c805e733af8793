// Vector ALU instructions that read another lane of the same row of 16 (DPP). The compiler keeps
// the distance to the instruction that wrote it.
#pragma once
#include "isa/device.h"

// Which lane: `kQuad<a, b, c, d>` of each four, the mirrors of each 8 and 16.
template <int a, int b, int c, int d>
inline constexpr int kQuad = a | b << 2 | c << 4 | d << 6;
inline constexpr int kRowMirror = 0x140, kRowHalfMirror = 0x141;

// x of that lane.
template <int kWhich>
__device__ __forceinline__ float v_mov_b32_dpp(float x) {
  return __builtin_bit_cast(
      float, __builtin_amdgcn_update_dpp(0, __builtin_bit_cast(int, x), kWhich, 0xf, 0xf, true));
}

// x of one lane, the same in all.
__device__ __forceinline__ float v_readlane_b32(float x, int lane) {
  return __builtin_bit_cast(float, __builtin_amdgcn_readlane(__builtin_bit_cast(int, x), lane));
}
