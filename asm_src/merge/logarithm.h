// Logarithms of two bases, of which the rounding of a product is kept as a second float32.
#pragma once
#include "isa/valu.h"

inline constexpr float kLog2E = 0x1.715476p+0f, kLn2 = 0x1.62e43p-1f;
// What these are too small by.
inline constexpr float kLog2ERest = 0x1.4ae0cp-26f, kLn2Rest = -0x1.05c61p-29f;

// A natural one: whole + rest.
struct Log {
  float whole, rest;
  __device__ __forceinline__ float rounded() const { return whole + rest; }
};

// In base 2.
struct Log2 {
  float whole, rest;

  // Of a natural one. A finite one stays finite, or its difference to itself would be NaN.
  static __device__ __forceinline__ Log2 of_natural(float x) {
    constexpr float kGreatest = 0x1.fffffep+127f;
    const float whole = __builtin_amdgcn_fmed3f(x * kLog2E, -kGreatest, kGreatest);
    return {whole, __builtin_fmaf(x, kLog2ERest, __builtin_fmaf(x, kLog2E, -whole))};
  }
  // The natural logarithm of 2^this * factor.
  __device__ __forceinline__ Log natural(float factor) const {
    const float product = whole * kLn2, small = (rest + v_log_f32(factor)) * kLn2;
    return {product,
            __builtin_fmaf(whole, kLn2Rest, __builtin_fmaf(whole, kLn2, -product)) + small};
  }
};
