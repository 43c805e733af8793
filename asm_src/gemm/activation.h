// Activations of a result before it is rounded, in float32. Right down to the least denormal, and
// of the sign of x where they underflow: powers that are factors of a result are taken 2^64 times
// as great as they are, since v_exp_f32 gives no denormals. At infinities their limits.
#pragma once
#include "isa/unroll.h"
#include "isa/valu.h"

enum Activation { kIdentity, kSilu, kGeluTanh, kGelu };

inline constexpr float kLog2E = 1.4426950408889634f, kLog2ERest = 1.9259629e-8f;
inline constexpr float kRaised = 64, kLowered = 0x1p-64f;

// 2^64 e^-(x + rest), x >= 0.
__device__ __forceinline__ float raised_exp(float x, float rest) {
  const float fine = __builtin_fmaf(-kLog2ERest, x, -kLog2E * rest);
  return v_exp_f32(__builtin_fmaf(-kLog2E, x, kRaised) + fine);
}

// Of x < 0: finite, so that its product with an underflow is none with infinity.
__device__ __forceinline__ float finite(float x) { return v_max_f32(x, -0x1.fffffep127f); }

// x / (1 + e^-y)
__device__ __forceinline__ float times_sigmoid(float x, float y) {
  const float raised = raised_exp(__builtin_fabsf(y), 0);
  const float part = x * v_rcp_f32(1 + raised * kLowered);
  return y < 0 ? finite(part) * raised * kLowered : part;
}

// 2^64 erfc(z), z >= 0, within 7e-7 of itself: t * q(t) * e^(-z^2) with t = 1 / (1 + 0.4 z). q is a
// fit with the least greatest relative error over 0 <= z <= 10, 4.3e-7 without roundings. Times any
// float32 it is 0 from kNoTail on; squares of much greater z overflow.
inline constexpr float kNoTail = 20;
__device__ __forceinline__ float raised_complement_of_erf(float z) {
  constexpr float kFit[] = {0.05121428f, -0.2920368f, 0.4944276f,  -0.1840239f,
                            0.29832819f, 0.17695919f, 0.22967108f, 0.22545989f};
  const float t = v_rcp_f32(1 + 0.4f * z);
  float q = kFit[0];
  unroll_from<1, 8>([&]<int i>() { q = __builtin_fmaf(q, t, kFit[i]); });
  const float square = z * z;
  return t * q * raised_exp(square, __builtin_fmaf(z, z, -square));
}

__device__ __forceinline__ float activated(float x, int activation) {
  if (activation == kSilu) return times_sigmoid(x, x);
  if (activation == kGeluTanh) {  // x / 2 * (1 + tanh(y / 2)) = x / (1 + e^-y)
    constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
    return times_sigmoid(x, kTwoRootTwoOverPi * (x + 0.044715f * x * x * x));
  }
  if (activation == kGelu) {  // x times the normal distribution function, both tails relative
    constexpr float kRootHalf = 0.7071067811865476f;
    const float z = __builtin_fminf(kRootHalf * __builtin_fabsf(x), kNoTail);
    const float tail = 0.5f * raised_complement_of_erf(z);
    return x < 0 ? finite(x) * tail * kLowered : x * (1 - tail * kLowered);
  }
  return x;
}
