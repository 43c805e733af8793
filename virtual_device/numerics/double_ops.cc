#include "numerics/double_ops.h"

#include "numerics/float_rules_div.h"
#include "numerics/float_rules_mxcsr.h"

namespace vdev {
namespace {

// The first 1201 bits of 2/pi, most significant first; the last word ends in padding zeros.
constexpr int kTwoOverPiBits = 1201;
constexpr u64 kTwoOverPi[20] = {
    0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
    0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484,
    0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b,
    0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b0000,
};

// 53 bits of 2/pi from `position` on, counted from the binary point; zeros beyond the last.
inline u64 two_over_pi(int position) {
  if (position >= kTwoOverPiBits) return 0;
  const int word = position / 64, offset = position % 64;
  const u64 high = kTwoOverPi[word] << offset;
  const u64 low = offset ? kTwoOverPi[word + 1] >> (64 - offset) : 0;
  return (high | low) >> 11;
}

// Ties the host operation to the MXCSR scope around it.
inline f64 in_scope(f64 x) {
  asm volatile("" : "+m"(x));
  return x;
}

}  // namespace

u64 rcp_f64(u64 x) {
  if (is_nan<F64>(x)) return quiet<F64>(x);
  const MxcsrScope scope(kMxcsrModeMask, 0);
  return bit_cast<u64>(in_scope(1.0 / in_scope(bit_cast<f64>(x))));
}

u64 sqrt_f64(u64 x) {
  if (is_nan<F64>(x)) return quiet<F64>(x);
  const MxcsrScope scope(kMxcsrModeMask, 0);
  return bit_cast<u64>(in_scope(__builtin_sqrt(in_scope(bit_cast<f64>(x)))));
}

u64 rsq_f64(u64 x) {
  if (is_nan<F64>(x)) return quiet<F64>(x);
  if (is_zero<F64>(x)) return x | F64::kInf;
  if (sign_bit<F64>(x)) return F64::kDefaultNan;
  if (is_inf<F64>(x)) return 0;
  Unpacked<F64> v = unpack<F64>(x);
  const int up = std::countl_zero(v.significand) - 11;
  v.significand <<= up;
  v.exponent -= up;
  if (v.exponent & 1) {
    v.significand <<= 1;
    v.exponent -= 1;
  }
  // x = s * 2^(2 h) with s in [2^52, 2^54), so y = 2^79 / sqrt(s) is in (2^52, 2^53]. The host's
  // estimate is at most a few units off; comparing (2 y +- 1)^2 s with 2^160 settles the rounding.
  // The difference is far below 2^127, so that it may be computed modulo 2^128, where 2^160 is 0.
  const u64 s = v.significand;
  u64 y = static_cast<u64>(0x1p79 / __builtin_sqrt(static_cast<f64>(s)));
  const auto excess = [s](u64 odd) { return static_cast<i128>(static_cast<u128>(odd) * odd * s); };
  while (excess(2 * y + 1) < 0) ++y;
  while (excess(2 * y - 1) > 0) --y;
  return round_pack<F64>(false, -79 - v.exponent / 2, y, Round::kNearestEven, true);
}

u64 trig_preop_f64(u64 x, u32 segment) {
  const int exponent = exponent_field<F64>(x);
  const int shift = static_cast<int>(segment & 31) * 53 + (exponent > 1077 ? exponent - 1077 : 0);
  const int scale = -53 - shift + (exponent >= 1968 ? 128 : 0);
  return round_pack<F64>(false, scale, two_over_pi(shift), Round::kNearestEven, true);
}

u64 fma_f64(u64 a, u64 b, u64 c, const FpMode& m) {
#ifdef __FMA__
  const f64 r = __builtin_fma(bit_cast<f64>(a), bit_cast<f64>(b), bit_cast<f64>(c));
  return fix_nan<F64>(bit_cast<u64>(r), m, a, b, c);
#else
  return div_fmas<F64>(flush_in<F64>(a, m), flush_in<F64>(b, m), flush_in<F64>(c, m), false, m);
#endif
}

}  // namespace vdev
