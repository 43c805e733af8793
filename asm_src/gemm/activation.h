// Activations of a result before it is rounded, in float32.
#pragma once
#include "isa/unroll.h"
#include "isa/valu.h"

enum Activation { kIdentity, kSilu, kGeluTanh, kGelu };

inline constexpr float kLog2E = 1.4426950408889634f;

// 1 / (1 + e^-x)
__device__ __forceinline__ float sigmoid(float x) { return v_rcp_f32(1 + v_exp_f32(-kLog2E * x)); }

// erfc(z), z >= 0, within 7e-7 of itself: t * q(t) * e^(-z^2) with t = 1 / (1 + 0.4 z). q is a fit
// with the least greatest relative error over 0 <= z <= 10, 4.3e-7 without roundings.
__device__ __forceinline__ float complement_of_erf(float z) {
  constexpr float kFit[] = {0.05121428f, -0.2920368f, 0.4944276f,  -0.1840239f,
                            0.29832819f, 0.17695919f, 0.22967108f, 0.22545989f};
  const float t = v_rcp_f32(1 + 0.4f * z);
  float q = kFit[0];
  unroll_from<1, 8>([&]<int i>() { q = __builtin_fmaf(q, t, kFit[i]); });
  return t * q * v_exp_f32(-kLog2E * z * z);
}

__device__ __forceinline__ float activated(float x, int activation) {
  if (activation == kSilu) return x * sigmoid(x);
  if (activation == kGeluTanh) {  // x / 2 * (1 + tanh(y / 2)) = x * sigmoid(y)
    constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
    return x * sigmoid(kTwoRootTwoOverPi * (x + 0.044715f * x * x * x));
  }
  if (activation == kGelu) {  // x times the normal distribution function, both tails relative
    constexpr float kRootHalf = 0.7071067811865476f;
    const float tail = 0.5f * complement_of_erf(kRootHalf * __builtin_fabsf(x));
    return x * (x < 0 ? tail : 1 - tail);
  }
  return x;
}
