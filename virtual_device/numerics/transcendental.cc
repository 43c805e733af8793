#include "numerics/transcendental.h"

#include "numerics/float_rules_mxcsr.h"
#include "numerics/half.h"

// v_exp_f32 is in transcendental_exp.cc.
//
// Each kernel reduces its argument exactly, evaluates a minimax polynomial (Remez; the comment
// gives its largest error) or a correctly rounded host operation in f64, and rounds once to f32.
// No libm and no contraction, so every build and compiler gives the same bits. Kernels have no
// branches: the loops over 64 lanes vectorise as they stand.

namespace vdev {
namespace {

// Adding and subtracting 1.5 * 2^52 rounds to the nearest integer.
constexpr f64 kRound = 0x1.8p52;

inline u32 select(bool condition, u32 yes, u32 no) { return condition ? yes : no; }

// 2^f for |f| <= 1/2, within 2^-34.3; exact at 0.
inline f64 exp2_fraction(f64 f) {
  f64 p = 0x1.00f13edc42c21p-16;
  p = p * f + 0x1.445e6a68d6d11p-13;
  p = p * f + 0x1.5d87239499ba5p-10;
  p = p * f + 0x1.3b29f0fe34dabp-7;
  p = p * f + 0x1.c6b08df471245p-5;
  p = p * f + 0x1.ebfbe07ab8322p-3;
  p = p * f + 0x1.62e42fef7b5c8p-1;
  return p * f + 1.0;
}

// log2 of a positive normal x given by its bits: 2 atanh(s) / ln 2 with s = (m - 1) / (m + 1) and m
// in [sqrt(1/2), sqrt(2)), within 2^-43.5 of s. No cancellation: |exponent| is 0 or at least 1.
inline f64 log2_positive(u32 x) {
  constexpr u32 kSqrtHalf = 0x3f3504f3;
  const u32 offset = x - kSqrtHalf;
  const i32 exponent = static_cast<i32>(offset) >> 23;
  const f64 m = bit_cast<f32>((offset & F32::kManMask) + kSqrtHalf);
  const f64 s = (m - 1.0) / (m + 1.0);
  const f64 z = s * s;
  f64 p = 0x1.21b2b1349f3c6p-2;
  p = p * z + 0x1.479533b2ad4afp-2;
  p = p * z + 0x1.a61a2fb4315e1p-2;
  p = p * z + 0x1.2776c291f9f63p-1;
  p = p * z + 0x1.ec709dc53da13p-1;
  p = p * z + 0x1.71547652b8250p+1;
  return p * s + exponent;
}

inline u32 log_kernel(u32 x) {
  const u32 mag = magnitude<F32>(x);
  u32 r = bit_cast<u32>(static_cast<f32>(log2_positive(x)));
  r = select(x == F32::kInf, x, r);
  r = select(sign_bit<F32>(x) != 0, F32::kDefaultNan, r);
  r = select(mag < F32::kHidden, F32::kSign | F32::kInf, r);
  return select(mag > F32::kInf, quiet<F32>(x), r);
}

// IEEE division and square root under DAZ and FTZ have the hardware's specials; the host's default
// NaN is the device's.
inline u32 rcp_kernel(u32 x) { return bit_cast<u32>(1.0f / bit_cast<f32>(x)); }
inline u32 sqrt_kernel(u32 x) { return bit_cast<u32>(__builtin_sqrtf(bit_cast<f32>(x))); }
inline u32 rsq_kernel(u32 x) {
  const f64 root = __builtin_sqrt(static_cast<f64>(bit_cast<f32>(x)));
  return bit_cast<u32>(static_cast<f32>(1.0 / root));
}

// sin(2 pi t) for |t| <= 1/4, within 2^-41.5 of t.
inline f64 sin_quarter(f64 t) {
  const f64 z = t * t;
  f64 p = 0x1.d53c5af6aa11cp+1;
  p = p * z - 0x1.e29b9608506a6p+3;
  p = p * z + 0x1.50770fc17af61p+5;
  p = p * z - 0x1.32d2c9b43b43ep+6;
  p = p * z + 0x1.466bc66ed91d0p+6;
  p = p * z - 0x1.4abbce624ae81p+5;
  p = p * z + 0x1.921fb54442bb6p+2;
  return p * t;
}
// x minus the nearest integer, exact; 0 from 2^23 on, where every f32 is an integer.
inline f64 revolutions(u32 x) {
  const f64 d = bit_cast<f32>(magnitude<F32>(x) < 0x4b000000 ? x : 0);
  return d - ((d + kRound) - kRound);
}
inline u32 trig_specials(u32 x, u32 r) {
  const u32 mag = magnitude<F32>(x);
  return select(mag > F32::kInf, quiet<F32>(x), select(mag == F32::kInf, F32::kDefaultNan, r));
}
inline u32 sin_kernel(u32 x) {
  const f64 turn = revolutions(x);
  const f64 side = bit_cast<f64>(magnitude<F64>(bit_cast<u64>(turn)));
  const f64 folded = side > 0.25 ? 0.5 - side : side;
  const u32 r = bit_cast<u32>(static_cast<f32>(sin_quarter(folded)));
  // Zeros at multiples of half a revolution are +0; only +-0 itself keeps its sign.
  const bool signed_result = r != 0 || magnitude<F32>(x) < F32::kHidden;
  const u32 sign = static_cast<u32>(bit_cast<u64>(turn) >> 32) & F32::kSign;
  return trig_specials(x, r | select(signed_result, sign, 0));
}
inline u32 cos_kernel(u32 x) {
  const f64 turn = revolutions(x);
  const f64 side = bit_cast<f64>(magnitude<F64>(bit_cast<u64>(turn)));
  return trig_specials(x, bit_cast<u32>(static_cast<f32>(sin_quarter(0.25 - side))));
}

struct Environment {
  u32 mask, bits;
};
constexpr Environment kNearest = {kMxcsrRoundMask, 0};
constexpr Environment kNearestFlush = {kMxcsrModeMask, kMxcsrDaz | kMxcsrFtz};

template <u32 (*kKernel)(u32)>
inline void run_lanes(const u32* x, u32* out, Environment environment) {
  const MxcsrScope scope(environment.mask, environment.bits);
  alignas(64) u32 in[kLanes];  // x may be out
  std::memcpy(in, x, sizeof in);
  for (int i = 0; i < kLanes; ++i) out[i] = kKernel(in[i]);
}

template <u32 (*kKernel)(u32)>
inline u32 run_one(u32 x, Environment environment) {
  const MxcsrScope scope(environment.mask, environment.bits);
  // The empty asm statements tie the arithmetic to the scope: it is not ordered with MXCSR writes.
  asm volatile("" : "+m"(x));
  u32 r = kKernel(x);
  asm volatile("" : "+m"(r));
  return r;
}

// An f16 function: a special result where there is one, else `f` of the f32 image in f64, rounded
// once. Every f16 denormal is a normal f32.
template <f64 (*kFunction)(f64)>
inline u16 run_f16(u16 x, const FpMode& m) {
  if (is_nan<F16>(x)) return quiet<F16>(x);
  const MxcsrScope scope(kNearest.mask, kNearest.bits);
  f64 value = f16_to_f64(flush_in<F16>(x, m));
  asm volatile("" : "+m"(value));
  f64 r = kFunction(value);
  asm volatile("" : "+m"(r));
  if (is_nan<F64>(bit_cast<u64>(r))) return F16::kDefaultNan;
  return f64_to_f16(bit_cast<u64>(r), Round::kNearestEven, m);
}
inline f64 exp_half(f64 x) {
  const f64 clamped = x < -40.0 ? -40.0 : x > 40.0 ? 40.0 : x;  // 0 and infinity for f16
  const f64 n = (clamped + kRound) - kRound;
  return bit_cast<f64>(bit_cast<u64>(exp2_fraction(clamped - n)) +
                       (static_cast<u64>(static_cast<i64>(n)) << F64::kManBits));
}
inline f64 log_half(f64 x) {
  if (x == 0) return -__builtin_inf();
  if (x < 0) return -__builtin_nan("");
  return x >= 0x1p16 ? x : log2_positive(bit_cast<u32>(static_cast<f32>(x)));
}
inline f64 rcp_half(f64 x) { return 1.0 / x; }
inline f64 sqrt_half(f64 x) { return __builtin_sqrt(x); }
inline f64 rsq_half(f64 x) { return 1.0 / __builtin_sqrt(x); }
inline f64 turn_of(f64 x) { return x - ((x + kRound) - kRound); }
inline f64 sin_half(f64 x) {
  const f64 turn = turn_of(x);
  const f64 side = turn < 0 ? -turn : turn;
  const f64 r = sin_quarter(side > 0.25 ? 0.5 - side : side);
  if (r == 0) return x == 0 ? x : 0.0;
  return turn < 0 ? -r : r;
}
inline f64 cos_half(f64 x) {
  const f64 turn = turn_of(x);
  return sin_quarter(0.25 - (turn < 0 ? -turn : turn));
}

}  // namespace

void log_f32_lanes(const u32* x, u32* out) { run_lanes<log_kernel>(x, out, kNearest); }
void rcp_f32_lanes(const u32* x, u32* out) { run_lanes<rcp_kernel>(x, out, kNearestFlush); }
void rsq_f32_lanes(const u32* x, u32* out) { run_lanes<rsq_kernel>(x, out, kNearestFlush); }
void sqrt_f32_lanes(const u32* x, u32* out) { run_lanes<sqrt_kernel>(x, out, kNearestFlush); }
void sin_f32_lanes(const u32* x, u32* out) { run_lanes<sin_kernel>(x, out, kNearest); }
void cos_f32_lanes(const u32* x, u32* out) { run_lanes<cos_kernel>(x, out, kNearest); }

u32 exp_f32(u32 x) {
  u32 lanes[kLanes] = {x};
  exp_f32_lanes(lanes, lanes);
  return lanes[0];
}
u32 log_f32(u32 x) { return run_one<log_kernel>(x, kNearest); }
u32 rcp_f32(u32 x) { return run_one<rcp_kernel>(x, kNearestFlush); }
u32 rsq_f32(u32 x) { return run_one<rsq_kernel>(x, kNearestFlush); }
u32 sqrt_f32(u32 x) { return run_one<sqrt_kernel>(x, kNearestFlush); }
u32 sin_f32(u32 x) { return run_one<sin_kernel>(x, kNearest); }
u32 cos_f32(u32 x) { return run_one<cos_kernel>(x, kNearest); }

u16 exp_f16(u16 x, const FpMode& m) { return run_f16<exp_half>(x, m); }
u16 log_f16(u16 x, const FpMode& m) { return run_f16<log_half>(x, m); }
u16 rcp_f16(u16 x, const FpMode& m) { return run_f16<rcp_half>(x, m); }
u16 rsq_f16(u16 x, const FpMode& m) { return run_f16<rsq_half>(x, m); }
u16 sqrt_f16(u16 x, const FpMode& m) { return run_f16<sqrt_half>(x, m); }
u16 sin_f16(u16 x, const FpMode& m) { return run_f16<sin_half>(x, m); }
u16 cos_f16(u16 x, const FpMode& m) { return run_f16<cos_half>(x, m); }

}  // namespace vdev
