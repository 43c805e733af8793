// What each architecture does in the fewest instructions: products, rounding, widening.
#pragma once
#include "arch/target.h"
#include "isa/fp8.h"
#include "isa/fp8_scaled.h"
#include "isa/mfma_x32.h"
#include "tile/mma.h"
#include "tile/round.h"

// Whether an instruction contracts 32 elements: eight of a lane.
inline constexpr bool kContracts32 = Here::kOperandElements == 8;

// a * b^T + c, 16 x 16 x 32.
template <Element kOf>
__device__ __forceinline__ f32x4 product(bf16x8 a, bf16x8 b, f32x4 c) {
  if constexpr (!kContracts32)
    return mma<kOf>(a, b, c);
  else if constexpr (kOf == Element::kBf16)
    return v_mfma_f32_16x16x32_bf16(a, b, c);
  else
    return v_mfma_f32_16x16x32_f16(a, b, c);
}

// Two numbers, lo first in memory, to nearest even. NaN may become a number: only for what comes
// with another one that stays NaN.
template <Element kTo>
__device__ __forceinline__ uint32_t rounded(float lo, float hi) {
  if constexpr (Here::kConvertsPairs && kTo == Element::kBf16) {
    using Pair = __bf16 __attribute__((ext_vector_type(2)));
    return __builtin_bit_cast(uint32_t, __builtin_convertvector(f32x2{lo, hi}, Pair));
  } else {
    return round_numbers<kTo, Rounding::kNearestEven>(lo, hi);
  }
}

// Two of four bytes, or all; exact.
template <Element kTo, bool kUpper>
__device__ __forceinline__ uint32_t widened(uint32_t bytes) {
  if constexpr (!Here::kConvertsPairs) {
    const f32x2 x = v_cvt_pk_f32_fp8<kUpper>(bytes);
    return round_numbers<kTo, Rounding::kTowardZero>(x[0], x[1]);
  } else if constexpr (kTo == Element::kBf16) {
    return v_cvt_scalef32_pk_bf16_fp8<kUpper>(bytes, 1);
  } else {
    return v_cvt_scalef32_pk_f16_fp8<kUpper>(bytes, 1);
  }
}
template <Element kTo>
__device__ __forceinline__ bf16x4 widened(uint32_t bytes) {
  return {widened<kTo, false>(bytes), widened<kTo, true>(bytes)};
}

// Byte kNth of two, lower or upper ones, of two registers.
template <Element kTo, bool kUpper, int kNth>
__device__ __forceinline__ uint32_t both(uint32_t a, uint32_t b) {
  if constexpr (Here::kConvertsPairs) {
    constexpr uint32_t kHalf = kNth ? kHighHalfOfBoth : kLowHalfOfBoth;
    return v_perm_b32<kHalf>(widened<kTo, kUpper>(b), widened<kTo, kUpper>(a));
  } else {
    const f32x2 x = v_cvt_pk_f32_fp8<kUpper>(a), y = v_cvt_pk_f32_fp8<kUpper>(b);
    return round_numbers<kTo, Rounding::kTowardZero>(x[kNth], y[kNth]);
  }
}
