// VOP1: vector ALU with one source.
#include <bit>

#include "isa/control.h"
#include "isa/lane.h"
#include "isa/tables.h"
#include "numerics/convert.h"
#include "numerics/double_ops.h"
#include "numerics/float_rules_ops.h"
#include "numerics/fp8.h"
#include "numerics/stochastic.h"
#include "numerics/transcendental.h"

namespace vdev {
namespace {

using enum FlowKind;

constexpr Format kF = Format::kVop1;

// Instructions computed by a function over all lanes at once.
using LanesFn = void (*)(const u32* x, u32* out);
template <LanesFn Fn>
void compute_lanes(LaneArgs& a) {
  Fn(a.src[0]->lane, a.dst->lane);
}
template <LanesFn Fn>
void exec_lanes(Wave& w, const Inst& in) {
  const Reg* source = lanes(w, in.src[0], 1, 0);
  const u64 exec = w.exec();
  if (exec == ~u64{0}) {
    Fn(source->lane, vector(w, in.dst)->lane);
  } else {
    Fn(source->lane, w.tmp[6].lane);
    merge(vector(w, in.dst), &w.tmp[6], 1, exec);
  }
}
constexpr const char* kTransNote = "within 1 ULP of silicon, not bit-equal";
template <LanesFn Fn>
constexpr Row trans(u16 opcode, const char* name) {
  Row row = vector_row(kF, opcode, name, exec_modified, Type::kF32, {Type::kF32}, Unit::kTrans,
                       kFloat, Fidelity::kModelled, kTransNote);
  row.exec_plain = exec_lanes<Fn>;
  row.compute = compute_lanes<Fn>;
  return row;
}
template <u16 (*Fn)(u16, const FpMode&)>
constexpr Row trans16(u16 opcode, const char* name) {
  return valu<[](const FpMode& m, h16 x) { return h16{Fn(x.bits, m)}; }>(
      kF, opcode, name, Unit::kTrans, 0, Fidelity::kModelled, kTransNote);
}
template <u64 (*Fn)(u64)>
constexpr Row trans64(u16 opcode, const char* name) {
  return valu<[](rawf64 x) { return rawf64{Fn(x.bits)}; }>(
      kF, opcode, name, Unit::kTrans64, kNoSdwa | kFloat, Fidelity::kModelled,
      "correctly rounded; silicon gives an approximation");
}

void readfirstlane(Wave& w, const Inst& in) {
  const u64 exec = w.exec();
  const int lane = exec ? std::countr_zero(exec) : 0;
  write_scalar(w, in.dst, vector(w, in.src[0])->lane[lane]);
}
void swap(Wave& w, const Inst& in) {
  Reg* a = vector(w, in.dst);
  Reg* b = vector(w, in.src[0]);
  for_lanes(w.exec(), [&](int lane) { std::swap(a->lane[lane], b->lane[lane]); });
}
// Each odd group of `kGroup` lanes of the destination with the even group before it of the source.
// Of lanes that EXEC masks nothing is written; what is read from them is as with DPP.
constexpr const char* kSwapRowsNote = "lanes that EXEC masks: as DPP, by fi and bound_ctrl";
template <int kGroup>
void swap_rows(Wave& w, const Inst& in) {
  Reg* a = vector(w, in.dst);
  Reg* b = vector(w, in.src[0]);
  const u64 exec = w.exec();
  const bool fetch_inactive = in.op_sel & 1, zero_inactive = in.op_sel >> 1 & 1;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (lane & kGroup) continue;
    u32 &low = b->lane[lane], &high = a->lane[lane + kGroup];
    const bool low_active = exec >> lane & 1, high_active = exec >> (lane + kGroup) & 1;
    const u32 to_low = high, to_high = low;
    const auto write = [&](u32& to, u32 value, bool writes, bool readable) {
      if (!writes) return;
      if (readable || fetch_inactive)
        to = value;
      else if (zero_inactive)
        to = 0;
    };
    write(low, to_low, low_active, high_active);
    write(high, to_high, high_active, low_active);
  }
}
constexpr Row swapping_rows(u16 opcode, const char* name, Inst::Exec exec) {
  return vector_row(kF, opcode, name, exec, Type::kB32, {Type::kB32}, Unit::kValu,
                    kReadsDst | kNoSdwa | kNoDpp, Fidelity::kModelled, kSwapRowsNote)
      .with(Trait::kVectorSource | Trait::kSwaps | Trait::kSwapsRows)
      .selects(2, 3)
      .takes(5)  // measured: ROCm/gfx950-gluon-tutorials, kernels/attention
      .flows(kMoveWhole)
      .only(kCdna4);
}
void accvgpr_mov(Wave& w, const Inst& in) {
  merge(vector(w, in.dst), vector(w, in.src[0]), 1, w.exec());
}

template <class Fmt>
u64 pair_f32(u32 x) {
  return cvt_f32_fp8<Fmt>(x, 0) | u64{cvt_f32_fp8<Fmt>(x, 1)} << 32;
}
// Position of the first bit, counted from the top, that differs from the sign; -1: there is none.
constexpr u32 sign_run(u32 x) {
  const u32 differing = x >> 31 ? ~x : x;
  return differing ? static_cast<u32>(std::countl_zero(differing)) : ~0u;
}
constexpr u32 reverse(u32 x) {
  x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
  x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
  x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
  return __builtin_bswap32(x);
}

// A function of MODE on float bits, for one format.
#define F32_ROW(OP, NAME, FN) \
  valu<[](const FpMode& m, rawf32 x) { return rawf32{FN<F32>(x.bits, m)}; }>(kF, OP, NAME "_f32")
#define F16_ROW(OP, NAME, FN) \
  valu<[](const FpMode& m, h16 x) { return h16{FN<F16>(x.bits, m)}; }>(kF, OP, NAME "_f16")
#define F64_ROW(OP, NAME, FN)                                                 \
  valu<[](const FpMode& m, rawf64 x) { return rawf64{FN<F64>(x.bits, m)}; }>( \
      kF, OP, NAME "_f64", Unit::kValu64, kNoSdwa)
#define UBYTE_ROW(OP, N)                                                                \
  valu<[](u32 x) { return rawf32{cvt_f32_ubyte(x, N)}; }>(kF, OP, "v_cvt_f32_ubyte" #N) \
      .flows({kAny, 0xffu << 8 * N})

// clang-format off
constexpr Row kVop1[] = {
    vector_row(kF, 0x00, "v_nop", exec_nothing, {}, {}),
    valu<[](b32 x) { return x; }>(kF, 0x01, "v_mov_b32").flows(kMove),
    vector_row(kF, 0x02, "v_readfirstlane_b32", readfirstlane, Type::kB32, {Type::kB32}, Unit::kValu,
               kReadsExec | kIgnoresExec | kNoSdwa | kNoDpp).with(Trait::kShortOnly | Trait::kVectorSource | Trait::kReadsLane).flows(kMoveWhole),
    valu<[](rawf64 x) { return cvt_i32_f64(x.bits); }>(kF, 0x03, "v_cvt_i32_f64", Unit::kValu64, kNoSdwa),
    valu<[](i32 x) { return rawf64{cvt_f64_i32(static_cast<u32>(x))}; }>(kF, 0x04, "v_cvt_f64_i32", Unit::kValu64, kNoSdwa),
    valu<[](const FpMode& m, i32 x) { return rawf32{cvt_f32_i32(static_cast<u32>(x), m)}; }>(kF, 0x05, "v_cvt_f32_i32", Unit::kValuConvert),
    valu<[](const FpMode& m, u32 x) { return rawf32{cvt_f32_u32(x, m)}; }>(kF, 0x06, "v_cvt_f32_u32", Unit::kValuConvert),
    valu<[](rawf32 x) { return cvt_u32_f32(x.bits); }>(kF, 0x07, "v_cvt_u32_f32", Unit::kValuConvert),
    valu<[](rawf32 x) { return cvt_i32_f32(x.bits); }>(kF, 0x08, "v_cvt_i32_f32", Unit::kValuConvert),
    valu<[](const FpMode& m, rawf32 x) { return h16{cvt_f16_f32(x.bits, m)}; }>(kF, 0x0a, "v_cvt_f16_f32", Unit::kValuConvert),
    valu<[](const FpMode& m, h16 x) { return rawf32{f16_to_f32(x.bits, m)}; }>(kF, 0x0b, "v_cvt_f32_f16", Unit::kValuConvert),
    valu<[](rawf32 x) { return cvt_rpi_i32_f32(x.bits); }>(kF, 0x0c, "v_cvt_rpi_i32_f32", Unit::kValuConvert, 0, Fidelity::kModelled, "floor of the exact x + 0.5"),
    valu<[](rawf32 x) { return cvt_flr_i32_f32(x.bits); }>(kF, 0x0d, "v_cvt_flr_i32_f32", Unit::kValuConvert),
    valu<[](b32 x) { return rawf32{cvt_off_f32_i4(x.bits)}; }>(kF, 0x0e, "v_cvt_off_f32_i4", Unit::kValuConvert).flows({kAny, 0xf}),
    valu<[](const FpMode& m, rawf64 x) { return rawf32{cvt_f32_f64(x.bits, m)}; }>(kF, 0x0f, "v_cvt_f32_f64", Unit::kValu64, kNoSdwa),
    valu<[](const FpMode& m, rawf32 x) { return rawf64{cvt_f64_f32(x.bits, m)}; }>(kF, 0x10, "v_cvt_f64_f32", Unit::kValu64, kNoSdwa),
    UBYTE_ROW(0x11, 0),
    UBYTE_ROW(0x12, 1),
    UBYTE_ROW(0x13, 2),
    UBYTE_ROW(0x14, 3),
    valu<[](rawf64 x) { return cvt_u32_f64(x.bits); }>(kF, 0x15, "v_cvt_u32_f64", Unit::kValu64, kNoSdwa),
    valu<[](u32 x) { return rawf64{cvt_f64_u32(x)}; }>(kF, 0x16, "v_cvt_f64_u32", Unit::kValu64, kNoSdwa),
    F64_ROW(0x17, "v_trunc", trunc),
    F64_ROW(0x18, "v_ceil", ceil),
    F64_ROW(0x19, "v_rndne", rndne),
    F64_ROW(0x1a, "v_floor", floor),
    F32_ROW(0x1b, "v_fract", fract),
    F32_ROW(0x1c, "v_trunc", trunc),
    F32_ROW(0x1d, "v_ceil", ceil),
    F32_ROW(0x1e, "v_rndne", rndne),
    F32_ROW(0x1f, "v_floor", floor),
    trans<exp_f32_lanes>(0x20, "v_exp_f32"),
    trans<log_f32_lanes>(0x21, "v_log_f32"),
    trans<rcp_f32_lanes>(0x22, "v_rcp_f32"),
    trans<rcp_f32_lanes>(0x23, "v_rcp_iflag_f32"),
    trans<rsq_f32_lanes>(0x24, "v_rsq_f32"),
    trans64<rcp_f64>(0x25, "v_rcp_f64"),
    trans64<rsq_f64>(0x26, "v_rsq_f64"),
    trans<sqrt_f32_lanes>(0x27, "v_sqrt_f32"),
    trans64<sqrt_f64>(0x28, "v_sqrt_f64"),
    trans<sin_f32_lanes>(0x29, "v_sin_f32"),
    trans<cos_f32_lanes>(0x2a, "v_cos_f32"),
    valu<[](u32 x) { return ~x; }>(kF, 0x2b, "v_not_b32").flows(kUnion),
    valu<[](u32 x) { return reverse(x); }>(kF, 0x2c, "v_bfrev_b32").flows(kMove),
    valu<[](u32 x) { return x ? static_cast<u32>(std::countl_zero(x)) : ~0u; }>(kF, 0x2d, "v_ffbh_u32"),
    valu<[](u32 x) { return x ? static_cast<u32>(std::countr_zero(x)) : ~0u; }>(kF, 0x2e, "v_ffbl_b32"),
    valu<[](u32 x) { return sign_run(x); }>(kF, 0x2f, "v_ffbh_i32"),
    valu<[](const FpMode& m, rawf64 x) { return frexp_exp<F64>(x.bits, m); }>(kF, 0x30, "v_frexp_exp_i32_f64", Unit::kValu64, kNoSdwa),
    F64_ROW(0x31, "v_frexp_mant", frexp_mant),
    F64_ROW(0x32, "v_fract", fract),
    valu<[](const FpMode& m, rawf32 x) { return frexp_exp<F32>(x.bits, m); }>(kF, 0x33, "v_frexp_exp_i32_f32"),
    F32_ROW(0x34, "v_frexp_mant", frexp_mant),
    vector_row(kF, 0x35, "v_clrexcp", exec_nothing, {}, {}, Unit::kValu, kNoSdwa | kNoDpp),
    vector_row(kF, 0x37, "v_screen_partition_4se_b32", exec_unsupported, Type::kB32, {Type::kB32},
               Unit::kValu, 0, Fidelity::kUnverified, "traps: graphics only"),
    valu<[](b64 x) { return x; }>(kF, 0x38, "v_mov_b64", Unit::kValu64, kNoSdwa).flows(kMove),
    valu<[](const FpMode& m, u16 x) { return h16{cvt_f16_u16(x, m)}; }>(kF, 0x39, "v_cvt_f16_u16"),
    valu<[](const FpMode& m, i16 x) { return h16{cvt_f16_i16(static_cast<u16>(x), m)}; }>(kF, 0x3a, "v_cvt_f16_i16"),
    valu<[](h16 x) { return static_cast<u16>(cvt_u16_f16(x.bits)); }>(kF, 0x3b, "v_cvt_u16_f16"),
    valu<[](h16 x) { return static_cast<i16>(cvt_i16_f16(x.bits)); }>(kF, 0x3c, "v_cvt_i16_f16"),
    trans16<rcp_f16>(0x3d, "v_rcp_f16"),
    trans16<sqrt_f16>(0x3e, "v_sqrt_f16"),
    trans16<rsq_f16>(0x3f, "v_rsq_f16"),
    trans16<log_f16>(0x40, "v_log_f16"),
    trans16<exp_f16>(0x41, "v_exp_f16"),
    F16_ROW(0x42, "v_frexp_mant", frexp_mant),
    valu<[](const FpMode& m, h16 x) { return static_cast<i16>(frexp_exp<F16>(x.bits, m)); }>(kF, 0x43, "v_frexp_exp_i16_f16"),
    F16_ROW(0x44, "v_floor", floor),
    F16_ROW(0x45, "v_ceil", ceil),
    F16_ROW(0x46, "v_trunc", trunc),
    F16_ROW(0x47, "v_rndne", rndne),
    F16_ROW(0x48, "v_fract", fract),
    trans16<sin_f16>(0x49, "v_sin_f16"),
    trans16<cos_f16>(0x4a, "v_cos_f16"),
    trans<exp_f32_lanes>(0x4b, "v_exp_legacy_f32"),
    trans<log_f32_lanes>(0x4c, "v_log_legacy_f32"),
    valu<[](const FpMode& m, h16 x) { return static_cast<i16>(cvt_norm_i16_f16(x.bits, m)); }>(kF, 0x4d, "v_cvt_norm_i16_f16", Unit::kValu, 0, Fidelity::kModelled, "rounds by MODE: not documented"),
    valu<[](const FpMode& m, h16 x) { return static_cast<u16>(cvt_norm_u16_f16(x.bits, m)); }>(kF, 0x4e, "v_cvt_norm_u16_f16", Unit::kValu, 0, Fidelity::kModelled, "rounds by MODE: not documented"),
    valu<[](b32 x) { return b32{sat_pk_u8_i16(x.bits)}; }>(kF, 0x4f, "v_sat_pk_u8_i16"),
    vector_row(kF, 0x51, "v_swap_b32", swap, Type::kB32, {Type::kB32}, Unit::kValu,
               kReadsDst | kNoSdwa | kNoDpp).with(Trait::kShortOnly | Trait::kVectorSource | Trait::kSwaps).flows(kMoveWhole),
    vector_row(kF, 0x52, "v_accvgpr_mov_b32", accvgpr_mov, Type::kB32, {Type::kB32}, Unit::kValu,
               kNoSdwa | kNoDpp).with(Trait::kShortOnly | Trait::kAgprSource | Trait::kAgprResult).flows(kMoveWhole),
    valu<[](b32 x) { return rawf32{cvt_f32_fp8<Fp8<kCdna3>>(x.bits, 0)}; }>(kF, 0x54, "v_cvt_f32_fp8", Unit::kValuConvert).with(Trait::kSelectsByte).flows({kAny, 0xff}).only(kCdna3),
    valu<[](b32 x) { return rawf32{cvt_f32_fp8<Bf8<kCdna3>>(x.bits, 0)}; }>(kF, 0x55, "v_cvt_f32_bf8", Unit::kValuConvert).with(Trait::kSelectsByte).flows({kAny, 0xff}).only(kCdna3),
    valu<[](b32 x) { return b64{pair_f32<Fp8<kCdna3>>(x.bits)}; }>(kF, 0x56, "v_cvt_pk_f32_fp8", Unit::kValuConvert).with(Trait::kSelectsByte).flows({kAny, 0xffff}).only(kCdna3),
    valu<[](b32 x) { return b64{pair_f32<Bf8<kCdna3>>(x.bits)}; }>(kF, 0x57, "v_cvt_pk_f32_bf8", Unit::kValuConvert).with(Trait::kSelectsByte).flows({kAny, 0xffff}).only(kCdna3),
    valu<[](u32 x) { return prng(x); }>(kF, 0x58, "v_prng_b32").only(kCdna4),
    swapping_rows(0x59, "v_permlane16_swap_b32", swap_rows<16>),
    swapping_rows(0x5a, "v_permlane32_swap_b32", swap_rows<32>),
    valu<[](bf16 x) { return rawf32{u32{x.bits} << 16}; }>(kF, 0x5b, "v_cvt_f32_bf16", Unit::kValuConvert, 0, Fidelity::kModelled, "moves the bits, of denormals and signalling NaNs too").flows(kMove).only(kCdna4),
    valu<[](b32 x) { return rawf32{cvt_f32_fp8<Fp8<kCdna4>>(x.bits, 0)}; }>(kF, 0x54, "v_cvt_f32_fp8", Unit::kValuConvert).with(Trait::kSelectsByte).flows({kAny, 0xff}).only(kCdna4),
    valu<[](b32 x) { return rawf32{cvt_f32_fp8<Bf8<kCdna4>>(x.bits, 0)}; }>(kF, 0x55, "v_cvt_f32_bf8", Unit::kValuConvert).with(Trait::kSelectsByte).flows({kAny, 0xff}).only(kCdna4),
    valu<[](b32 x) { return b64{pair_f32<Fp8<kCdna4>>(x.bits)}; }>(kF, 0x56, "v_cvt_pk_f32_fp8", Unit::kValuConvert).with(Trait::kSelectsByte).flows({kAny, 0xffff}).only(kCdna4),
    valu<[](b32 x) { return b64{pair_f32<Bf8<kCdna4>>(x.bits)}; }>(kF, 0x57, "v_cvt_pk_f32_bf8", Unit::kValuConvert).with(Trait::kSelectsByte).flows({kAny, 0xffff}).only(kCdna4),
};
// clang-format on
static_assert(unique_opcodes(kVop1));

}  // namespace

std::span<const Row> vop1_rows() { return kVop1; }

}  // namespace vdev
