// From natural logarithms to base 2.
#pragma once
#include "isa/device.h"

// x * (factor + rest). The main kernel scales scores by a float32, which is off by its rounding:
// what they are compared with is off by the same factor, so that of far ones no difference is left.
// A finite one stays finite, or its difference to itself would be NaN.
__device__ __forceinline__ float to_log2(float x, float factor, float rest) {
  constexpr float kGreatest = 0x1.fffffep+127f;
  if (!(__builtin_fabsf(x) < kInf)) return x * factor;
  return __builtin_amdgcn_fmed3f(__builtin_fmaf(x, factor, x * rest), -kGreatest, kGreatest);
}
