// Vector ALU instructions that plain C++ does not name, one a wrapper.
#pragma once
#include "isa/device.h"

// 2^x. Denormal inputs count as 0 and denormal results are flushed to 0, whatever MODE says.
__device__ __forceinline__ float v_exp_f32(float x) { return __builtin_amdgcn_exp2f(x); }

// log2(x), same denormal rule.
__device__ __forceinline__ float v_log_f32(float x) { return __builtin_amdgcn_logf(x); }

// 1 / x within 1 ULP.
__device__ __forceinline__ float v_rcp_f32(float x) { return __builtin_amdgcn_rcpf(x); }

// 1 / sqrt(x) within 1 ULP; denormal inputs count as 0.
__device__ __forceinline__ float v_rsq_f32(float x) { return __builtin_amdgcn_rsqf(x); }

// The exponent e of x = m 2^e, 1/2 <= |m| < 1; 0 of 0, of infinities and of NaNs.
__device__ __forceinline__ int v_frexp_exp_i32_f32(float x) {
  return __builtin_amdgcn_frexp_expf(x);
}

// x 2^e.
__device__ __forceinline__ float v_ldexp_f32(float x, int e) {
  return __builtin_amdgcn_ldexpf(x, e);
}

// Four bytes picked from {hi, lo} (lo = bytes 0-3, hi = bytes 4-7), one selector byte each.
template <uint32_t kSelector>
__device__ __forceinline__ uint32_t v_perm_b32(uint32_t hi, uint32_t lo) {
  return __builtin_amdgcn_perm(hi, lo, kSelector);
}

// The larger operand; a quiet NaN loses against a number.
__device__ __forceinline__ float v_max_f32(float a, float b) { return __builtin_fmaxf(a, b); }

// Two numbers to float16, toward zero, lo in the low half.
__device__ __forceinline__ uint32_t v_cvt_pkrtz_f16_f32(float lo, float hi) {
  return __builtin_bit_cast(uint32_t, __builtin_amdgcn_cvt_pkrtz(lo, hi));
}

// No instruction.
__device__ __forceinline__ uint32_t bits(float x) { return __builtin_bit_cast(uint32_t, x); }
