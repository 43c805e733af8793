// Stochastic rounding, and the numbers that it takes.
//
// Index
//   prng(x)                                 v_prng_b32: the next pseudorandom number
//   stochastic_magnitude<Fmt>(x, seed)      a narrower format's code of |x|
//   cvt_sr_f16_f32(x, seed, m)  cvt_sr_bf16_f32(x, seed, m)
#pragma once

#include "numerics/convert.h"
#include "numerics/half.h"

namespace vdev {

// One step of a linear feedback shift register.
constexpr u32 prng(u32 x) { return x << 1 ^ (x >> 31 ? 197u : 0u); }

// The seed's leading bits are added to the discarded bits, then the sum is truncated. There are 20
// (fp8), 21 (bf8) or 13 (f16) of them for a normal result; a denormal result discards more, of
// which the seed covers the leading ones. x is no denormal; the result may be beyond the largest
// code.
template <class Fmt>
VDEV_LANE_FN u32 stochastic_magnitude(u32 x, u32 seed) {
  const u32 mag = magnitude<F32>(x);
  constexpr int kDrop = F32::kManBits - Fmt::kManBits;
  const int field = static_cast<int>(mag >> F32::kManBits);
  const u32 significand = field ? (mag & F32::kManMask) | F32::kHidden : 0;
  const int exponent = field - F32::kBias + Fmt::kBias;
  const int below = exponent < 1 ? (1 - exponent < 31 ? 1 - exponent : 31) : 0;
  const u32 kept = ((significand >> below) + (seed >> (32 - kDrop))) >> kDrop;
  const u32 code = kept + (exponent > 1 ? static_cast<u32>(exponent - 1) << Fmt::kManBits : 0);
  return field ? code : 0;
}
inline u16 cvt_sr_f16_f32(u32 x, u32 seed, const FpMode& m) {
  if (magnitude<F32>(x) >= F32::kInf) return f32_to_f16(x, Round::kZero, m);
  const u32 sign = x >> 16 & F16::kSign, code = stochastic_magnitude<F16>(x, seed);
  if (code >= F16::kInf) return static_cast<u16>(sign | (m.fp16_ovfl ? F16::kMax : F16::kInf));
  return flush_out<F16>(static_cast<u16>(sign | code), m);
}
// The seed's upper half is added; denormals of both formats have one exponent.
inline u16 cvt_sr_bf16_f32(u32 x, u32 seed, const FpMode& m) {
  if (magnitude<F32>(x) >= F32::kInf) return static_cast<u16>(f32_to_bf16(x, m.fp16_ovfl));
  const u32 sum = flush_in<F32>(x, m) + (seed >> 16);
  const u16 r = static_cast<u16>(sum >> 16);
  return magnitude<Bf16>(r) == Bf16::kInf && m.fp16_ovfl ? r - 1 : r;
}

}  // namespace vdev
