// DPP moves to some banks of four lanes of each row of 16; the other lanes keep what they have. The
// compiler keeps the distance to the instruction that wrote a register.
#pragma once
#include "isa/device.h"

// From the lane so many before in a row of 16, around its end.
template <int by>
inline constexpr int kRowRor = 0x120 | by;
inline constexpr int kLowerBanks = 0x3, kUpperBanks = 0xc;  // lanes 0 .. 7 and 8 .. 15

template <int kFrom, int kBanks>
__device__ __forceinline__ uint32_t v_mov_b32_dpp(uint32_t x, uint32_t kept) {
  return __builtin_amdgcn_update_dpp(kept, x, kFrom, 0xf, kBanks, false);
}
