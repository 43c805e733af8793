// Conversions with a scale between f32, f16, bf16 and the narrow formats of the Open Compute
// Project's microscaling (MX). A scale is a power of two, 2^(scale - 127), of which 255 is NaN.
//
// Index (Wide is F32, F16, Bf16; Narrow is Fp8<kCdna4>, Bf8<kCdna4>, Fp6, Bf6, Fp4)
//   narrow_scaled<Narrow, Wide>(x, scale, m)           x / scale, to nearest even
//   narrow_scaled_sr<Narrow, Wide>(x, scale, seed, m)  ... by stochastic rounding
//   widen_scaled<Wide, Narrow>(code, scale, m)         the code's value * scale, to nearest even
#pragma once

#include <algorithm>
#include <bit>

#include "numerics/fp8.h"
#include "numerics/half.h"

namespace vdev {

// Without infinities and NaNs: what is beyond saturates.
struct Fp6 {  // E2M3
  static constexpr int kBits = 6, kManBits = 3, kBias = 1;
  static constexpr u32 kMax = 0x1f, kNan = kMax, kOverflow = kMax;
  static constexpr bool kSigned = true;
};
struct Bf6 {  // E3M2
  static constexpr int kBits = 6, kManBits = 2, kBias = 3;
  static constexpr u32 kMax = 0x1f, kNan = kMax, kOverflow = kMax;
  static constexpr bool kSigned = true;
};
struct Fp4 {  // E2M1
  static constexpr int kBits = 4, kManBits = 1, kBias = 1;
  static constexpr u32 kMax = 7, kNan = kMax, kOverflow = kMax;
  static constexpr bool kSigned = true;
};

inline constexpr u32 kNanScale = 255;

// Of f32, MODE says whether denormals count; the narrower formats keep theirs.
template <class Wide>
inline u32 scalable_f32(u32 x, const FpMode& m) {
  if constexpr (kIsF32<Wide>)
    return flush_in<F32>(x, m);
  else if constexpr (std::is_same_v<Wide, F16>)
    return widen_f16(static_cast<u16>(x));
  else
    return x << 16;
}

// |x| / scale of an f32 as significand * 2^(exponent - kBias - 23): 24 bits, the first set; what
// lies below the least normal number of Narrow is shifted by `below`.
template <class Narrow>
struct ScaledMagnitude {
  static constexpr int kDrop = F32::kManBits - Narrow::kManBits;
  u32 significand;
  int exponent, below;

  ScaledMagnitude(u32 x, u32 scale) : significand(magnitude<F32>(x)) {
    int field = exponent_field<F32>(x);
    if (field) {
      significand = (significand & F32::kManMask) | F32::kHidden;
    } else if (significand) {
      const int shift = std::countl_zero(significand) - 8;
      significand <<= shift;
      field = 1 - shift;
    }
    constexpr int kBeyond = 64;  // every exponent of Narrow
    exponent = std::min(field - static_cast<int>(scale) + Narrow::kBias, kBeyond);
    below = exponent < 1 ? std::min(1 - exponent, 31) : 0;
  }
  u32 code(u32 kept) const {
    return kept + (exponent > 1 ? static_cast<u32>(exponent - 1) << Narrow::kManBits : 0);
  }
};
template <class Narrow>
inline u32 finish_scaled(u32 x, u32 scale, u32 code, const FpMode& m) {
  const u32 nan = scale == kNanScale ? F32::kInf | F32::kQuietBit : 0;
  return fp8_finish<Narrow>(x | nan, magnitude<F32>(x) ? code : 0, m.fp16_ovfl);
}

template <class Narrow, class Wide>
inline u32 narrow_scaled(u32 bits, u32 scale, const FpMode& m) {
  const u32 x = scalable_f32<Wide>(bits, m);
  const ScaledMagnitude<Narrow> v(x, scale);
  const int drop = std::min(v.kDrop + v.below, 30);
  const u32 half = ((1u << drop) - 1) >> 1, odd = v.significand >> drop & 1;
  return finish_scaled<Narrow>(x, scale, v.code((v.significand + half + odd) >> drop), m);
}

// As many of the seed's leading bits count as the source's significand has bits to discard.
template <class Narrow, class Wide>
inline u32 narrow_scaled_sr(u32 bits, u32 scale, u32 seed, const FpMode& m) {
  const u32 x = scalable_f32<Wide>(bits, m);
  const ScaledMagnitude<Narrow> v(x, scale);
  constexpr u32 kAbsent = (1u << (F32::kManBits - Wide::kManBits)) - 1;
  const u32 noise = seed >> (32 - v.kDrop) & ~kAbsent;
  return finish_scaled<Narrow>(x, scale, v.code(((v.significand >> v.below) + noise) >> v.kDrop),
                               m);
}

template <class Wide, class Narrow>
inline u32 widen_scaled(u32 bits, u32 scale, const FpMode& m) {
  const bool sign = bits >> (Narrow::kBits - 1) & 1;
  const u32 code = bits & ((1u << (Narrow::kBits - 1)) - 1);
  const u32 sign_bits = sign ? Wide::kSign : 0;
  const bool infinite = code == Narrow::kOverflow && code > Narrow::kMax && code != Narrow::kNan;
  if (scale == kNanScale || (code > Narrow::kMax && !infinite))
    return sign_bits | Wide::kInf | Wide::kQuietBit;
  if (infinite) return sign_bits | Wide::kInf;
  constexpr u32 kHidden = 1u << Narrow::kManBits;
  const int field = static_cast<int>(code >> Narrow::kManBits);
  const u32 significand = field ? (code & (kHidden - 1)) | kHidden : code;
  const int exponent =
      std::max(field, 1) - Narrow::kBias - Narrow::kManBits + static_cast<int>(scale) - 127;
  const bool keep_denorm = !kIsF32<Wide> || keeps_denorm_out<F32>(m);
  const u32 r = round_pack<Wide>(sign, exponent, significand, Round::kNearestEven, keep_denorm);
  return !kIsF32<Wide> && is_inf<Wide>(static_cast<BitsOf<Wide>>(r)) && m.fp16_ovfl ? r - 1 : r;
}

}  // namespace vdev
