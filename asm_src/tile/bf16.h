// f32 -> bf16, round to nearest even in software: gfx942 has no instruction for it.
#pragma once
#include "isa/packed.h"
#include "isa/valu.h"

// The bf16 is the upper half of the result. A NaN whose payload is all ones wraps to -0 here:
// callers must know that none comes, or that it does not matter.
__device__ __forceinline__ uint32_t round_bf16_number(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  return bits + 0x7fff + ((bits >> 16) & 1);
}

// Same for any x; a NaN stays a NaN and becomes quiet.
__device__ __forceinline__ uint32_t round_bf16(float x) {
  const uint32_t quiet_nan = __builtin_bit_cast(uint32_t, x) | 0x00400000;
  const uint32_t number = round_bf16_number(x);
  return __builtin_unpredictable(x != x) ? quiet_nan : number;  // a select, not a branch a lane
}

// Two at once, in two instructions, exact ties to even included; each 0, a NaN or a normal number
// below 2^111 in magnitude. 2^16 x - x has 24 bits: what is rounded off x is what bf16 lacks.
__device__ __forceinline__ u32x2 round_bf16_normals(f32x2 x) {
  const f32x2 kShift = 0x1p16f;
  const f32x2 shifted = v_pk_fma_f32(x, kShift, -x);
  return __builtin_bit_cast(u32x2, v_pk_fma_f32(x, kShift, -shifted));
}

// {hi[31:16], lo[31:16]}: two rounded values as one dword, lo first in memory.
__device__ __forceinline__ uint32_t pack_bf16(uint32_t lo, uint32_t hi) {
  return v_perm_b32<0x07060302>(hi, lo);
}
