// Rotary embedding of eight neighbours of a row: turned in float32, rounded once.
#pragma once
#include "decode/arguments.h"
#include "isa/global.h"
#include "isa/ordered.h"
#include "tile/round.h"

template <Element kOf>
__device__ __forceinline__ float element_of(bf16x8 x, int i) {
  return float_of<kOf>(x[i / 2] >> 16 * (i % 2) & 0xffff);
}

// Columns `column` .. + 7 of a row at `position`; rotary_dim is a multiple of 16.
template <Element kOf>
__device__ __forceinline__ bf16x8 turned(Arguments& args, const Global<uint16_t>* row, int column,
                                         int position) {
  const bf16x8 own = global_load_dwordx4(row + column);
  if (!args.rotary_cos || column >= args.rotary_dim) return own;
  ordered::settle(column);  // what follows from it is not computed before every loop
  const int half = args.rotary_dim / 2;
  const int64_t angles = int64_t(position) * half;
  const auto* cos = (const Global<uint16_t>*)args.rotary_cos + angles;
  const auto* sin = (const Global<uint16_t>*)args.rotary_sin + angles;
  bf16x8 result;
  if (args.rotary_interleaved) {
    for (int i = 0; i < 4; ++i) {
      const float c = float_of<kOf>(cos[column / 2 + i]), s = float_of<kOf>(sin[column / 2 + i]);
      const float a = element_of<kOf>(own, 2 * i), b = element_of<kOf>(own, 2 * i + 1);
      result[i] = round_pair<kOf, Rounding::kNearestEven>(a * c - b * s, a * s + b * c);
    }
    return result;
  }
  const bool upper = column >= half;
  const int first = upper ? column - half : column;
  const bf16x8 other = global_load_dwordx4(row + (upper ? first : column + half));
  float x[8];
  for (int i = 0; i < 8; ++i) {
    const float c = float_of<kOf>(cos[first + i]), s = float_of<kOf>(sin[first + i]);
    const float a = element_of<kOf>(own, i), b = element_of<kOf>(other, i);
    x[i] = upper ? b * s + a * c : a * c - b * s;
  }
  for (int i = 0; i < 4; ++i)
    result[i] = round_pair<kOf, Rounding::kNearestEven>(x[2 * i], x[2 * i + 1]);
  return result;
}
