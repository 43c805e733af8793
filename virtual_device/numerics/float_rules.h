// Bit-level floating-point rules of the gfx9 VALU, shared by every instruction that touches floats.
//
// Index (F is F16, F32 or F64; operands and results are bit patterns; nothing here reads MXCSR)
//   FpMode, fp_mode_from_register(mode)            decoded MODE register
//   is_nan/is_snan/is_inf/is_zero/is_denorm<F>(x)  quiet<F>(x)  magnitude<F>(x)  sign_bit<F>(x)
//   flush_in<F>(x, m)  flush_out<F>(x, m)          MODE.fp_denorm applied to an operand or a result
//   propagate_nan<F>(m, a, b[, c])                 the NaN an arithmetic instruction returns
//   fix_nan<F>(result, m, a, b[, c])               replaces a host NaN result by the device's
//   min_num/max_num<F>(a, b, m)                    v_min_*, v_max_*
//   min3/max3/med3<F>(a, b, c, m)                  v_min3_*, v_max3_*, v_med3_*
//   minimum3/maximum3<F>(a, b, c, m)               v_minimum3_*, v_maximum3_*
//   cmp_class<F>(x, mask)                          v_cmp_class_*
//   clamp01<F>(x, m)  apply_omod<F>(x, omod, m)    output modifiers
//   round_pack<F>(sign, exponent, significand, round, keep_denorm)
#pragma once

#include <type_traits>

#include "core/types.h"

// Lane functions that must not stay calls: a loop over lanes with a call in it does not vectorise.
#define VDEV_LANE_FN [[gnu::always_inline]] inline

namespace vdev {

using u128 = unsigned __int128;
using i128 = __int128;

enum class Round : u8 { kNearestEven = 0, kUp = 1, kDown = 2, kZero = 3 };

// The float fields of the MODE register. The "64" fields govern f16 and f64 alike.
struct FpMode {
  static constexpr u8 kKeepIn = 1, kKeepOut = 2;  // bits of denorm32 / denorm64

  Round round32 = Round::kNearestEven;
  Round round64 = Round::kNearestEven;
  u8 denorm32 = kKeepIn | kKeepOut;
  u8 denorm64 = kKeepIn | kKeepOut;
  bool dx10_clamp = true;
  bool ieee = true;
  bool fp16_ovfl = false;
};

inline FpMode fp_mode_from_register(u32 mode) {
  FpMode m;
  m.round32 = static_cast<Round>(mode & 3);
  m.round64 = static_cast<Round>(mode >> 2 & 3);
  m.denorm32 = static_cast<u8>(mode >> 4 & 3);
  m.denorm64 = static_cast<u8>(mode >> 6 & 3);
  m.dx10_clamp = mode >> 8 & 1;
  m.ieee = mode >> 9 & 1;
  m.fp16_ovfl = mode >> 23 & 1;
  return m;
}

template <class BitsT, int kManBitsV, int kExpBitsV>
struct FloatFormat {
  using Bits = BitsT;
  static constexpr int kManBits = kManBitsV;
  static constexpr int kBias = (1 << (kExpBitsV - 1)) - 1;
  static constexpr int kExpMax = (1 << kExpBitsV) - 1;
  static constexpr Bits kSign = static_cast<Bits>(Bits{1} << (kManBitsV + kExpBitsV));
  static constexpr Bits kMagnitude = kSign - 1;
  static constexpr Bits kHidden = static_cast<Bits>(Bits{1} << kManBitsV);
  static constexpr Bits kManMask = kHidden - 1;
  static constexpr Bits kInf = static_cast<Bits>(Bits{kExpMax} << kManBitsV);
  static constexpr Bits kMax = kInf - 1;
  static constexpr Bits kQuietBit = static_cast<Bits>(Bits{1} << (kManBitsV - 1));
  static constexpr Bits kOne = static_cast<Bits>(Bits{kBias} << kManBitsV);
  // Invalid operations give the negative quiet NaN: the ISA manual's functional examples
  // (V_SQRT_F32(-inf) = 0xffc00000, V_SIN_F16(inf) = 0xfe00, 0/0 in V_DIV_FIXUP) show it, and it
  // is what the host's own SSE arithmetic returns.
  static constexpr Bits kDefaultNan = static_cast<Bits>(kSign | kInf | kQuietBit);
};
using F16 = FloatFormat<u16, 10, 5>;
using F32 = FloatFormat<u32, 23, 8>;
using F64 = FloatFormat<u64, 52, 11>;
using Bf16 = FloatFormat<u16, 7, 8>;

template <class F>
using BitsOf = typename F::Bits;
// A non-deduced parameter, so that calls may pass wider integers for the u16 patterns.
template <class F>
using Arg = std::type_identity_t<BitsOf<F>>;

template <class F>
constexpr bool kIsF32 = sizeof(BitsOf<F>) == 4;

template <class F>
inline Round round_of(const FpMode& m) {
  return kIsF32<F> ? m.round32 : m.round64;
}
template <class F>
inline bool keeps_denorm_in(const FpMode& m) {
  return (kIsF32<F> ? m.denorm32 : m.denorm64) & FpMode::kKeepIn;
}
template <class F>
inline bool keeps_denorm_out(const FpMode& m) {
  return (kIsF32<F> ? m.denorm32 : m.denorm64) & FpMode::kKeepOut;
}

template <class F>
inline BitsOf<F> magnitude(Arg<F> x) {
  return x & F::kMagnitude;
}
template <class F>
inline BitsOf<F> sign_bit(Arg<F> x) {
  return x & F::kSign;
}
template <class F>
inline int exponent_field(Arg<F> x) {
  return static_cast<int>(magnitude<F>(x) >> F::kManBits);
}
template <class F>
inline bool is_nan(Arg<F> x) {
  return magnitude<F>(x) > F::kInf;
}
template <class F>
inline bool is_snan(Arg<F> x) {
  return is_nan<F>(x) && !(x & F::kQuietBit);
}
template <class F>
inline bool is_inf(Arg<F> x) {
  return magnitude<F>(x) == F::kInf;
}
template <class F>
inline bool is_zero(Arg<F> x) {
  return magnitude<F>(x) == 0;
}
template <class F>
inline bool is_denorm(Arg<F> x) {
  return magnitude<F>(x) - 1u < F::kHidden - 1u;
}
template <class F>
inline BitsOf<F> quiet(Arg<F> x) {
  return x | F::kQuietBit;
}

// MODE.fp_denorm keeps the sign of what it flushes.
template <class F>
VDEV_LANE_FN BitsOf<F> flush_unless(Arg<F> x, bool keep) {
  const BitsOf<F> dropped = keep ? BitsOf<F>{0} : F::kMagnitude;
  return x & ~((x & F::kInf) ? BitsOf<F>{0} : dropped);
}
template <class F>
inline BitsOf<F> flush_in(Arg<F> x, const FpMode& m) {
  return flush_unless<F>(x, keeps_denorm_in<F>(m));
}
template <class F>
inline BitsOf<F> flush_out(Arg<F> x, const FpMode& m) {
  return flush_unless<F>(x, keeps_denorm_out<F>(m));
}

// With IEEE=0 no instruction quiets a signalling NaN.
template <class F>
inline BitsOf<F> pass_nan(Arg<F> nan, const FpMode& m) {
  return m.ieee ? quiet<F>(nan) : nan;
}
template <class F>
inline BitsOf<F> propagate_nan(const FpMode& m, Arg<F> a, Arg<F> b, Arg<F> c = 0) {
  const BitsOf<F> nan = is_nan<F>(a) ? a : is_nan<F>(b) ? b : is_nan<F>(c) ? c : F::kDefaultNan;
  return pass_nan<F>(nan, m);
}
// Host arithmetic always quiets, and compilers commute its operands, so the NaN that comes out of
// `a + b` is any of the operands' NaNs; only whether the result is a NaN can be relied upon.
template <class F>
inline BitsOf<F> fix_nan(Arg<F> result, const FpMode& m, Arg<F> a, Arg<F> b, Arg<F> c = 0) {
  return is_nan<F>(result) ? propagate_nan<F>(m, a, b, c) : result;
}

// Minimum and maximum work on a monotonic integer key that puts -0 below +0. A NaN gets the key
// that loses against every number. Selections and bitwise operators rather than branches: v_max3 is
// hot and its lanes must vectorise.
template <class F>
using KeyOf = std::make_signed_t<BitsOf<F>>;

template <class F>
inline KeyOf<F> order_key(Arg<F> x) {
  const KeyOf<F> s = static_cast<KeyOf<F>>(x);
  return static_cast<KeyOf<F>>(s ^ ((s >> (8 * sizeof s - 1)) & F::kMagnitude));  // an involution
}
template <class F, bool kMax>
inline constexpr KeyOf<F> kLosingKey = static_cast<KeyOf<F>>(kMax ? F::kSign : F::kMagnitude);

template <class F, bool kMax>
VDEV_LANE_FN KeyOf<F> num_key(Arg<F> x) {
  const KeyOf<F> key = order_key<F>(x);
  return is_nan<F>(x) ? kLosingKey<F, kMax> : key;
}
template <bool kMax, class K>
inline K better(K a, K b) {
  return kMax ? (a > b ? a : b) : (a < b ? a : b);
}
// Bits to set in a result where x is a signalling NaN; none with IEEE=0, when those act as quiet.
template <class F>
VDEV_LANE_FN BitsOf<F> signal_mask(Arg<F> x, const FpMode& m) {
  const BitsOf<F> mag = magnitude<F>(x);
  const BitsOf<F> nan = mag > F::kInf ? F::kQuietBit : BitsOf<F>{0};
  return nan & ~x & static_cast<BitsOf<F>>(-static_cast<int>(m.ieee));
}

template <class F, bool kMax>
VDEV_LANE_FN BitsOf<F> extreme(Arg<F> a, Arg<F> b, const FpMode& m) {
  a = flush_in<F>(a, m);
  b = flush_in<F>(b, m);
  const KeyOf<F> key = better<kMax>(num_key<F, kMax>(a), num_key<F, kMax>(b));
  BitsOf<F> r = order_key<F>(static_cast<BitsOf<F>>(key));
  const BitsOf<F> a_signals = signal_mask<F>(a, m), b_signals = signal_mask<F>(b, m);
  r = key == kLosingKey<F, kMax> ? b : r;
  r = b_signals ? b : r;
  r = a_signals ? a : r;
  return flush_out<F>(r | a_signals | b_signals, m);
}
// extreme(extreme(a, b), c): a signalling a or b becomes a quiet NaN, which then yields to c.
template <class F, bool kMax>
VDEV_LANE_FN BitsOf<F> extreme3(Arg<F> a, Arg<F> b, Arg<F> c, const FpMode& m) {
  a = flush_in<F>(a, m);
  b = flush_in<F>(b, m);
  c = flush_in<F>(c, m);
  const KeyOf<F> key =
      better<kMax>(better<kMax>(num_key<F, kMax>(a), num_key<F, kMax>(b)), num_key<F, kMax>(c));
  const BitsOf<F> a_signals = signal_mask<F>(a, m), b_signals = signal_mask<F>(b, m),
                  c_signals = signal_mask<F>(c, m);
  BitsOf<F> r = order_key<F>(static_cast<BitsOf<F>>(key));
  r = key == kLosingKey<F, kMax> ? c : r;
  r = (a_signals | b_signals | c_signals) ? c : r;
  return flush_out<F>(r | c_signals, m);
}
template <class F>
VDEV_LANE_FN BitsOf<F> max_num(Arg<F> a, Arg<F> b, const FpMode& m) {
  return extreme<F, true>(a, b, m);
}
template <class F>
VDEV_LANE_FN BitsOf<F> min_num(Arg<F> a, Arg<F> b, const FpMode& m) {
  return extreme<F, false>(a, b, m);
}
template <class F>
VDEV_LANE_FN BitsOf<F> max3(Arg<F> a, Arg<F> b, Arg<F> c, const FpMode& m) {
  return extreme3<F, true>(a, b, c, m);
}
template <class F>
VDEV_LANE_FN BitsOf<F> min3(Arg<F> a, Arg<F> b, Arg<F> c, const FpMode& m) {
  return extreme3<F, false>(a, b, c, m);
}
// minimum() and maximum() of IEEE 754-2019: any NaN is the result, quiet whatever MODE.ieee says,
// a signalling one before a quiet one.
template <class F, bool kMax>
VDEV_LANE_FN BitsOf<F> extreme_or_nan(Arg<F> a, Arg<F> b, const FpMode& m) {
  a = flush_in<F>(a, m);
  b = flush_in<F>(b, m);
  const KeyOf<F> key = better<kMax>(order_key<F>(a), order_key<F>(b));
  const BitsOf<F> number = flush_out<F>(order_key<F>(static_cast<BitsOf<F>>(key)), m);
  const bool b_first = is_nan<F>(b) && !is_snan<F>(a) && (is_snan<F>(b) || !is_nan<F>(a));
  const BitsOf<F> nan = quiet<F>(b_first ? b : a);
  return is_nan<F>(a) || is_nan<F>(b) ? nan : number;
}
template <class F>
VDEV_LANE_FN BitsOf<F> minimum3(Arg<F> a, Arg<F> b, Arg<F> c, const FpMode& m) {
  return extreme_or_nan<F, false>(extreme_or_nan<F, false>(a, b, m), c, m);
}
template <class F>
VDEV_LANE_FN BitsOf<F> maximum3(Arg<F> a, Arg<F> b, Arg<F> c, const FpMode& m) {
  return extreme_or_nan<F, true>(extreme_or_nan<F, true>(a, b, m), c, m);
}
// The manual removes the maximum, comparing as floats (a -0 equals a maximum of +0), and takes the
// larger of the other two; any NaN makes it v_min3.
template <class F>
VDEV_LANE_FN BitsOf<F> med3(Arg<F> a, Arg<F> b, Arg<F> c, const FpMode& m) {
  const BitsOf<F> x = flush_in<F>(a, m), y = flush_in<F>(b, m), z = flush_in<F>(c, m);
  const KeyOf<F> p = order_key<F>(x), q = order_key<F>(y), r = order_key<F>(z);
  const auto merge_zeros = [](KeyOf<F> key) { return key == -1 ? KeyOf<F>{0} : key; };
  const KeyOf<F> top = merge_zeros(better<true>(better<true>(p, q), r));
  const bool a_top = merge_zeros(p) == top, b_top = merge_zeros(q) == top;
  const bool c_stays = a_top | b_top;
  const KeyOf<F> median = better<true>(a_top ? q : p, c_stays ? r : q);
  const BitsOf<F> number = flush_out<F>(order_key<F>(static_cast<BitsOf<F>>(median)), m);
  const bool x_nan = is_nan<F>(x), y_nan = is_nan<F>(y), z_nan = is_nan<F>(z);
  const BitsOf<F> least = min3<F>(a, b, c, m);
  return (x_nan | y_nan | z_nan) ? least : number;
}

// mask: bit 0 sNaN, 1 qNaN, 2 -inf, 3 -normal, 4 -denormal, 5 -0, 6 +0, 7 +denormal, 8 +normal,
// 9 +inf. MODE.fp_denorm is ignored.
template <class F>
inline bool cmp_class(Arg<F> x, u32 mask) {
  if (is_nan<F>(x)) return mask >> (x & F::kQuietBit ? 1 : 0) & 1;
  const int from_zero = is_zero<F>(x) ? 0 : is_denorm<F>(x) ? 1 : is_inf<F>(x) ? 3 : 2;
  return mask >> (sign_bit<F>(x) ? 5 - from_zero : 6 + from_zero) & 1;
}

template <class F>
inline BitsOf<F> clamp01(Arg<F> x, const FpMode& m) {
  if (is_nan<F>(x)) return m.dx10_clamp ? BitsOf<F>{0} : x;
  if (sign_bit<F>(x)) return 0;
  return x > F::kOne ? F::kOne : x;
}

// Rounds (-1)^sign * significand * 2^exponent to F. A caller that has dropped non-zero bits below
// the significand sets its bit 0 (sticky) and leaves at least two bits of room above F's precision.
template <class F>
inline BitsOf<F> round_pack(bool sign, int exponent, u128 significand, Round round,
                            bool keep_denorm) {
  const BitsOf<F> sign_bits = sign ? F::kSign : BitsOf<F>{0};
  if (significand == 0) return sign_bits;
  const u64 high = static_cast<u64>(significand >> 64);
  const int width =
      high ? 128 - std::countl_zero(high) : 64 - std::countl_zero(static_cast<u64>(significand));
  constexpr int kMinLsb = 1 - F::kBias - F::kManBits;  // weight of F's lowest denormal bit
  int lsb = exponent + width - 1 - F::kManBits;        // weight of the result's last bit
  if (lsb < kMinLsb) lsb = kMinLsb;
  const int drop = lsb - exponent;
  u128 kept = significand;
  bool above_half = false, half = false, inexact = false;
  if (drop > 127) {
    kept = 0;
    inexact = true;
  } else if (drop > 0) {
    const u128 rest = significand & ((u128{1} << drop) - 1);
    const u128 middle = u128{1} << (drop - 1);
    kept = significand >> drop;
    inexact = rest != 0;
    above_half = rest > middle;
    half = rest == middle;
  } else {
    kept = significand << -drop;
  }
  const bool odd = static_cast<u64>(kept) & 1;
  switch (round) {
    case Round::kNearestEven:
      kept += above_half || (half && odd);
      break;
    case Round::kUp:
      kept += inexact && !sign;
      break;
    case Round::kDown:
      kept += inexact && sign;
      break;
    case Round::kZero:
      break;
  }
  // The hidden bit carries into the exponent field by itself, also when rounding overflowed it.
  const i64 field = static_cast<i64>(lsb) - kMinLsb;
  if (field >= F::kExpMax) kept = F::kInf;
  const u128 packed = kept < F::kHidden || kept >= F::kInf
                          ? kept
                          : kept + (static_cast<u128>(field) << F::kManBits);
  if (packed >= F::kInf) {
    const bool to_inf = round == Round::kNearestEven || round == (sign ? Round::kDown : Round::kUp);
    return sign_bits | (to_inf ? F::kInf : F::kMax);
  }
  const BitsOf<F> r = static_cast<BitsOf<F>>(sign_bits | static_cast<BitsOf<F>>(packed));
  return flush_unless<F>(r, keep_denorm);
}

// A finite non-zero value as significand * 2^exponent with an integral significand.
template <class F>
struct Unpacked {
  bool sign;
  int exponent;
  u64 significand;
};
template <class F>
inline Unpacked<F> unpack(Arg<F> x) {
  const int field = exponent_field<F>(x);
  const u64 man = x & F::kManMask;
  return {sign_bit<F>(x) != 0, (field ? field : 1) - F::kBias - F::kManBits,
          field ? man | F::kHidden : man};
}

// x * 2^n with one rounding, as v_ldexp.
template <class F>
inline BitsOf<F> ldexp(Arg<F> x, i32 n, const FpMode& m) {
  if (is_nan<F>(x)) return pass_nan<F>(x, m);
  x = flush_in<F>(x, m);
  if (is_inf<F>(x) || is_zero<F>(x)) return x;
  const Unpacked<F> v = unpack<F>(x);
  constexpr i32 kLimit = 4 * F::kExpMax;  // beyond any exponent difference, and never overflows
  n = n < -kLimit ? -kLimit : n > kLimit ? kLimit : n;
  return round_pack<F>(v.sign, v.exponent + n, v.significand, round_of<F>(m),
                       keeps_denorm_out<F>(m));
}

// omod: 0 none, 1 x2, 2 x4, 3 /2. The hardware ignores it with IEEE=1 or with denormal results
// kept, and it turns -0 into +0.
template <class F>
inline BitsOf<F> apply_omod(Arg<F> x, u32 omod, const FpMode& m) {
  if (omod == 0 || m.ieee || keeps_denorm_out<F>(m)) return x;
  const BitsOf<F> r = ldexp<F>(x, omod == 3 ? -1 : static_cast<i32>(omod), m);
  return is_zero<F>(r) ? BitsOf<F>{0} : r;
}

}  // namespace vdev
