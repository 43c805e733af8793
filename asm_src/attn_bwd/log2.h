// From natural logarithms to base 2.
#pragma once
#include "isa/device.h"

// x * (factor + rest). The main kernel scales scores by a float32, which is off by its rounding:
// what they are compared with is off by the same factor, so that of far ones no difference is left.
__device__ __forceinline__ float to_log2(float x, float factor, float rest) {
  return __builtin_fmaf(x, factor, __builtin_fabsf(x) < kInf ? x * rest : 0.0f);
}
