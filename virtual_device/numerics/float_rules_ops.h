// Single-operand float instructions and small fixed-function ones, on bit patterns.
//
// Index (F is F16, F32 or F64)
//   trunc/ceil/floor/rndne<F>(x, m)        v_trunc_*, v_ceil_*, v_floor_*, v_rndne_*
//   fract<F>(x, m)                         v_fract_*
//   frexp_exp<F>(x, m), frexp_mant<F>(x, m)
//   mul_legacy_f32(a, b, m)                v_mul_legacy_f32; host arithmetic, follows MXCSR
//   cube_id/sc/tc/ma_f32(x, y, z)          v_cube*_f32; cube_ma follows MXCSR
#pragma once

#include "numerics/float_rules.h"

namespace vdev {

enum class ToIntegral { kTrunc, kCeil, kFloor, kNearestEven };

template <class F, ToIntegral kHow>
inline BitsOf<F> round_to_integral(Arg<F> x, const FpMode& m) {
  if (is_nan<F>(x)) return pass_nan<F>(x, m);
  x = flush_in<F>(x, m);
  const BitsOf<F> sign = sign_bit<F>(x), mag = magnitude<F>(x);
  const int exponent = exponent_field<F>(x) - F::kBias;
  if (exponent >= F::kManBits) return x;  // integral already, or infinite
  const bool away = kHow == ToIntegral::kCeil ? !sign : kHow == ToIntegral::kFloor ? sign : false;
  if (exponent < 0) {
    const bool nearest_is_one = kHow == ToIntegral::kNearestEven && mag > F::kOne - F::kHidden;
    return static_cast<BitsOf<F>>(sign | ((away && mag) || nearest_is_one ? F::kOne : 0));
  }
  const BitsOf<F> unit = static_cast<BitsOf<F>>(F::kHidden >> exponent);  // weight of 1.0
  const BitsOf<F> fraction = unit - 1;
  BitsOf<F> up = 0;  // carries into the exponent field where it must
  if constexpr (kHow == ToIntegral::kNearestEven) {
    // A significand of 1.0 (exponent 0) has its unit bit in the exponent field: kBias is odd.
    const BitsOf<F> odd = (mag & unit) ? 1 : 0;
    up = static_cast<BitsOf<F>>(unit / 2 - 1 + odd);
  } else if (away) {
    up = fraction;
  }
  return static_cast<BitsOf<F>>(sign | static_cast<BitsOf<F>>((mag + up) & ~fraction));
}
template <class F>
inline BitsOf<F> trunc(Arg<F> x, const FpMode& m) {
  return round_to_integral<F, ToIntegral::kTrunc>(x, m);
}
template <class F>
inline BitsOf<F> ceil(Arg<F> x, const FpMode& m) {
  return round_to_integral<F, ToIntegral::kCeil>(x, m);
}
template <class F>
inline BitsOf<F> floor(Arg<F> x, const FpMode& m) {
  return round_to_integral<F, ToIntegral::kFloor>(x, m);
}
template <class F>
inline BitsOf<F> rndne(Arg<F> x, const FpMode& m) {
  return round_to_integral<F, ToIntegral::kNearestEven>(x, m);
}

// x - floor(x) by MODE's rounding, but never 1.0: the result is capped at the float below it.
template <class F>
inline BitsOf<F> fract(Arg<F> x, const FpMode& m) {
  if (is_nan<F>(x)) return pass_nan<F>(x, m);
  if (is_inf<F>(x)) return F::kDefaultNan;
  x = flush_in<F>(x, m);
  constexpr BitsOf<F> kBelowOne = F::kOne - 1;
  const BitsOf<F> exact_zero = round_of<F>(m) == Round::kDown ? F::kSign : BitsOf<F>{0};
  if (is_zero<F>(x)) return exact_zero;
  const Unpacked<F> v = unpack<F>(x);
  if (v.exponent >= 0) return exact_zero;
  if (-v.exponent > 2 * F::kManBits + 2) {  // |x| is below half an ulp of 1.0
    return v.sign ? kBelowOne : flush_out<F>(x, m);
  }
  const u128 one = u128{1} << -v.exponent;
  u128 fraction = v.significand & (one - 1);
  if (fraction == 0) return exact_zero;
  if (v.sign) fraction = one - fraction;
  const BitsOf<F> r =
      round_pack<F>(false, v.exponent, fraction, round_of<F>(m), keeps_denorm_out<F>(m));
  return r > kBelowOne ? kBelowOne : r;
}

// x = mant * 2^exp with |mant| in [0.5, 1).
template <class F>
inline i32 frexp_exp(Arg<F> x, const FpMode& m) {
  x = flush_in<F>(x, m);
  if (is_zero<F>(x) || is_inf<F>(x) || is_nan<F>(x)) return 0;
  const Unpacked<F> v = unpack<F>(x);
  return v.exponent + 64 - std::countl_zero(v.significand);
}
template <class F>
inline BitsOf<F> frexp_mant(Arg<F> x, const FpMode& m) {
  if (is_nan<F>(x)) return pass_nan<F>(x, m);
  x = flush_in<F>(x, m);
  if (is_zero<F>(x) || is_inf<F>(x)) return x;
  const Unpacked<F> v = unpack<F>(x);
  const int width = 64 - std::countl_zero(v.significand);
  const u64 man = (v.significand << (F::kManBits + 1 - width)) & F::kManMask;
  return static_cast<BitsOf<F>>(sign_bit<F>(x) | (F::kOne - F::kHidden) | man);
}

// 0 times anything, also an infinity or a NaN, is +0.
inline u32 mul_legacy_f32(u32 a, u32 b, const FpMode& m) {
  if (is_zero<F32>(flush_in<F32>(a, m)) || is_zero<F32>(flush_in<F32>(b, m))) return 0;
  const u32 product = bit_cast<u32>(bit_cast<f32>(a) * bit_cast<f32>(b));
  return fix_nan<F32>(product, m, a, b);
}

// The cube map face of a direction: 0 +x, 1 -x, 2 +y, 3 -y, 4 +z, 5 -z. Ties prefer z, then y.
inline int cube_face(u32 x, u32 y, u32 z) {
  const f32 fx = bit_cast<f32>(x), fy = bit_cast<f32>(y), fz = bit_cast<f32>(z);
  const f32 ax = bit_cast<f32>(magnitude<F32>(x)), ay = bit_cast<f32>(magnitude<F32>(y)),
            az = bit_cast<f32>(magnitude<F32>(z));
  if (az >= ax && az >= ay) return fz < 0 ? 5 : 4;
  if (ay >= ax) return fy < 0 ? 3 : 2;
  return fx < 0 ? 1 : 0;
}
inline u32 cube_id_f32(u32 x, u32 y, u32 z) {
  return bit_cast<u32>(static_cast<f32>(cube_face(x, y, z)));
}
inline u32 cube_sc_f32(u32 x, u32 y, u32 z) {
  switch (cube_face(x, y, z)) {
    case 0:
      return z ^ F32::kSign;
    case 1:
      return z;
    case 5:
      return x ^ F32::kSign;
    default:
      return x;
  }
}
inline u32 cube_tc_f32(u32 x, u32 y, u32 z) {
  switch (cube_face(x, y, z)) {
    case 2:
      return z;
    case 3:
      return z ^ F32::kSign;
    default:
      return y ^ F32::kSign;
  }
}
inline u32 cube_ma_f32(u32 x, u32 y, u32 z) {
  const int face = cube_face(x, y, z);
  const f32 major = bit_cast<f32>(face >= 4 ? z : face >= 2 ? y : x);
  return bit_cast<u32>(major + major);
}

}  // namespace vdev
