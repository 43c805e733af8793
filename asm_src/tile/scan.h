// What all lanes of a wave up to each one come to.
#pragma once
#include "isa/dpp_scan.h"

// `with` over them: those of a row of 16, then of the rows before. 0 is what changes nothing.
template <class With>
__device__ __forceinline__ int scanned(int x, With with) {
  constexpr int kAll = 0xf, kOddRows = 0xa, kUpperRows = 0xc;
  x = with(x, v_mov_b32_dpp<kRowShr<1>, kAll>(x));
  x = with(x, v_mov_b32_dpp<kRowShr<2>, kAll>(x));
  x = with(x, v_mov_b32_dpp<kRowShr<4>, kAll>(x));
  x = with(x, v_mov_b32_dpp<kRowShr<8>, kAll>(x));
  x = with(x, v_mov_b32_dpp<kRowBcast15, kOddRows>(x));
  x = with(x, v_mov_b32_dpp<kRowBcast31, kUpperRows>(x));
  return x;
}
__device__ __forceinline__ int sum_scanned(int x) {
  return scanned(x, [](int a, int b) { return a + b; });
}
