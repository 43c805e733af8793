// Vector ALU instructions on pairs of float32, one a wrapper.
#pragma once
#include "isa/device.h"

// a * b + c, rounded once.
__device__ __forceinline__ f32x2 v_pk_fma_f32(f32x2 a, f32x2 b, f32x2 c) {
  return __builtin_elementwise_fma(a, b, c);
}
