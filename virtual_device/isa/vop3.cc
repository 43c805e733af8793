// VOP3 instructions without a shorter encoding: three sources, 64-bit data, lane access.
#include <bit>

#include "isa/bytes.h"
#include "isa/control.h"
#include "isa/lane.h"
#include "isa/tables.h"
#include "numerics/convert.h"
#include "numerics/double_ops.h"
#include "numerics/float_rules_div.h"
#include "numerics/float_rules_ops.h"
#include "numerics/fp8.h"
#include "numerics/half.h"

namespace vdev {
namespace {

using enum FlowKind;

constexpr Format kF = Format::kVop3;

constexpr i32 sext24(i32 x) { return static_cast<i32>(static_cast<u32>(x) << 8) >> 8; }
constexpr i32 wrap(i64 x, Clamp clamp) {
  if (clamp.value && x > INT32_MAX) return INT32_MAX;
  if (clamp.value && x < INT32_MIN) return INT32_MIN;
  return static_cast<i32>(x);
}
constexpr u32 wrap_unsigned(u64 x, Clamp clamp) {
  return clamp.value && x > UINT32_MAX ? UINT32_MAX : static_cast<u32>(x);
}
constexpr i16 wrap16(i32 x, Clamp clamp) {
  if (clamp.value && x > INT16_MAX) return INT16_MAX;
  if (clamp.value && x < INT16_MIN) return INT16_MIN;
  return static_cast<i16>(x);
}
constexpr u16 wrap16_unsigned(u32 x, Clamp clamp) {
  return clamp.value && x > UINT16_MAX ? UINT16_MAX : static_cast<u16>(x);
}
template <class T>
constexpr T min3i(T a, T b, T c) {
  return std::min(std::min(a, b), c);
}
template <class T>
constexpr T max3i(T a, T b, T c) {
  return std::max(std::max(a, b), c);
}
template <class T>
constexpr T med3i(T a, T b, T c) {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}
// Offset and width steer.
constexpr Flow field_of() {
  Flow flow(kMove, 0, 31, 31);
  flow.steers = 6;
  return flow;
}
constexpr u32 bfe_u(u32 x, u32 offset, u32 width) {
  width &= 31;
  return (x >> (offset & 31)) & ((1u << width) - 1);
}
// A field that reaches beyond the top goes on with the sign.
constexpr i32 bfe_i(i32 x, u32 offset, u32 width) {
  const u32 n = width & 31, spare = (32 - n) & 31;
  const i32 field = x >> (offset & 31);
  return n ? static_cast<i32>(static_cast<u32>(field) << spare) >> spare : 0;
}

void readlane(Wave& w, const Inst& in) {
  write_scalar(w, in.dst, vector(w, in.src[0])->lane[read_scalar(w, in.src[1]) & 63]);
}
void writelane(Wave& w, const Inst& in) {
  vector(w, in.dst)->lane[read_scalar(w, in.src[1]) & 63] = read_scalar(w, in.src[0]);
}
// Counts the lanes below this one in a mask given per lane: low half or high half of the wave.
template <bool kHigh>
void mbcnt(Wave& w, const Inst& in) {
  const Reg* mask = lanes(w, in.src[0], 1, 0);
  const Reg* base = lanes(w, in.src[1], 1, 2);
  Reg out;
  for (int lane = 0; lane < kLanes; ++lane) {
    const u64 below = (u64{1} << lane) - 1;
    const u32 half = static_cast<u32>(kHigh ? below >> 32 : below);
    out.lane[lane] = base->lane[lane] + static_cast<u32>(std::popcount(mask->lane[lane] & half));
  }
  merge(vector(w, in.dst), &out, 1, w.exec());
}
void mqsad_u32(Wave& w, const Inst& in) {
  const Reg* a = lanes(w, in.src[0], 2, 0);
  const Reg* b = lanes(w, in.src[1], 1, 2);
  const Reg* c = vector(w, in.src[2]);
  Reg out[4];
  for (int lane = 0; lane < kLanes; ++lane) {
    const u64 window = a[0].lane[lane] | u64{a[1].lane[lane]} << 32;
    for (int i = 0; i < 4; ++i)
      out[i].lane[lane] = wrap_unsigned(
          u64{masked_sad_u8(static_cast<u32>(window >> 8 * i), b->lane[lane])} + c[i].lane[lane],
          Clamp{in.clamp});
  }
  merge(vector(w, in.dst), out, 4, w.exec());
}

// op_sel names the word of the destination that is written (the byte for _sr_); the rest stays.
template <class Fmt>
void cvt_pk_fp8(Wave& w, const Inst& in) {
  const Reg a = signed_source(w, in, 0), b = signed_source(w, in, 1);
  Reg* dst = vector(w, in.dst);
  for_lanes(w.exec(), [&](int lane) {
    u32& d = dst->lane[lane];
    d = cvt_pk_fp8_f32<Fmt>(a.lane[lane], b.lane[lane], d, in.op_sel >> 3 & 1, w.fp);
  });
}
template <class Fmt>
void cvt_sr_fp8(Wave& w, const Inst& in) {
  const Reg a = signed_source(w, in, 0);
  const Reg seed = *lanes(w, in.src[1], 1, 2);
  Reg* dst = vector(w, in.dst);
  for_lanes(w.exec(), [&](int lane) {
    u32& d = dst->lane[lane];
    d = cvt_sr_fp8_f32<Fmt>(a.lane[lane], seed.lane[lane], d, in.op_sel >> 2 & 3, w.fp);
  });
}

// The selector is mostly a constant: then every byte comes from one place in all lanes.
void perm_uniform(Wave& w, const Inst& in) {
  const u32 selector = read_scalar(w, in.src[2]);
  const Reg* a = lanes(w, in.src[0], 1, 0);
  const Reg* b = lanes(w, in.src[1], 1, 2);
  Reg out;
  if (selector == 0x07060302) {  // the upper halves, as bf16 packing uses it
    VDEV_LANES for (int i = 0; i < kLanes; ++i) {
      out.lane[i] = (a->lane[i] & 0xffff0000) | b->lane[i] >> 16;
    }
  } else {
    std::fill(out.lane, out.lane + kLanes, 0);
    for (int byte = 0; byte < 4; ++byte) {
      const u32 s = selector >> 8 * byte & 0xff;
      const u32* from = s < 4 ? b->lane : a->lane;
      const u32 shift = 8 * (s & 3);
      VDEV_LANES for (int i = 0; i < kLanes; ++i) {
        out.lane[i] |= (from[i] >> shift & 0xff) << 8 * byte;
      }
    }
  }
  merge(vector(w, in.dst), &out, 1, w.exec());
}
constexpr auto kPerm = [](u32 a, u32 b, u32 c) { return perm_b32(a, b, c); };
void perm(Wave& w, const Inst& in) {
  const bool uniform = !in.src[2].is_vector();
  if (uniform && (read_scalar(w, in.src[2]) & 0xf8f8f8f8) == 0)
    perm_uniform(w, in);
  else
    lane_detail::exec_plain<kPerm>(w, in);
}
constexpr Row perm_row() {
  Row row = valu<kPerm>(kF, 0x1ed, "v_perm_b32").flows(steered(kPermute, 2, 0));
  row.exec_plain = perm;
  return row;
}

// 16-bit rows of which no source says what becomes of the other half.
constexpr Row zeroing(Row row) {
  row.fidelity = Fidelity::kModelled;
  row.note = "the upper half becomes zero: not documented";
  return row;
}
constexpr const char* kRoundNote = "rounds by MODE: not documented";
constexpr const char* kDivideNote =
    "scales so that the compilers' division is correctly rounded; the manual's factors differ";

#define F32_3(OP, NAME, FN)                                \
  valu<[](const FpMode& m, rawf32 a, rawf32 b, rawf32 c) { \
    return rawf32{FN<F32>(a.bits, b.bits, c.bits, m)};     \
  }>(kF, OP, NAME)
#define F16_3(OP, NAME, FN, EFFECTS)                                                             \
  valu<[](const FpMode& m, h16 a, h16 b, h16 c) { return h16{FN(a.bits, b.bits, c.bits, m)}; }>( \
      kF, OP, NAME, Unit::kValu, EFFECTS)
#define F64_3(OP, NAME, FN)                                \
  valu<[](const FpMode& m, rawf64 a, rawf64 b, rawf64 c) { \
    return rawf64{FN<F64>(a.bits, b.bits, c.bits, m)};     \
  }>(kF, OP, NAME, Unit::kValu64)
#define SELECT3(OP, NAME, FN)                                                 \
  valu<[](i32 a, i32 b, i32 c) { return FN(a, b, c); }>(kF, OP, NAME "_i32"), \
      valu<[](u32 a, u32 b, u32 c) { return FN(a, b, c); }>(kF, OP + 1, NAME "_u32")
#define SELECT3_16_ROW(OP, NAME, FN, T)                                  \
  zeroing(valu<[](T a, T b, T c) { return FN(a, b, c); }>(kF, OP, NAME)) \
      .halves(4)                                                         \
      .with(Trait::kSaturates)
#define SELECT3_16(OP, NAME, FN) \
  SELECT3_16_ROW(OP, NAME "_i16", FN, i16), SELECT3_16_ROW(OP + 1, NAME "_u16", FN, u16)
#define CUBE(OP, NAME, FN)                                                                      \
  valu<[](rawf32 a, rawf32 b, rawf32 c) { return rawf32{FN(a.bits, b.bits, c.bits)}; }>(kF, OP, \
                                                                                        NAME)

// clang-format off
constexpr Row kVop3[] = {
    valu<[](i32 a, i32 b, i32 c, Clamp k) { return wrap(i64{sext24(a)} * sext24(b) + c, k); }>(kF, 0x1c2, "v_mad_i32_i24").flows({kSum, 0xffffff, 0xffffff}),
    valu<[](u32 a, u32 b, u32 c, Clamp k) {
      return wrap_unsigned(u64{a & 0xffffff} * (b & 0xffffff) + c, k);
    }>(kF, 0x1c3, "v_mad_u32_u24").flows({kSum, 0xffffff, 0xffffff}),
    CUBE(0x1c4, "v_cubeid_f32", cube_id_f32),
    CUBE(0x1c5, "v_cubesc_f32", cube_sc_f32),
    CUBE(0x1c6, "v_cubetc_f32", cube_tc_f32),
    CUBE(0x1c7, "v_cubema_f32", cube_ma_f32),
    valu<[](u32 a, u32 b, u32 c) { return bfe_u(a, b, c); }>(kF, 0x1c8, "v_bfe_u32").flows(field_of()),
    valu<[](i32 a, u32 b, u32 c) { return bfe_i(a, b, c); }>(kF, 0x1c9, "v_bfe_i32").flows(field_of()),
    valu<[](u32 a, u32 b, u32 c) { return (a & b) | (~a & c); }>(kF, 0x1ca, "v_bfi_b32").flows(kSelectBits),
    valu<[](f32 a, f32 b, f32 c) { return std::fma(a, b, c); }>(kF, 0x1cb, "v_fma_f32"),
    valu<[](f64 a, f64 b, f64 c) { return std::fma(a, b, c); }>(kF, 0x1cc, "v_fma_f64", Unit::kValu64).with(Trait::kFma64),
    valu<[](u32 a, u32 b, u32 c) { return lerp_u8(a, b, c); }>(kF, 0x1cd, "v_lerp_u8"),
    valu<[](u32 a, u32 b, u32 c) { return static_cast<u32>((u64{a} << 32 | b) >> (c & 31)); }>(kF, 0x1ce, "v_alignbit_b32").halves(4).flows(steered(kMove, 2, 31)),
    valu<[](u32 a, u32 b, u32 c) { return static_cast<u32>((u64{a} << 32 | b) >> 8 * (c & 3)); }>(kF, 0x1cf, "v_alignbyte_b32").halves(4).flows(steered(kMove, 2, 3)),
    F32_3(0x1d0, "v_min3_f32", min3),
    SELECT3(0x1d1, "v_min3", min3i),
    F32_3(0x1d3, "v_max3_f32", max3),
    SELECT3(0x1d4, "v_max3", max3i),
    F32_3(0x1d6, "v_med3_f32", med3),
    SELECT3(0x1d7, "v_med3", med3i),
    valu<[](u32 a, u32 b, u32 c, Clamp k) { return wrap_unsigned(u64{sad_u8(a, b)} + c, k); }>(kF, 0x1d9, "v_sad_u8"),
    valu<[](u32 a, u32 b, u32 c, Clamp k) { return wrap_unsigned((u64{sad_u8(a, b)} << 16) + c, k); }>(kF, 0x1da, "v_sad_hi_u8"),
    valu<[](u32 a, u32 b, u32 c, Clamp k) { return wrap_unsigned(u64{sad_u16(a, b)} + c, k); }>(kF, 0x1db, "v_sad_u16"),
    valu<[](u32 a, u32 b, u32 c, Clamp k) { return wrap_unsigned(u64{a < b ? b - a : a - b} + c, k); }>(kF, 0x1dc, "v_sad_u32"),
    valu<[](const FpMode& m, rawf32 a, u32 b, u32 c) { return cvt_pk_u8_f32(a.bits, b, c, m); }>(kF, 0x1dd, "v_cvt_pk_u8_f32", Unit::kValu, 0, Fidelity::kModelled, kRoundNote).with(Trait::kSaturates).flows(steered(kByte, 1, 3)),
    F32_3(0x1de, "v_div_fixup_f32", div_fixup),
    F64_3(0x1df, "v_div_fixup_f64", div_fixup),
    valu<[](const FpMode& m, rawf32 a, rawf32 b, rawf32 c) {
      const auto r = div_scale<F32>(a.bits, b.bits, c.bits, m);
      return Carry<rawf32>{{r.value}, r.vcc};
    }>(kF, 0x1e0, "v_div_scale_f32", Unit::kValu, 0, Fidelity::kModelled, kDivideNote),
    valu<[](const FpMode& m, rawf64 a, rawf64 b, rawf64 c) {
      const auto r = div_scale<F64>(a.bits, b.bits, c.bits, m);
      return Carry<rawf64>{{r.value}, r.vcc};
    }>(kF, 0x1e1, "v_div_scale_f64", Unit::kValu64, 0, Fidelity::kModelled, kDivideNote),
    valu<[](const FpMode& m, rawf32 a, rawf32 b, rawf32 c, VccIn v) {
      return rawf32{div_fmas<F32>(a.bits, b.bits, c.bits, v.value, m)};
    }>(kF, 0x1e2, "v_div_fmas_f32", Unit::kValu, 0, Fidelity::kModelled, kDivideNote).with(Trait::kDivFmas),
    valu<[](const FpMode& m, rawf64 a, rawf64 b, rawf64 c, VccIn v) {
      return rawf64{div_fmas<F64>(a.bits, b.bits, c.bits, v.value, m)};
    }>(kF, 0x1e3, "v_div_fmas_f64", Unit::kValu64, 0, Fidelity::kModelled, kDivideNote).with(Trait::kDivFmas),
    valu<[](u32 a, u32 b, u32 c, Clamp k) { return wrap_unsigned(u64{masked_sad_u8(a, b)} + c, k); }>(kF, 0x1e4, "v_msad_u8"),
    valu<[](u64 a, u32 b, u64 c, Clamp k) { return quad_sad_u16(a, b, c, false, k.value); }>(kF, 0x1e5, "v_qsad_pk_u16_u8", Unit::kValuSad4),
    valu<[](u64 a, u32 b, u64 c, Clamp k) { return quad_sad_u16(a, b, c, true, k.value); }>(kF, 0x1e6, "v_mqsad_pk_u16_u8", Unit::kValuSad4),
    vector_row(kF, 0x1e7, "v_mqsad_u32_u8", mqsad_u32, {Type::kRaw, 4}, {Type::kU64, Type::kU32, {Type::kRaw, 4}}, Unit::kValuSad4).with(Trait::kSaturates),
    valu<[](u32 a, u32 b, u64 c, Clamp k) {
      const u64 p = u64{a} * b, r = p + c;
      return Carry<u64>{r < p && k.value ? ~u64{0} : r, r < p};
    }>(kF, 0x1e8, "v_mad_u64_u32", Unit::kValu64).flows(kSum),
    valu<[](i32 a, i32 b, i64 c, Clamp k) {
      const i64 p = i64{a} * b, r = static_cast<i64>(static_cast<u64>(p) + static_cast<u64>(c));
      // The carry out is bit 64 of the sum in 65 bits: its true sign.
      const bool over = ((p ^ r) & (c ^ r)) < 0;
      return Carry<i64>{over && k.value ? (p < 0 ? INT64_MIN : INT64_MAX) : r, (r < 0) != over};
    }>(kF, 0x1e9, "v_mad_i64_i32", Unit::kValu64).flows(kSum),
    F16_3(0x1ea, "v_mad_legacy_f16", mad_f16, 0),
    valu<[](u16 a, u16 b, u16 c, Clamp k) { return wrap16_unsigned(u32{a} * b + c, k); }>(kF, 0x1eb, "v_mad_legacy_u16"),
    valu<[](i16 a, i16 b, i16 c, Clamp k) { return wrap16(i32{a} * b + c, k); }>(kF, 0x1ec, "v_mad_legacy_i16"),
    perm_row(),
    F16_3(0x1ee, "v_fma_legacy_f16", fma_f16, 0),
    F16_3(0x1ef, "v_div_fixup_legacy_f16", div_fixup<F16>, 0),
    vector_row(kF, 0x1f0, "v_cvt_pkaccum_u8_f32", exec_unsupported, Type::kU32, {Type::kF32, Type::kU32},
               Unit::kValu, kReadsDst, Fidelity::kUnverified, "traps: no compiler emits it"),
    valu<[](u16 a, u16 b, u32 c, Clamp k) { return wrap_unsigned(u64{a} * b + c, k); }>(kF, 0x1f1, "v_mad_u32_u16").halves(4),
    valu<[](i16 a, i16 b, i32 c, Clamp k) { return wrap(i64{a} * b + c, k); }>(kF, 0x1f2, "v_mad_i32_i16").halves(4),
    valu<[](u32 a, u32 b, u32 c) { return (a ^ b) + c; }>(kF, 0x1f3, "v_xad_u32").flows(kSum),
    zeroing(F16_3(0x1f4, "v_min3_f16", min3<F16>, 0).halves(4)),
    SELECT3_16(0x1f5, "v_min3", min3i),
    zeroing(F16_3(0x1f7, "v_max3_f16", max3<F16>, 0).halves(4)),
    SELECT3_16(0x1f8, "v_max3", max3i),
    zeroing(F16_3(0x1fa, "v_med3_f16", med3<F16>, 0).halves(4)),
    SELECT3_16(0x1fb, "v_med3", med3i),
    valu<[](u32 a, u32 b, u32 c) { return (a << (b & 31)) + c; }>(kF, 0x1fd, "v_lshl_add_u32").flows(steered(kShiftSum, 1, 31)),
    valu<[](u32 a, u32 b, u32 c) { return (a + b) << (c & 31); }>(kF, 0x1fe, "v_add_lshl_u32").flows(steered(kSumShift, 2, 31)),
    valu<[](u32 a, u32 b, u32 c) { return a + b + c; }>(kF, 0x1ff, "v_add3_u32").flows(kSum),
    valu<[](u32 a, u32 b, u32 c) { return a << (b & 31) | c; }>(kF, 0x200, "v_lshl_or_b32").flows(steered(kShiftOr, 1, 31)),
    valu<[](u32 a, u32 b, u32 c) { return (a & b) | c; }>(kF, 0x201, "v_and_or_b32").flows(kAndOr),
    valu<[](u32 a, u32 b, u32 c) { return a | b | c; }>(kF, 0x202, "v_or3_b32").flows(kOr),
    F16_3(0x203, "v_mad_f16", mad_f16, kD16).halves(4),
    valu<[](u16 a, u16 b, u16 c, Clamp k) { return wrap16_unsigned(u32{a} * b + c, k); }>(kF, 0x204, "v_mad_u16", Unit::kValu, kD16).halves(4).flows(kSum),
    valu<[](i16 a, i16 b, i16 c, Clamp k) { return wrap16(i32{a} * b + c, k); }>(kF, 0x205, "v_mad_i16", Unit::kValu, kD16).halves(4).flows(kSum),
    F16_3(0x206, "v_fma_f16", fma_f16, kD16).halves(4),
    F16_3(0x207, "v_div_fixup_f16", div_fixup<F16>, kD16).halves(4),
    valu<[](u64 a, u32 b, u64 c) { return (a << (b & 7)) + c; }>(kF, 0x208, "v_lshl_add_u64", Unit::kValu64).flows(steered(kShiftSum, 1, 7)),
    valu<[](f64 a, f64 b) { return a + b; }>(kF, 0x280, "v_add_f64", Unit::kValu64),
    valu<[](f64 a, f64 b) { return a * b; }>(kF, 0x281, "v_mul_f64", Unit::kValu64),
    valu<[](const FpMode& m, rawf64 a, rawf64 b) { return rawf64{min_num<F64>(a.bits, b.bits, m)}; }>(kF, 0x282, "v_min_f64", Unit::kValu64),
    valu<[](const FpMode& m, rawf64 a, rawf64 b) { return rawf64{max_num<F64>(a.bits, b.bits, m)}; }>(kF, 0x283, "v_max_f64", Unit::kValu64),
    valu<[](const FpMode& m, rawf64 a, i32 b) { return rawf64{ldexp<F64>(a.bits, b, m)}; }>(kF, 0x284, "v_ldexp_f64", Unit::kValu64),
    valu<[](u32 a, u32 b) { return a * b; }>(kF, 0x285, "v_mul_lo_u32", Unit::kValu64).flows(kSum),
    valu<[](u32 a, u32 b) { return static_cast<u32>((u64{a} * b) >> 32); }>(kF, 0x286, "v_mul_hi_u32", Unit::kValu64),
    valu<[](i32 a, i32 b) { return static_cast<u32>((i64{a} * b) >> 32); }>(kF, 0x287, "v_mul_hi_i32", Unit::kValu64),
    valu<[](const FpMode& m, rawf32 a, i32 b) { return rawf32{ldexp<F32>(a.bits, b, m)}; }>(kF, 0x288, "v_ldexp_f32"),
    vector_row(kF, 0x289, "v_readlane_b32", readlane, Type::kB32, {Type::kB32, Type::kB32}, Unit::kValu, kIgnoresExec).with(Trait::kVectorSource | Trait::kReadsLane | Trait::kSelectsLane).flows(kLane),
    vector_row(kF, 0x28a, "v_writelane_b32", writelane, Type::kB32, {Type::kB32, Type::kB32}, Unit::kValu, kIgnoresExec | kReadsDst).with(Trait::kSelectsLane).flows(kLane),
    valu<[](u32 a, u32 b) { return static_cast<u32>(std::popcount(a)) + b; }>(kF, 0x28b, "v_bcnt_u32_b32"),
    vector_row(kF, 0x28c, "v_mbcnt_lo_u32_b32", mbcnt<false>, Type::kU32, {Type::kU32, Type::kU32}),
    vector_row(kF, 0x28d, "v_mbcnt_hi_u32_b32", mbcnt<true>, Type::kU32, {Type::kU32, Type::kU32}),
    valu<[](u32 a, u64 b) { return b << (a & 63); }>(kF, 0x28f, "v_lshlrev_b64", Unit::kValu64).flows(steered(kMove, 0, 63)),
    valu<[](u32 a, u64 b) { return (b >> (a & 63)); }>(kF, 0x290, "v_lshrrev_b64", Unit::kValu64).flows(steered(kMove, 0, 63)),
    valu<[](u32 a, i64 b) { return (b >> (a & 63)); }>(kF, 0x291, "v_ashrrev_i64", Unit::kValu64).flows(steered(kMove, 0, 63)),
    valu<[](rawf64 a, u32 b) { return rawf64{trig_preop_f64(a.bits, b)}; }>(kF, 0x292, "v_trig_preop_f64", Unit::kValu64),
    valu<[](u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); }>(kF, 0x293, "v_bfm_b32").flows({kAny, 31, 31}),
    valu<[](const FpMode& m, rawf32 a, rawf32 b) { return cvt_pknorm_i16_f32(a.bits, b.bits, m); }>(kF, 0x294, "v_cvt_pknorm_i16_f32", Unit::kValu, 0, Fidelity::kModelled, kRoundNote).flows(kPack),
    valu<[](const FpMode& m, rawf32 a, rawf32 b) { return cvt_pknorm_u16_f32(a.bits, b.bits, m); }>(kF, 0x295, "v_cvt_pknorm_u16_f32", Unit::kValu, 0, Fidelity::kModelled, kRoundNote).flows(kPack),
    valu<[](const FpMode& m, rawf32 a, rawf32 b) { return cvt_pkrtz_f16_f32(a.bits, b.bits, m); }>(kF, 0x296, "v_cvt_pkrtz_f16_f32").flows(kPack),
    valu<[](u32 a, u32 b) { return cvt_pk_u16_u32(a, b); }>(kF, 0x297, "v_cvt_pk_u16_u32").flows(kPack),
    valu<[](i32 a, i32 b) { return cvt_pk_i16_i32(static_cast<u32>(a), static_cast<u32>(b)); }>(kF, 0x298, "v_cvt_pk_i16_i32").flows(kPack),
    valu<[](const FpMode& m, h16 a, h16 b) { return cvt_pknorm_i16_f16(a.bits, b.bits, m); }>(kF, 0x299, "v_cvt_pknorm_i16_f16", Unit::kValu, 0, Fidelity::kModelled, kRoundNote).halves(3).flows(kPack),
    valu<[](const FpMode& m, h16 a, h16 b) { return cvt_pknorm_u16_f16(a.bits, b.bits, m); }>(kF, 0x29a, "v_cvt_pknorm_u16_f16", Unit::kValu, 0, Fidelity::kModelled, kRoundNote).halves(3).flows(kPack),
    valu<[](i32 a, i32 b, Clamp k) { return wrap(i64{a} + b, k); }>(kF, 0x29c, "v_add_i32").flows(kSum),
    valu<[](i32 a, i32 b, Clamp k) { return wrap(i64{a} - b, k); }>(kF, 0x29d, "v_sub_i32").flows(kSum),
    zeroing(valu<[](i16 a, i16 b, Clamp k) { return wrap16(a + b, k); }>(kF, 0x29e, "v_add_i16").halves(3)),
    zeroing(valu<[](i16 a, i16 b, Clamp k) { return wrap16(a - b, k); }>(kF, 0x29f, "v_sub_i16").halves(3)),
    valu<[](h16 a, h16 b) { return a.bits | u32{b.bits} << 16; }>(kF, 0x2a0, "v_pack_b32_f16", Unit::kValu, 0, Fidelity::kModelled,
         "moves the bits; LLVM allows for denormals and signalling NaNs to change").halves(3).flows(kMove),
    valu<[](const FpMode& m, rawf32 a, rawf32 b) { return rawf32{mul_legacy_f32(a.bits, b.bits, m)}; }>(kF, 0x2a1, "v_mul_legacy_f32"),
    vector_row(kF, 0x2a2, "v_cvt_pk_fp8_f32", cvt_pk_fp8<Fp8<kCdna3>>, Type::kB32, {Type::kF32, Type::kF32}, Unit::kValuPackFp8, kReadsDst | kD16 | kReadsMode).halves(3).flows(kFp8Pack).only(kCdna3),
    vector_row(kF, 0x2a3, "v_cvt_pk_bf8_f32", cvt_pk_fp8<Bf8<kCdna3>>, Type::kB32, {Type::kF32, Type::kF32}, Unit::kValuPackFp8, kReadsDst | kD16 | kReadsMode).halves(3).flows(kFp8Pack).only(kCdna3),
    vector_row(kF, 0x2a4, "v_cvt_sr_fp8_f32", cvt_sr_fp8<Fp8<kCdna3>>, Type::kB32, {Type::kF32, Type::kB32}, Unit::kValuConvert, kReadsDst | kD16 | kReadsMode, Fidelity::kModelled, "seed added to the discarded bits").halves(4).with(Trait::kPlacesByte).flows(kFp8Round).only(kCdna3),
    vector_row(kF, 0x2a5, "v_cvt_sr_bf8_f32", cvt_sr_fp8<Bf8<kCdna3>>, Type::kB32, {Type::kF32, Type::kB32}, Unit::kValuConvert, kReadsDst | kD16 | kReadsMode, Fidelity::kModelled, "seed added to the discarded bits").halves(4).with(Trait::kPlacesByte).flows(kFp8Round).only(kCdna3),
    vector_row(kF, 0x2a2, "v_cvt_pk_fp8_f32", cvt_pk_fp8<Fp8<kCdna4>>, Type::kB32, {Type::kF32, Type::kF32}, Unit::kValuPackFp8, kReadsDst | kD16 | kReadsMode).halves(3).flows(kFp8Pack).only(kCdna4),
    vector_row(kF, 0x2a3, "v_cvt_pk_bf8_f32", cvt_pk_fp8<Bf8<kCdna4>>, Type::kB32, {Type::kF32, Type::kF32}, Unit::kValuPackFp8, kReadsDst | kD16 | kReadsMode).halves(3).flows(kFp8Pack).only(kCdna4),
    vector_row(kF, 0x2a4, "v_cvt_sr_fp8_f32", cvt_sr_fp8<Fp8<kCdna4>>, Type::kB32, {Type::kF32, Type::kB32}, Unit::kValuConvert, kReadsDst | kD16 | kReadsMode, Fidelity::kModelled, "seed added to the discarded bits").halves(4).with(Trait::kPlacesByte).flows(kFp8Round).only(kCdna4),
    vector_row(kF, 0x2a5, "v_cvt_sr_bf8_f32", cvt_sr_fp8<Bf8<kCdna4>>, Type::kB32, {Type::kF32, Type::kB32}, Unit::kValuConvert, kReadsDst | kD16 | kReadsMode, Fidelity::kModelled, "seed added to the discarded bits").halves(4).with(Trait::kPlacesByte).flows(kFp8Round).only(kCdna4),
};
// clang-format on
static_assert(unique_opcodes(kVop3));

}  // namespace

std::span<const Row> vop3_rows() { return kVop3; }

}  // namespace vdev
