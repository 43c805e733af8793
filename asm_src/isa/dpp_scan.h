// DPP moves of which sums over all lanes up to each are made; what is not moved to gets 0. The
// compiler keeps the distance to the instruction that wrote a register.
#pragma once
#include "isa/device.h"

// From the lane so many before in a row of 16; from the last lane of the row before; from lane 31.
template <int by>
inline constexpr int kRowShr = 0x110 | by;
inline constexpr int kRowBcast15 = 0x142, kRowBcast31 = 0x143;

// To the rows that a bit of kRows names.
template <int kFrom, int kRows>
__device__ __forceinline__ int v_mov_b32_dpp(int x) {
  return __builtin_amdgcn_update_dpp(0, x, kFrom, kRows, 0xf, false);
}
