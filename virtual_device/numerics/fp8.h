// 8-bit floats: gfx942's FNUZ formats and gfx950's OCP formats. Integer arithmetic throughout.
//
// Index (Fmt is Fp8Fnuz, Bf8Fnuz on gfx942; Fp8Ocp, Bf8Ocp on gfx950)
//   fp8_decode<Fmt>(byte) -> f32 bits               v_cvt_f32_fp8/bf8, v_cvt_pk_f32_fp8/bf8
//   fp8_encode<Fmt>(f32 bits, fp16_ovfl) -> byte    nearest even
//   fp8_encode_sr<Fmt>(f32 bits, seed, fp16_ovfl)   stochastic
//   cvt_pk_fp8_f32<Fmt>(lo, hi, old, word, m)       v_cvt_pk_fp8_f32/bf8; word = OPSEL[3]
//   cvt_sr_fp8_f32<Fmt>(x, seed, old, byte, m)      v_cvt_sr_fp8_f32/bf8; byte = OPSEL[3:2]
//   cvt_f32_fp8<Fmt>(src, byte)                     byte select as SDWA SRC0_SEL
#pragma once

#include "arch/fp8.h"
#include "numerics/half.h"
#include "numerics/stochastic.h"

namespace vdev {

// kMax is the largest finite code. kNan and kOverflow are or-ed with the sign where kSigned.
struct Fp8Fnuz {
  static constexpr int kBits = 8, kManBits = 3, kBias = 8;
  static constexpr u32 kMax = 0x7f, kNan = 0x80, kOverflow = 0x80;
  static constexpr bool kSigned = false;  // the code of -0 is the only NaN
};
struct Bf8Fnuz {
  static constexpr int kBits = 8, kManBits = 2, kBias = 16;
  static constexpr u32 kMax = 0x7f, kNan = 0x80, kOverflow = 0x80;
  static constexpr bool kSigned = false;
};
struct Fp8Ocp {
  static constexpr int kBits = 8, kManBits = 3, kBias = 7;
  static constexpr u32 kMax = 0x7e, kNan = 0x7f, kOverflow = 0x7f;
  static constexpr bool kSigned = true;
};
struct Bf8Ocp {
  static constexpr int kBits = 8, kManBits = 2, kBias = 15;
  static constexpr u32 kMax = 0x7b, kNan = 0x7e, kOverflow = 0x7c;
  static constexpr bool kSigned = true;
};

template <Fp8Kind kind>
struct Fp8Formats;
template <>
struct Fp8Formats<Fp8Kind::kFnuz> {
  using Fp8 = Fp8Fnuz;
  using Bf8 = Bf8Fnuz;
};
template <>
struct Fp8Formats<Fp8Kind::kOcp> {
  using Fp8 = Fp8Ocp;
  using Bf8 = Bf8Ocp;
};
// Of rows of an instruction set.
template <InstructionSets sets>
using Fp8 = typename Fp8Formats<fp8_kind(sets)>::Fp8;
template <InstructionSets sets>
using Bf8 = typename Fp8Formats<fp8_kind(sets)>::Bf8;

template <class Fmt>
VDEV_LANE_FN u32 fp8_decode(u32 byte) {
  const u32 sign = (byte & 0x80) << 24, code = byte & 0x7f;
  // Denormals: the integer code is exact in f32 and gets its weight through the exponent field.
  constexpr int kUnit = Fmt::kBias - 1 + Fmt::kManBits;  // a code counts 2^-kUnit
  const u32 as_float = bit_cast<u32>(static_cast<f32>(static_cast<i32>(code)));
  const u32 denorm = code ? as_float - (static_cast<u32>(kUnit) << 23) : 0;
  const u32 normal = (code << (23 - Fmt::kManBits)) + ((127u - Fmt::kBias) << 23);
  u32 r = sign | (code < 1u << Fmt::kManBits ? denorm : normal);
  if constexpr (Fmt::kSigned) {
    const u32 special = Fmt::kOverflow == Fmt::kNan ? 0 : sign | F32::kInf;
    r = code > Fmt::kMax
            ? (code == Fmt::kOverflow && special ? special : sign | F32::kInf | F32::kQuietBit)
            : r;
  } else {
    r = byte == Fmt::kNan ? F32::kDefaultNan : r;
  }
  return r;
}

template <class Fmt>
VDEV_LANE_FN u32 fp8_finish(u32 x, u32 code, bool fp16_ovfl) {
  const u32 mag = magnitude<F32>(x), sign = x >> 31 << (Fmt::kBits - 1);
  const u32 special_sign = Fmt::kSigned ? sign : 0;
  // Not saturating by default: overflow and infinities give kOverflow.
  const bool overflow = (mag == F32::kInf) | (code > Fmt::kMax);
  const u32 beyond = fp16_ovfl ? sign | Fmt::kMax : special_sign | Fmt::kOverflow;
  const u32 finite = Fmt::kSigned || code != 0 ? sign | code : 0;
  return mag > F32::kInf ? special_sign | Fmt::kNan : overflow ? beyond : finite;
}

template <class Fmt>
VDEV_LANE_FN u32 fp8_encode(u32 x, bool fp16_ovfl) {
  const u32 code = narrow_magnitude<F32, Fmt>(magnitude<F32>(x), false, Round::kNearestEven);
  return fp8_finish<Fmt>(x, code, fp16_ovfl);
}

template <class Fmt>
VDEV_LANE_FN u32 fp8_encode_sr(u32 x, u32 seed, bool fp16_ovfl) {
  return fp8_finish<Fmt>(x, stochastic_magnitude<Fmt>(x, seed), fp16_ovfl);
}

template <class Fmt>
VDEV_LANE_FN u32 cvt_pk_fp8_f32(u32 lo, u32 hi, u32 old, u32 word, const FpMode& m) {
  const u32 pair = fp8_encode<Fmt>(lo, m.fp16_ovfl) | fp8_encode<Fmt>(hi, m.fp16_ovfl) << 8;
  return word ? (old & 0xffffu) | pair << 16 : (old & 0xffff0000u) | pair;
}
template <class Fmt>
VDEV_LANE_FN u32 cvt_sr_fp8_f32(u32 x, u32 seed, u32 old, u32 byte, const FpMode& m) {
  const u32 shift = 8 * byte;
  return (old & ~(0xffu << shift)) | fp8_encode_sr<Fmt>(x, seed, m.fp16_ovfl) << shift;
}
template <class Fmt>
VDEV_LANE_FN u32 cvt_f32_fp8(u32 src, u32 byte) {
  return fp8_decode<Fmt>(src >> (8 * byte) & 0xff);
}

}  // namespace vdev
