// f16 conversions and arithmetic, each with a single rounding, independent of MXCSR.
//
// Index (f16 values are u16 patterns; pass a register's half as static_cast<u16>)
//   f16_to_f32(x, m)  f16_to_f64(x)         exact; f16_to_f64 wants no NaN
//   f32_to_f16(x, round, m)  f64_to_f16(x, round, m)
//   cvt_f16_f32(x, m)                       v_cvt_f16_f32: MODE's f16/f64 rounding
//   cvt_pkrtz_f16_f32(lo, hi, m)            v_cvt_pkrtz_f16_f32
//   add_f16 sub_f16 mul_f16 (a, b, m)  fma_f16(a, b, c, m)
//   mad_f16(a, b, c, m)                     v_mad_f16, v_mac_f16: two roundings, denormals flushed
//   min/max/med3: max_num<F16> etc. in float_rules.h; ldexp<F16>, rndne<F16>, ... likewise
#pragma once

#include "numerics/float_rules.h"

namespace vdev {

// Rounds a finite magnitude of Src to the narrower Dst. The result overflows Dst's largest code
// rather than saturating, so that each format can apply its own overflow rule.
template <class Src, class Dst>
VDEV_LANE_FN BitsOf<Src> narrow_magnitude(BitsOf<Src> mag, bool sign, Round round) {
  using W = BitsOf<Src>;
  constexpr int kWidth = 8 * sizeof(W);
  const int field = static_cast<int>(mag >> Src::kManBits);
  const W significand = (mag & Src::kManMask) | (field ? Src::kHidden : W{0});
  const int exponent = (field ? field : 1) - Src::kBias + Dst::kBias;
  int drop = Src::kManBits - Dst::kManBits + (exponent < 1 ? 1 - exponent : 0);
  drop = drop < kWidth - 2 ? drop : kWidth - 2;
  const W all = (W{1} << drop) - 1;
  const W odd = significand >> drop & 1;
  const bool away = round == (sign ? Round::kDown : Round::kUp);
  const W bias = round == Round::kNearestEven ? (all >> 1) + odd : away ? all : W{0};
  const W kept = (significand + bias) >> drop;
  return kept + (exponent > 1 ? static_cast<W>(exponent - 1) << Dst::kManBits : W{0});
}

// Selections rather than branches: the conversions run in loops over lanes that must vectorise.
template <class Src>
VDEV_LANE_FN u16 narrow_to_f16(BitsOf<Src> x, Round round, const FpMode& m) {
  using W = BitsOf<Src>;
  constexpr int kShift = Src::kManBits - F16::kManBits;
  const W sign = x >> (8 * sizeof(W) - 16) & F16::kSign, mag = magnitude<Src>(x);
  const bool away = round == (sign ? Round::kDown : Round::kUp);
  const bool to_inf = ((round == Round::kNearestEven) | away) & !m.fp16_ovfl;
  W r = narrow_magnitude<Src, F16>(mag, sign != 0, round);
  const W least = keeps_denorm_out<F16>(m) ? 0 : F16::kHidden;
  r = r < least ? 0 : r;
  r = r >= F16::kInf ? W{to_inf ? F16::kInf : F16::kMax} : r;
  r = mag == Src::kInf ? F16::kInf : r;
  // The payload bits of a NaN may all fall off the end: it must stay a NaN.
  const W payload = mag >> kShift & F16::kManMask;
  const bool keep = (payload != 0) & !m.ieee;
  const W nan = F16::kInf | payload | (keep ? 0 : F16::kQuietBit);
  return static_cast<u16>(sign | (mag > Src::kInf ? nan : r));
}
VDEV_LANE_FN u16 f32_to_f16(u32 x, Round round, const FpMode& m) {
  return narrow_to_f16<F32>(flush_in<F32>(x, m), round, m);
}
VDEV_LANE_FN u16 f64_to_f16(u64 x, Round round, const FpMode& m) {
  return narrow_to_f16<F64>(x, round, m);
}

// Exact for every pattern; a NaN keeps its payload.
VDEV_LANE_FN u32 widen_f16(u16 x) {
  const u32 mag = magnitude<F16>(x);
  const u32 sign = static_cast<u32>(sign_bit<F16>(x)) << 16;
  const u32 shifted = mag << 13;
  // A denormal is m * 2^-24: put m below 2^-14's hidden bit, then subtract 2^-14. The difference is
  // a normal f32, so neither DAZ nor FTZ can touch it (a multiplication would meet an f32
  // denormal).
  constexpr u32 kTwoToMinus14 = 113u << 23;
  const f32 low = bit_cast<f32>(shifted | kTwoToMinus14) - bit_cast<f32>(kTwoToMinus14);
  const u32 denorm = magnitude<F32>(bit_cast<u32>(low));
  const u32 normal = shifted + (112u << 23);
  const u32 special = shifted + (224u << 23);
  return sign | (mag < F16::kHidden ? denorm : mag >= F16::kInf ? special : normal);
}
VDEV_LANE_FN u32 f16_to_f32(u16 x, const FpMode& m) {
  const u32 r = widen_f16(flush_in<F16>(x, m));
  return is_nan<F32>(r) ? pass_nan<F32>(r, m) : r;
}
inline f64 f16_to_f64(u16 x) { return static_cast<f64>(bit_cast<f32>(widen_f16(x))); }

VDEV_LANE_FN u16 cvt_f16_f32(u32 x, const FpMode& m) { return f32_to_f16(x, m.round64, m); }
VDEV_LANE_FN u32 cvt_pkrtz_f16_f32(u32 lo, u32 hi, const FpMode& m) {
  return f32_to_f16(lo, Round::kZero, m) | static_cast<u32>(f32_to_f16(hi, Round::kZero, m)) << 16;
}

// `r` is exact or infinite, so the host's rounding mode had no part in it except for the sign of a
// cancelled sum.
inline u16 finish_f16(f64 r, bool cancelled, const FpMode& m) {
  if (cancelled) return m.round64 == Round::kDown ? F16::kSign : u16{0};
  return f64_to_f16(bit_cast<u64>(r), m.round64, m);
}
inline u16 add_f16(u16 a, u16 b, const FpMode& m) {
  a = flush_in<F16>(a, m);
  b = flush_in<F16>(b, m);
  const f64 r = f16_to_f64(a) + f16_to_f64(b);
  const bool both_zero_same_sign = is_zero<F16>(a) && a == b;
  return fix_nan<F16>(finish_f16(r, r == 0 && !both_zero_same_sign, m), m, a, b);
}
inline u16 sub_f16(u16 a, u16 b, const FpMode& m) {
  return fix_nan<F16>(add_f16(a, b ^ F16::kSign, m), m, a, b);  // b's NaN, not its negation
}
inline u16 mul_f16(u16 a, u16 b, const FpMode& m) {
  a = flush_in<F16>(a, m);
  b = flush_in<F16>(b, m);
  return fix_nan<F16>(finish_f16(f16_to_f64(a) * f16_to_f64(b), false, m), m, a, b);
}
inline u16 fma_f16(u16 a, u16 b, u16 c, const FpMode& m) {
  a = flush_in<F16>(a, m);
  b = flush_in<F16>(b, m);
  c = flush_in<F16>(c, m);
  const f64 product = f16_to_f64(a) * f16_to_f64(b), addend = f16_to_f64(c);
  // An f64 cannot hold product + addend when the product is more than 2^28 times smaller. Such a
  // product only matters as "a little more or less than the addend", which 2^-28 of it is as well:
  // raising it keeps the sum exact and rounds the same in every mode.
  const f64 least = addend * 0x1p-28;
  const u64 raised = magnitude<F64>(bit_cast<u64>(least));
  const u64 bits = bit_cast<u64>(product);
  const u64 product_mag = magnitude<F64>(bits);
  const bool raise = product_mag != 0 && product_mag < raised && raised < F64::kInf;
  const f64 p = bit_cast<f64>(raise ? sign_bit<F64>(bits) | raised : bits);
  const f64 r = p + addend;
  const bool same_zeros =
      product == 0 && addend == 0 && sign_bit<F64>(bits) == sign_bit<F64>(bit_cast<u64>(addend));
  return fix_nan<F16>(finish_f16(r, r == 0 && !same_zeros, m), m, a, b, c);
}
inline u16 mad_f16(u16 a, u16 b, u16 c, FpMode m) {
  m.denorm64 = 0;
  const u16 product = mul_f16(a, b, m);
  return fix_nan<F16>(add_f16(product, c, m), m, a, b, c);
}

}  // namespace vdev
