// VOP3 instructions that CDNA4 brought, but for conversions with a scale.
#include <algorithm>

#include "isa/lane.h"
#include "isa/tables.h"
#include "numerics/convert.h"
#include "numerics/stochastic.h"

namespace vdev {
namespace {

using enum FlowKind;

constexpr Format kF = Format::kVop3;

constexpr const char* kKeepsNote = "keeps the other half of the result: not documented";

// ---- v_bitop3: bit i of the result is the table's at {a[i], b[i], c[i]}

void bitop3(LaneArgs& args) {
  const LaneArgs a = args;
  const u32 table = static_cast<u32>(a.inst->imm);
  u32 ones[8];
  for (u32 row = 0; row < 8; ++row) ones[row] = table >> row & 1 ? ~0u : 0u;
  VDEV_LANES for (int i = 0; i < kLanes; ++i) {
    const u32 x = a.src[0]->lane[i], y = a.src[1]->lane[i], z = a.src[2]->lane[i];
    const auto pair = [&](int row) { return (ones[row + 1] & z) | (ones[row] & ~z); };
    const u32 clear = (y & pair(2)) | (~y & pair(0)), set = (y & pair(6)) | (~y & pair(4));
    a.dst->lane[i] = (x & set) | (~x & clear);
  }
}
constexpr Row bitop3_row(u16 opcode, const char* name, Type type, u32 effects, Fidelity fidelity,
                         const char* note) {
  Row row = vector_row(kF, opcode, name, exec_modified, type, {type, type, type}, Unit::kValu,
                       effects, fidelity, note);
  row.compute = bitop3;
  return row.with(Trait::kTruthTable).flows(kTruthTable);
}

// ---- conversions

template <u16 (*Fn)(u32, u32, const FpMode&)>
void round_half(Wave& w, const Inst& in) {
  const Reg a = signed_source(w, in, 0), seed = *lanes(w, in.src[1], 1, 2);
  const int shift = in.op_sel >> 3 & 1 ? 16 : 0;
  Reg* dst = vector(w, in.dst);
  for_lanes(w.exec(), [&](int lane) {
    u32& d = dst->lane[lane];
    d = (d & ~(0xffffu << shift)) | u32{Fn(a.lane[lane], seed.lane[lane], w.fp)} << shift;
  });
}
template <u16 (*Fn)(u32, u32, const FpMode&)>
constexpr Row round_half_row(u16 opcode, const char* name) {
  return vector_row(kF, opcode, name, round_half<Fn>, Type::kB32, {Type::kF32, Type::kB32},
                    Unit::kValuConvert, kReadsDst | kD16 | kReadsMode, Fidelity::kModelled,
                    "seed added to the discarded bits")
      .selects(3, 8)
      .flows(kHalfRound);
}

constexpr u16 shifted_bytes(i32 a, i32 b, u32 shift, i32 least, i32 most) {
  const auto byte = [&](i32 x) {
    return static_cast<u32>(std::clamp(x >> (shift & 31), least, most)) & 0xff;
  };
  return static_cast<u16>(byte(a) | byte(b) << 8);
}
constexpr Row shifting(Row row) { return row.selects(4, 8).flows({kAny, 0, 0, 31}); }

// clang-format off
constexpr Row kVop3Cdna4[] = {
    bitop3_row(0x233, "v_bitop3_b16", Type::kB16, kD16, Fidelity::kModelled, kKeepsNote).halves(4).only(kCdna4),
    bitop3_row(0x234, "v_bitop3_b32", Type::kB32, 0, Fidelity::kExact, "").only(kCdna4),
    shifting(valu<[](i32 a, i32 b, u32 c) { return shifted_bytes(a, b, c, INT8_MIN, INT8_MAX); }>(
        kF, 0x265, "v_ashr_pk_i8_i32", Unit::kValu, kD16, Fidelity::kModelled, kKeepsNote)).only(kCdna4),
    shifting(valu<[](i32 a, i32 b, u32 c) { return shifted_bytes(a, b, c, 0, UINT8_MAX); }>(
        kF, 0x266, "v_ashr_pk_u8_i32", Unit::kValu, kD16, Fidelity::kModelled, kKeepsNote)).only(kCdna4),
    valu<[](const FpMode& m, rawf32 a, rawf32 b) {
      return f32_to_f16(a.bits, Round::kNearestEven, m) | u32{f32_to_f16(b.bits, Round::kNearestEven, m)} << 16;
    }>(kF, 0x267, "v_cvt_pk_f16_f32").flows(kPack).only(kCdna4),
    valu<[](const FpMode& m, rawf32 a, rawf32 b) {
      return f32_to_bf16(flush_in<F32>(a.bits, m), m.fp16_ovfl) | f32_to_bf16(flush_in<F32>(b.bits, m), m.fp16_ovfl) << 16;
    }>(kF, 0x268, "v_cvt_pk_bf16_f32", Unit::kValu, 0, Fidelity::kModelled, "denormal sources by MODE; NaNs keep their upper half: not documented").flows(kPack).only(kCdna4),
    round_half_row<cvt_sr_f16_f32>(0x2a6, "v_cvt_sr_f16_f32").only(kCdna4),
    round_half_row<cvt_sr_bf16_f32>(0x2a7, "v_cvt_sr_bf16_f32").only(kCdna4),
    valu<[](const FpMode& m, rawf32 a, rawf32 b, rawf32 c) {
      return rawf32{minimum3<F32>(a.bits, b.bits, c.bits, m)};
    }>(kF, 0x2a8, "v_minimum3_f32").only(kCdna4),
    valu<[](const FpMode& m, rawf32 a, rawf32 b, rawf32 c) {
      return rawf32{maximum3<F32>(a.bits, b.bits, c.bits, m)};
    }>(kF, 0x2a9, "v_maximum3_f32").only(kCdna4),
};
// clang-format on
static_assert(unique_opcodes(kVop3Cdna4));

}  // namespace

std::span<const Row> vop3_cdna4_rows() { return kVop3Cdna4; }

}  // namespace vdev
