// Registers -> global memory.
#pragma once
#include "isa/global.h"
#include "tile/bf16.h"
#include "tile/fragment.h"

// Two paired accumulator fragments times `factor`, rounded: the octet that this lane holds.
__device__ __forceinline__ u32x4 round_octet(f32x4 first, f32x4 second, float factor) {
  first *= factor;
  second *= factor;
  return {pack_bf16(round_bf16(first[0]), round_bf16(first[1])),
          pack_bf16(round_bf16(first[2]), round_bf16(first[3])),
          pack_bf16(round_bf16(second[0]), round_bf16(second[1])),
          pack_bf16(round_bf16(second[2]), round_bf16(second[3]))};
}
