// The division macro: v_div_scale, v_div_fmas, v_div_fixup (operands: quotient or value to scale,
// denominator, numerator), and the exact fused multiply-add they need.
//
// Index (F is F32 or F64; div_fixup also F16)
//   fused_scaled<F>(a, b, c, scale, round, keep_denorm)   (a*b + c) * 2^scale rounded once
//   div_scale<F>(s0, denominator, numerator, m) -> DivScale{value, vcc}
//   div_fmas<F>(a, b, c, vcc, m)
//   div_fixup<F>(quotient, denominator, numerator, m)
#pragma once

#include "numerics/float_rules.h"

namespace vdev {

// Finite operands only. Independent of MXCSR and of the host's FMA unit.
template <class F>
inline BitsOf<F> fused_scaled(Arg<F> a, Arg<F> b, Arg<F> c, int scale, Round round,
                              bool keep_denorm) {
  const bool product_sign = sign_bit<F>(a ^ b) != 0;
  if (is_zero<F>(a) || is_zero<F>(b)) {
    if (!is_zero<F>(c)) {
      const Unpacked<F> v = unpack<F>(c);
      return round_pack<F>(v.sign, v.exponent + scale, v.significand, round, keep_denorm);
    }
    const bool sign = product_sign == (sign_bit<F>(c) != 0) ? product_sign : round == Round::kDown;
    return sign ? F::kSign : BitsOf<F>{0};
  }
  const Unpacked<F> x = unpack<F>(a), y = unpack<F>(b);
  u128 p = static_cast<u128>(x.significand) * y.significand;
  int p_exp = x.exponent + y.exponent;
  if (is_zero<F>(c)) return round_pack<F>(product_sign, p_exp + scale, p, round, keep_denorm);

  const Unpacked<F> z = unpack<F>(c);
  u128 s = z.significand;
  int s_exp = z.exponent;
  // Left-align both below bit 126, which leaves one bit for the carry of the sum.
  const auto normalise = [](u128& v, int& e) {
    const u64 high = static_cast<u64>(v >> 64);
    const int zeros = high ? std::countl_zero(high) : 64 + std::countl_zero(static_cast<u64>(v));
    v = zeros ? v << (zeros - 1) : v >> 1;
    e -= zeros - 1;
  };
  normalise(p, p_exp);
  normalise(s, s_exp);
  const auto shift_sticky = [](u128 v, int n) -> u128 {
    if (n > 126) return 1;
    return n == 0 ? v : (v >> n) | ((v & ((u128{1} << n) - 1)) != 0);
  };
  const int e = p_exp > s_exp ? p_exp : s_exp;
  p = shift_sticky(p, e - p_exp);
  s = shift_sticky(s, e - s_exp);
  if (product_sign == z.sign) {
    return round_pack<F>(z.sign, e + scale, p + s, round, keep_denorm);
  }
  if (p == s) return round == Round::kDown ? F::kSign : BitsOf<F>{0};
  const bool p_wins = p > s;
  return round_pack<F>(p_wins ? product_sign : z.sign, e + scale, p_wins ? p - s : s - p, round,
                       keep_denorm);
}

template <class F>
struct DivScale {
  BitsOf<F> value;
  bool vcc;
};

// Scaling keeps the reciprocal, the residual and the quotient normal; vcc asks v_div_fmas to undo
// it. The manual's pseudocode multiplies a denominator above 2^126 by 2^64 when the quotient is
// denormal, which would overflow; here it is divided, as in the neighbouring case, so that the
// sequence of the compiler's division expansion is correctly rounded (the test runs it).
template <class F>
inline DivScale<F> div_scale(Arg<F> s0, Arg<F> denominator, Arg<F> numerator, const FpMode& m) {
  constexpr int kScale = F::kManBits == 23 ? 64 : 128;
  constexpr int kHugeQuotient = F::kManBits == 23 ? 96 : 768;
  constexpr int kTinyNumerator = F::kManBits == 23 ? 23 : 53;
  const bool is_denominator = s0 == denominator, is_numerator = s0 == numerator;
  const BitsOf<F> d = flush_in<F>(denominator, m), n = flush_in<F>(numerator, m);
  if (is_zero<F>(d) || is_zero<F>(n)) return {F::kDefaultNan, false};
  const auto scaled = [&](int by) {
    FpMode keep = m;  // scaling away from the denormal range must not flush first
    keep.denorm32 = keep.denorm64 = FpMode::kKeepIn | FpMode::kKeepOut;
    return ldexp<F>(s0, by, keep);
  };
  if (is_nan<F>(d) || is_nan<F>(n) || is_inf<F>(d) || is_inf<F>(n)) return {s0, false};
  if (exponent_field<F>(n) - exponent_field<F>(d) >= kHugeQuotient) {
    return {is_denominator ? scaled(kScale) : s0, true};
  }
  if (is_denorm<F>(d)) return {scaled(kScale), false};

  const Unpacked<F> nu = unpack<F>(n), du = unpack<F>(d);
  const int shift = std::countl_zero(nu.significand) - std::countl_zero(du.significand);
  const int quotient_exponent = nu.exponent - du.exponent - shift;  // of n/d, or one too many
  const u64 nm = nu.significand << std::countl_zero(nu.significand);
  const u64 dm = du.significand << std::countl_zero(du.significand);
  const bool quotient_denorm = quotient_exponent - (nm < dm) < 1 - F::kBias;
  const bool reciprocal_denorm =
      magnitude<F>(d) > static_cast<BitsOf<F>>(F::kMax - 2 * F::kHidden + 1);
  if (reciprocal_denorm && quotient_denorm) return {is_denominator ? scaled(-kScale) : s0, true};
  if (reciprocal_denorm) return {scaled(-kScale), false};
  if (quotient_denorm) return {is_numerator ? scaled(kScale) : s0, true};
  if (exponent_field<F>(n) <= kTinyNumerator) return {scaled(kScale), false};
  return {s0, false};
}

// fma, then the inverse of v_div_scale's scaling, as one rounding. Its direction follows from the
// magnitude of the addend, the unrefined quotient (2^32 in the manual is not what division needs).
template <class F>
inline BitsOf<F> div_fmas(Arg<F> a, Arg<F> b, Arg<F> c, bool vcc, const FpMode& m) {
  if (is_nan<F>(a) || is_nan<F>(b) || is_nan<F>(c)) return propagate_nan<F>(m, a, b, c);
  const bool infinite_product = is_inf<F>(a) || is_inf<F>(b);
  if (infinite_product || is_inf<F>(c)) {
    const BitsOf<F> sign = sign_bit<F>(a ^ b);
    const bool invalid = (infinite_product && (is_zero<F>(a) || is_zero<F>(b))) ||
                         (infinite_product && is_inf<F>(c) && sign != sign_bit<F>(c));
    if (invalid) return F::kDefaultNan;
    return infinite_product ? static_cast<BitsOf<F>>(sign | F::kInf) : c;
  }
  constexpr int kScale = F::kManBits == 23 ? 64 : 128;
  const int scale = !vcc ? 0 : exponent_field<F>(c) > F::kBias ? kScale : -kScale;
  return fused_scaled<F>(a, b, c, scale, round_of<F>(m), keeps_denorm_out<F>(m));
}

template <class F>
inline BitsOf<F> div_fixup(Arg<F> quotient, Arg<F> denominator, Arg<F> numerator, const FpMode& m) {
  const BitsOf<F> d = flush_in<F>(denominator, m), n = flush_in<F>(numerator, m);
  if (is_nan<F>(n)) return quiet<F>(n);
  if (is_nan<F>(d)) return quiet<F>(d);
  if ((is_zero<F>(d) && is_zero<F>(n)) || (is_inf<F>(d) && is_inf<F>(n))) return F::kDefaultNan;
  const BitsOf<F> sign = sign_bit<F>(d ^ n);
  if (is_zero<F>(d) || is_inf<F>(n)) return sign | F::kInf;
  if (is_inf<F>(d) || is_zero<F>(n)) return sign;
  if constexpr (F::kManBits != 10) {
    // A quotient out of range has no use for the value the macro computed: a residual that
    // overflowed has made it a NaN.
    constexpr int kUnderflow = F::kManBits == 23 ? -150 : -1075;
    const bool underflow = exponent_field<F>(n) - exponent_field<F>(d) < kUnderflow;
    if (underflow || is_nan<F>(quotient)) {
      return round_pack<F>(sign != 0, underflow ? 4 * kUnderflow : -4 * kUnderflow, 1,
                           round_of<F>(m), keeps_denorm_out<F>(m));
    }
  }
  return sign | magnitude<F>(quotient);
}

}  // namespace vdev
