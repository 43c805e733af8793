// Conversions between integers and floats. To integer: out of range saturates, NaN gives 0.
//
// Index
//   cvt_i32_f32 cvt_u32_f32 cvt_rpi_i32_f32 cvt_flr_i32_f32 (x)
//   cvt_f32_i32 cvt_f32_u32 (x, m)                       follow MXCSR, unlike the rest
//   cvt_f32_ubyte(x, byte)  cvt_off_f32_i4(x)
//   cvt_i32_f64 cvt_u32_f64 (x)  cvt_f64_i32 cvt_f64_u32 (x)
//   cvt_f32_f64(x, m)  cvt_f64_f32(x, m)
//   cvt_i16_f16 cvt_u16_f16 (x)  cvt_f16_i16 cvt_f16_u16 (x, m)
//   cvt_pk_i16_i32 cvt_pk_u16_u32 (lo, hi)  sat_pk_u8_i16(x)
//   cvt_pknorm_i16_f32 cvt_pknorm_u16_f32 (lo, hi, m)  cvt_pknorm_i16_f16 cvt_pknorm_u16_f16
//   cvt_norm_i16_f16 cvt_norm_u16_f16 (x, m)
//   cvt_pk_u8_f32(x, byte, old, m)
//   f32_to_bf16(x, fp16_ovfl)                            gfx950 v_cvt_pk_bf16_f32
#pragma once

#include "numerics/half.h"

namespace vdev {

// Rounds F to an integer and clamps it to [lo, hi]; NaN gives 0. Bit arithmetic, so that no MODE or
// MXCSR setting matters and the host's out-of-range conversions are never used.
template <class F>
inline i64 to_integer(Arg<F> x, Round round, i64 lo, i64 hi) {
  if (is_nan<F>(x)) return 0;
  const bool sign = sign_bit<F>(x) != 0;
  const int exponent = exponent_field<F>(x) - F::kBias;
  if (exponent >= 62) return sign ? lo : hi;
  const Unpacked<F> v = unpack<F>(x);
  u64 n;
  if (v.exponent >= 0) {
    n = v.significand << v.exponent;
  } else {
    const int drop = -v.exponent < 63 ? -v.exponent : 63;
    const u64 all = (u64{1} << drop) - 1;
    const bool away = round == (sign ? Round::kDown : Round::kUp);
    const u64 odd = v.significand >> drop & 1;
    const u64 bias = round == Round::kNearestEven ? (all >> 1) + odd : away ? all : 0;
    n = (v.significand + bias) >> drop;
  }
  const i64 value = sign ? -static_cast<i64>(n) : static_cast<i64>(n);
  return value < lo ? lo : value > hi ? hi : value;
}

inline constexpr i64 kMinI32 = INT32_MIN, kMaxI32 = INT32_MAX, kMaxU32 = UINT32_MAX;

// Host conversions of values known to be in range keep these two vectorisable.
inline u32 cvt_i32_f32(u32 x) {
  const f32 f = bit_cast<f32>(x);
  const bool in_range = f > -0x1p31f && f < 0x1p31f;
  const u32 inside = static_cast<u32>(static_cast<i32>(in_range ? f : 0.0f));
  const u32 outside = is_nan<F32>(x) ? 0u : x >> 31 ? 0x80000000u : 0x7fffffffu;
  return in_range ? inside : outside;
}
inline u32 cvt_u32_f32(u32 x) {
  const f32 f = bit_cast<f32>(x);
  const bool upper = f >= 0x1p31f;
  const f32 reduced = upper ? f - 0x1p31f : f;  // exact
  const bool in_range = reduced > 0 && reduced < 0x1p31f;
  const u32 inside = static_cast<u32>(static_cast<i32>(in_range ? reduced : 0.0f));
  return upper && !in_range && reduced != 0 ? ~0u : upper ? inside ^ 0x80000000u : inside;
}
inline u32 cvt_flr_i32_f32(u32 x) {
  return static_cast<u32>(to_integer<F32>(x, Round::kDown, kMinI32, kMaxI32));
}
// floor(x + 0.5) without rounding the sum.
inline u32 cvt_rpi_i32_f32(u32 x) {
  if (is_nan<F32>(x)) return 0;
  const i64 below = to_integer<F32>(x, Round::kDown, kMinI32, kMaxI32);
  if (exponent_field<F32>(x) - F32::kBias >= F32::kManBits) return static_cast<u32>(below);
  // |x| < 2^23: twice x is exact and its floor tells whether the fraction reaches a half.
  const Unpacked<F32> v = unpack<F32>(x);
  const u32 doubled = round_pack<F32>(v.sign, v.exponent + 1, v.significand, Round::kZero, true);
  const i64 halves = to_integer<F32>(doubled, Round::kDown, 2 * kMinI32, 2 * kMaxI32);
  return static_cast<u32>(below + (halves - 2 * below));
}

template <class F>
inline BitsOf<F> from_integer(i64 n, Round round) {
  const bool sign = n < 0;
  const u64 mag = sign ? ~static_cast<u64>(n) + 1 : static_cast<u64>(n);
  return round_pack<F>(sign, 0, mag, round, true);
}
// The host's conversions round by MXCSR, which holds MODE's f32 rounding.
inline u32 cvt_f32_i32(u32 x, const FpMode&) {
  return bit_cast<u32>(static_cast<f32>(static_cast<i32>(x)));
}
// Exact, and +0 for 0 in every rounding mode. Compilers vectorise an unsigned conversion (or a
// signed one of what they know to be positive) as a sum that cancels to -0 when rounding down.
inline f64 exact_f64(u32 x) {
  return static_cast<f64>(static_cast<i32>(x)) + (x >> 31 ? 4294967296.0 : 0.0);
}
inline u32 cvt_f32_u32(u32 x, const FpMode&) {
  return bit_cast<u32>(static_cast<f32>(exact_f64(x)));
}
inline u32 cvt_f32_ubyte(u32 x, u32 byte) {
  return bit_cast<u32>(static_cast<f32>(static_cast<i32>(x >> (8 * byte) & 0xff)));
}
// A signed 4-bit integer in sixteenths.
inline u32 cvt_off_f32_i4(u32 x) {
  const i32 n = static_cast<i32>(x << 28) >> 28;
  const u32 f = bit_cast<u32>(static_cast<f32>(n));
  return n ? f - (4u << 23) : 0;
}

inline u32 cvt_i32_f64(u64 x) {
  return static_cast<u32>(to_integer<F64>(x, Round::kZero, kMinI32, kMaxI32));
}
inline u32 cvt_u32_f64(u64 x) {
  return static_cast<u32>(to_integer<F64>(x, Round::kZero, 0, kMaxU32));
}
inline u64 cvt_f64_i32(u32 x) { return bit_cast<u64>(static_cast<f64>(static_cast<i32>(x))); }
inline u64 cvt_f64_u32(u32 x) { return bit_cast<u64>(exact_f64(x)); }

inline u32 cvt_f32_f64(u64 x, const FpMode& m) {
  x = flush_in<F64>(x, m);
  const u32 sign = static_cast<u32>(x >> 32) & F32::kSign;
  if (is_nan<F64>(x)) {
    const u32 payload = static_cast<u32>(x >> 29) & F32::kManMask;
    return pass_nan<F32>(sign | F32::kInf | (payload ? payload : F32::kQuietBit), m);
  }
  if (is_inf<F64>(x)) return sign | F32::kInf;
  const Unpacked<F64> v = unpack<F64>(x);
  return round_pack<F32>(v.sign, v.exponent, v.significand, m.round32, keeps_denorm_out<F32>(m));
}
inline u64 cvt_f64_f32(u32 x, const FpMode& m) {
  x = flush_in<F32>(x, m);
  const u64 sign = static_cast<u64>(x & F32::kSign) << 32;
  if (is_nan<F32>(x)) {
    return pass_nan<F64>(sign | F64::kInf | static_cast<u64>(x & F32::kManMask) << 29, m);
  }
  if (is_inf<F32>(x)) return sign | F64::kInf;
  const Unpacked<F32> v = unpack<F32>(x);
  return round_pack<F64>(v.sign, v.exponent, v.significand, Round::kZero, true);
}

inline u32 cvt_i16_f16(u16 x) {
  return static_cast<u16>(to_integer<F16>(x, Round::kZero, INT16_MIN, INT16_MAX));
}
inline u32 cvt_u16_f16(u16 x) {
  return static_cast<u16>(to_integer<F16>(x, Round::kZero, 0, UINT16_MAX));
}
inline u16 clamp_overflow_f16(u16 x, const FpMode& m) {
  return is_inf<F16>(x) && m.fp16_ovfl ? static_cast<u16>(x - 1) : x;
}
inline u16 cvt_f16_i16(u16 x, const FpMode& m) {
  return clamp_overflow_f16(from_integer<F16>(static_cast<i16>(x), m.round64), m);
}
inline u16 cvt_f16_u16(u16 x, const FpMode& m) {
  return clamp_overflow_f16(from_integer<F16>(x, m.round64), m);
}

inline u32 saturate(i64 n, i64 lo, i64 hi) {
  return static_cast<u32>(n < lo ? lo : n > hi ? hi : n);
}
inline u32 cvt_pk_i16_i32(u32 lo, u32 hi) {
  return (saturate(static_cast<i32>(lo), INT16_MIN, INT16_MAX) & 0xffff) |
         saturate(static_cast<i32>(hi), INT16_MIN, INT16_MAX) << 16;
}
inline u32 cvt_pk_u16_u32(u32 lo, u32 hi) {
  return saturate(lo, 0, UINT16_MAX) | saturate(hi, 0, UINT16_MAX) << 16;
}
inline u32 sat_pk_u8_i16(u32 x) {
  return saturate(static_cast<i16>(x), 0, 255) | saturate(static_cast<i16>(x >> 16), 0, 255) << 8;
}

// round(x * scale) clamped to the normalised range. The product is exact in f64.
template <class F>
inline u32 to_norm(Arg<F> x, Round round, bool is_signed) {
  if (is_nan<F>(x)) return 0;
  const i64 scale = is_signed ? 32767 : 65535;
  const i64 lo = is_signed ? -scale : 0;
  if (is_inf<F>(x)) return static_cast<u32>(sign_bit<F>(x) ? lo : scale) & 0xffff;
  const Unpacked<F> v = unpack<F>(x);
  const u64 product = round_pack<F64>(v.sign, v.exponent,
                                      static_cast<u128>(v.significand) * static_cast<u64>(scale),
                                      Round::kZero, true);
  return static_cast<u32>(to_integer<F64>(product, round, lo, scale)) & 0xffff;
}
inline u32 cvt_norm_i16_f16(u16 x, const FpMode& m) { return to_norm<F16>(x, m.round64, true); }
inline u32 cvt_norm_u16_f16(u16 x, const FpMode& m) { return to_norm<F16>(x, m.round64, false); }
inline u32 cvt_pknorm_i16_f32(u32 lo, u32 hi, const FpMode& m) {
  return to_norm<F32>(lo, m.round32, true) | to_norm<F32>(hi, m.round32, true) << 16;
}
inline u32 cvt_pknorm_u16_f32(u32 lo, u32 hi, const FpMode& m) {
  return to_norm<F32>(lo, m.round32, false) | to_norm<F32>(hi, m.round32, false) << 16;
}
inline u32 cvt_pknorm_i16_f16(u16 lo, u16 hi, const FpMode& m) {
  return cvt_norm_i16_f16(lo, m) | cvt_norm_i16_f16(hi, m) << 16;
}
inline u32 cvt_pknorm_u16_f16(u16 lo, u16 hi, const FpMode& m) {
  return cvt_norm_u16_f16(lo, m) | cvt_norm_u16_f16(hi, m) << 16;
}

inline u32 cvt_pk_u8_f32(u32 x, u32 byte, u32 old, const FpMode& m) {
  const u32 shift = 8 * (byte & 3);
  const u32 value = static_cast<u32>(to_integer<F32>(x, m.round32, 0, 255));
  return (old & ~(0xffu << shift)) | value << shift;
}

// Nearest even whatever MODE says. A NaN keeps its upper half, and bit 0 records dropped payload.
inline u32 f32_to_bf16(u32 x, bool fp16_ovfl) {
  if (is_nan<F32>(x)) return x >> 16 | ((x & 0xffff) != 0);
  const u32 r = (x + 0x7fff + (x >> 16 & 1)) >> 16;
  const bool overflow = (r & 0x7fff) == 0x7f80 && !is_inf<F32>(x);
  return overflow && fp16_ovfl ? r - 1 : r;
}

}  // namespace vdev
