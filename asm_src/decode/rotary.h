// Rotary embedding of eight neighbours of a row, as arguments of decode say.
#pragma once
#include "cache/rotary.h"
#include "decode/arguments.h"
#include "isa/ordered.h"

// Columns `column` .. + 7 of a row at `position`, of the first rotary_dim: a multiple of 16.
template <Element kOf>
__device__ __forceinline__ bf16x8 turning(Arguments& args, const Global<uint16_t>* row, int column,
                                          int position) {
  ordered::settle(column);  // what follows from it is not computed before every loop
  const Angles angles{args.rotary_cos, args.rotary_sin, args.rotary_dim, args.rotary_flags};
  return turning<kOf>(angles, row, column, position);
}
// The same of any columns.
template <Element kOf>
__device__ __forceinline__ bf16x8 turned(Arguments& args, const Global<uint16_t>* row, int column,
                                         int position) {
  if (!args.rotary_cos || column >= args.rotary_dim) return global_load_dwordx4(row + column);
  return turning<kOf>(args, row, column, position);
}
