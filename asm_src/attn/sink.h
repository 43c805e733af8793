// A head's sink: a score of a key without a value, in natural units and in powers of two.
#pragma once
#include "isa/valu.h"

inline constexpr float kLn2 = 0.6931471805599453f, kLog2E = 1.4426950408889634f;
inline constexpr float kGreatestFloat = 3.4028234663852886e38f;

struct Sink {
  float natural = -kInf, log2 = -kInf;

  Sink() = default;  // none
  __device__ __forceinline__ explicit Sink(float of_head) : natural(of_head) {
    log2 = natural * kLog2E;
    // A finite one stays finite, or its difference to itself would be NaN.
    if (__builtin_fabsf(natural) <= kGreatestFloat)
      log2 = __builtin_amdgcn_fmed3f(log2, -kGreatestFloat, kGreatestFloat);
  }
};
