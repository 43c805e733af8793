// Activations of two elements at once, x * s(x) with 0 <= s <= 1, for packed float32 arithmetic.
// Right down to denormal results: exponentials are 2^-32 of what they are, so that none overflows
// before s is 0. At infinities their limits.
#pragma once
#include "gemm/activation.h"

// Times s, which is NaN where x is, and 0 of -inf: the product with that would be NaN.
__device__ __forceinline__ f32x2 times_share(f32x2 x, f32x2 share) {
  constexpr float kLeast = -0x1.fffffep127f;  // one instruction; a maximum would quiet x first
  return f32x2{__builtin_amdgcn_fmed3f(x[0], kLeast, kInf),
               __builtin_amdgcn_fmed3f(x[1], kLeast, kInf)} *
         share;
}

// 1 / (1 + 2^(x * factor))
__device__ __forceinline__ f32x2 share_of(f32x2 x, f32x2 factor) {
  constexpr f32x2 kLower = {-32, -32};
  constexpr float kLeast = 0x1p-32f;
  const f32x2 t = __builtin_elementwise_fma(x, factor, kLower);
  const f32x2 sum = f32x2{v_exp_f32(t[0]), v_exp_f32(t[1])} + kLeast;
  return f32x2{v_rcp_f32(sum[0]), v_rcp_f32(sum[1])} * kLeast;
}

// The normal distribution function, both tails relative. A NaN stays one.
__device__ __forceinline__ float normal_distribution(float x) {
  constexpr float kRootHalf = 0.7071067811865476f;
  const float far = kRootHalf * __builtin_fabsf(x), z = far > kNoTail ? kNoTail : far;
  const float tail = 0.5f * kLowered * raised_complement_of_erf(z);
  const float head = 1 - tail;
  return x < 0 ? tail : head;
}

template <int kActivation>
__device__ __forceinline__ f32x2 activated_pair(f32x2 x) {
  if constexpr (kActivation == kSilu) return times_share(x, share_of(x, -kLog2E));
  if constexpr (kActivation == kGeluTanh) {  // x / 2 * (1 + tanh(y / 2)) = x / (1 + e^-y)
    constexpr float kOfX = -1.5957691216057308f * kLog2E;  // 2 sqrt(2 / pi)
    constexpr f32x2 kOfCube = {kOfX * 0.044715f, kOfX * 0.044715f};
    return times_share(x,
                       share_of(x, __builtin_elementwise_fma(x * x, kOfCube, f32x2{kOfX, kOfX})));
  }
  return times_share(x, f32x2{normal_distribution(x[0]), normal_distribution(x[1])});
}
