// VOP2: vector ALU with two sources.
#include "isa/dot.h"
#include "isa/lane.h"
#include "isa/tables.h"
#include "numerics/half.h"

namespace vdev {
namespace {

using enum FlowKind;

constexpr Format kF = Format::kVop2;

constexpr const char* kMacNote =
    "the upper half becomes zero, as the manual says; LLVM does not count on it";

constexpr i32 sext24(i32 x) { return static_cast<i32>(static_cast<u32>(x) << 8) >> 8; }
constexpr u32 zext24(u32 x) { return x & 0xffffff; }

// Carry-out forms: the mask says unsigned overflow; clamp saturates.
constexpr Carry<u32> sum(u32 a, u32 b, u32 c, Clamp clamp) {
  const u64 x = u64{a} + b + c;
  const bool over = x > 0xffffffff;
  return {over && clamp.value ? ~0u : static_cast<u32>(x), over};
}
constexpr Carry<u32> difference(u32 a, u32 b, u32 c, Clamp clamp) {
  const bool under = u64{a} < u64{b} + c;
  return {under && clamp.value ? 0u : a - b - c, under};
}
constexpr u16 sum16(u16 a, u16 b, Clamp clamp) {
  const u32 x = u32{a} + b;
  return static_cast<u16>(x > 0xffff && clamp.value ? 0xffff : x);
}
constexpr u16 difference16(u16 a, u16 b, Clamp clamp) {
  return static_cast<u16>(a < b && clamp.value ? 0 : a - b);
}
// S0 - S1 or S1 - S0; a NaN source comes through by position, its sign untouched.
inline h16 sub16(u16 minuend, u16 subtrahend, h16 a, h16 b, const FpMode& m) {
  return {fix_nan<F16>(sub_f16(minuend, subtrahend, m), m, a.bits, b.bits)};
}
// That clamp saturates the 24-bit products is inferred from the assembler, which takes it.
constexpr u32 product24(i32 a, i32 b, Clamp clamp) {
  const i64 x = i64{sext24(a)} * sext24(b);
  if (clamp.value && x != static_cast<i32>(x)) return x < 0 ? 0x80000000u : 0x7fffffffu;
  return static_cast<u32>(x);
}
constexpr u32 product24_unsigned(u32 a, u32 b, Clamp clamp) {
  const u64 x = u64{zext24(a)} * zext24(b);
  return clamp.value && x > 0xffffffff ? ~0u : static_cast<u32>(x);
}

// The literal K takes the place of a source: src1 in the "mk" forms, src2 in the "ak" forms.
constexpr Row with_literal(Row row, int k) {
  row.src[k] = Type::kImm;
  row.effects |= kNoSdwa | kNoDpp;
  return row;
}
template <auto Fn>
constexpr Row literal_fma(u16 opcode, const char* name, int k) {
  return with_literal(valu<Fn>(kF, opcode, name), k);
}

// Constants are f16 for these.
constexpr Row with_halves(Row row) {
  row.src[0] = row.src[1] = Type::kPkF16;
  return row;
}

void dot2c_bf16(LaneArgs& a) {
  constexpr auto kDot = [](b32 x, b32 y, Acc<f32> d) {
    return dot2_f32_bf16(x.bits, y.bits, d.value);
  };
  MxcsrScope scope(kMxcsrModeMask, kMxcsrNearestFlushing);
  lane_detail::compute<kDot>(a);
}
constexpr Row dot2c_bf16_row() {
  Row row = vector_row(kF, 0x16, "v_dot2c_f32_bf16", exec_modified, Type::kF32,
                       {Type::kPkBf16, Type::kPkBf16}, Unit::kValuDot,
                       kReadsDst | kFloat | kReadsMode | kNoSdwa, Fidelity::kModelled, kDot2Note);
  row.compute = dot2c_bf16;
  return row.only(kCdna4);
}

// clang-format off
constexpr Row kVop2[] = {
    valu<[](rawf32 a, rawf32 b, CarryIn c) { return rawf32{c.value ? b.bits : a.bits}; }>(kF, 0x00, "v_cndmask_b32").with(Trait::kMoves | Trait::kCndmask).flows(kSelect),
    valu<[](f32 a, f32 b) { return a + b; }>(kF, 0x01, "v_add_f32"),
    valu<[](f32 a, f32 b) { return a - b; }>(kF, 0x02, "v_sub_f32"),
    valu<[](f32 a, f32 b) { return b - a; }>(kF, 0x03, "v_subrev_f32"),
    valu<[](f64 a, f64 b, Acc<f64> d) { return std::fma(a, b, d.value); }>(kF, 0x04, "v_fmac_f64", Unit::kValu64, kNoSdwa).with(Trait::kFma64),
    valu<[](f32 a, f32 b) { return a * b; }>(kF, 0x05, "v_mul_f32"),
    valu<[](i32 a, i32 b, Clamp c) { return product24(a, b, c); }>(kF, 0x06, "v_mul_i32_i24").flows({kSum, 0xffffff, 0xffffff}),
    valu<[](i32 a, i32 b) { return static_cast<u32>((i64{sext24(a)} * sext24(b)) >> 32); }>(kF, 0x07, "v_mul_hi_i32_i24").flows({kAny, 0xffffff, 0xffffff}),
    valu<[](u32 a, u32 b, Clamp c) { return product24_unsigned(a, b, c); }>(kF, 0x08, "v_mul_u32_u24").flows({kSum, 0xffffff, 0xffffff}),
    valu<[](u32 a, u32 b) { return static_cast<u32>((u64{zext24(a)} * zext24(b)) >> 32); }>(kF, 0x09, "v_mul_hi_u32_u24").flows({kAny, 0xffffff, 0xffffff}),
    valu<[](const FpMode& m, rawf32 a, rawf32 b) { return rawf32{min_num<F32>(a.bits, b.bits, m)}; }>(kF, 0x0a, "v_min_f32"),
    valu<[](const FpMode& m, rawf32 a, rawf32 b) { return rawf32{max_num<F32>(a.bits, b.bits, m)}; }>(kF, 0x0b, "v_max_f32"),
    valu<[](i32 a, i32 b) { return a < b ? a : b; }>(kF, 0x0c, "v_min_i32"),
    valu<[](i32 a, i32 b) { return a < b ? b : a; }>(kF, 0x0d, "v_max_i32"),
    valu<[](u32 a, u32 b) { return a < b ? a : b; }>(kF, 0x0e, "v_min_u32"),
    valu<[](u32 a, u32 b) { return a < b ? b : a; }>(kF, 0x0f, "v_max_u32"),
    valu<[](u32 a, u32 b) { return (b >> (a & 31)); }>(kF, 0x10, "v_lshrrev_b32").flows(steered(kMove, 0, 31)),
    valu<[](u32 a, i32 b) { return (b >> (a & 31)); }>(kF, 0x11, "v_ashrrev_i32").flows(steered(kMove, 0, 31)),
    valu<[](u32 a, u32 b) { return b << (a & 31); }>(kF, 0x12, "v_lshlrev_b32").flows(steered(kMove, 0, 31)),
    valu<[](u32 a, u32 b) { return a & b; }>(kF, 0x13, "v_and_b32").flows(kAnd),
    valu<[](u32 a, u32 b) { return a | b; }>(kF, 0x14, "v_or_b32").flows(kOr),
    valu<[](u32 a, u32 b) { return a ^ b; }>(kF, 0x15, "v_xor_b32").flows(kUnion),
    dot2c_bf16_row(),
    literal_fma<[](f32 a, f32 k, f32 b) { return std::fma(a, k, b); }>(0x17, "v_fmamk_f32", 1),
    literal_fma<[](f32 a, f32 b, f32 k) { return std::fma(a, b, k); }>(0x18, "v_fmaak_f32", 2),
    valu<[](u32 a, u32 b, Clamp c) { return sum(a, b, 0, c); }>(kF, 0x19, "v_add_co_u32").flows(kSum),
    valu<[](u32 a, u32 b, Clamp c) { return difference(a, b, 0, c); }>(kF, 0x1a, "v_sub_co_u32").flows(kSum),
    valu<[](u32 a, u32 b, Clamp c) { return difference(b, a, 0, c); }>(kF, 0x1b, "v_subrev_co_u32").flows(kSum),
    valu<[](u32 a, u32 b, CarryIn i, Clamp c) { return sum(a, b, i.value, c); }>(kF, 0x1c, "v_addc_co_u32").flows(kSum),
    valu<[](u32 a, u32 b, CarryIn i, Clamp c) { return difference(a, b, i.value, c); }>(kF, 0x1d, "v_subb_co_u32").flows(kSum),
    valu<[](u32 a, u32 b, CarryIn i, Clamp c) { return difference(b, a, i.value, c); }>(kF, 0x1e, "v_subbrev_co_u32").flows(kSum),
    valu<[](const FpMode& m, h16 a, h16 b) { return h16{add_f16(a.bits, b.bits, m)}; }>(kF, 0x1f, "v_add_f16"),
    valu<[](const FpMode& m, h16 a, h16 b) { return sub16(a.bits, b.bits, a, b, m); }>(kF, 0x20, "v_sub_f16"),
    valu<[](const FpMode& m, h16 a, h16 b) { return sub16(b.bits, a.bits, a, b, m); }>(kF, 0x21, "v_subrev_f16"),
    valu<[](const FpMode& m, h16 a, h16 b) { return h16{mul_f16(a.bits, b.bits, m)}; }>(kF, 0x22, "v_mul_f16"),
    valu<[](const FpMode& m, h16 a, h16 b, Acc<h16> d) {
      return h16{mad_f16(a.bits, b.bits, d.value.bits, m)};
    }>(kF, 0x23, "v_mac_f16", Unit::kValu, 0, Fidelity::kModelled, kMacNote),
    literal_fma<[](const FpMode& m, h16 a, h16 k, h16 b) {
      return h16{mad_f16(a.bits, k.bits, b.bits, m)};
    }>(0x24, "v_madmk_f16", 1),
    literal_fma<[](const FpMode& m, h16 a, h16 b, h16 k) {
      return h16{mad_f16(a.bits, b.bits, k.bits, m)};
    }>(0x25, "v_madak_f16", 2),
    valu<[](u16 a, u16 b, Clamp c) { return sum16(a, b, c); }>(kF, 0x26, "v_add_u16").flows(kSum),
    valu<[](u16 a, u16 b, Clamp c) { return difference16(a, b, c); }>(kF, 0x27, "v_sub_u16").flows(kSum),
    valu<[](u16 a, u16 b, Clamp c) { return difference16(b, a, c); }>(kF, 0x28, "v_subrev_u16").flows(kSum),
    valu<[](u16 a, u16 b) { return static_cast<u16>(u32{a} * b); }>(kF, 0x29, "v_mul_lo_u16").flows(kSum),
    valu<[](u16 a, u16 b) { return static_cast<u16>(b << (a & 15)); }>(kF, 0x2a, "v_lshlrev_b16").flows(steered(kMove, 0, 15)),
    valu<[](u16 a, u16 b) { return static_cast<u16>(b >> (a & 15)); }>(kF, 0x2b, "v_lshrrev_b16").flows(steered(kMove, 0, 15)),
    valu<[](u16 a, i16 b) { return static_cast<i16>(b >> (a & 15)); }>(kF, 0x2c, "v_ashrrev_i16").flows(steered(kMove, 0, 15)),
    valu<[](const FpMode& m, h16 a, h16 b) { return h16{max_num<F16>(a.bits, b.bits, m)}; }>(kF, 0x2d, "v_max_f16"),
    valu<[](const FpMode& m, h16 a, h16 b) { return h16{min_num<F16>(a.bits, b.bits, m)}; }>(kF, 0x2e, "v_min_f16"),
    valu<[](u16 a, u16 b) { return a < b ? b : a; }>(kF, 0x2f, "v_max_u16"),
    valu<[](i16 a, i16 b) { return a < b ? b : a; }>(kF, 0x30, "v_max_i16"),
    valu<[](u16 a, u16 b) { return a < b ? a : b; }>(kF, 0x31, "v_min_u16"),
    valu<[](i16 a, i16 b) { return a < b ? a : b; }>(kF, 0x32, "v_min_i16"),
    valu<[](const FpMode& m, h16 a, i16 b) { return h16{ldexp<F16>(a.bits, b, m)}; }>(kF, 0x33, "v_ldexp_f16"),
    valu<[](u32 a, u32 b, Clamp c) { return sum(a, b, 0, c).value; }>(kF, 0x34, "v_add_u32").flows(kSum),
    valu<[](u32 a, u32 b, Clamp c) { return difference(a, b, 0, c).value; }>(kF, 0x35, "v_sub_u32").flows(kSum),
    valu<[](u32 a, u32 b, Clamp c) { return difference(b, a, 0, c).value; }>(kF, 0x36, "v_subrev_u32").flows(kSum),
    with_halves(valu<[](b32 a, b32 b, Acc<f32> d) { return dot2_f32_f16(a.bits, b.bits, d.value); }>(
        kF, 0x37, "v_dot2c_f32_f16", Unit::kValuDot, kNoSdwa, Fidelity::kModelled, kDot2Note)),
    valu<[](b32 a, b32 b, Acc<i32> d, Clamp c) { return dot2_i32_i16(a.bits, b.bits, d.value, c.value); }>(kF, 0x38, "v_dot2c_i32_i16", Unit::kValuDot, kNoSdwa),
    valu<[](b32 a, b32 b, Acc<i32> d, Clamp c) { return dot4_i32_i8(a.bits, b.bits, d.value, c.value); }>(kF, 0x39, "v_dot4c_i32_i8", Unit::kValuDot, kNoSdwa),
    valu<[](b32 a, b32 b, Acc<i32> d, Clamp c) { return dot8_i32_i4(a.bits, b.bits, d.value, c.value); }>(kF, 0x3a, "v_dot8c_i32_i4", Unit::kValuDot, kNoSdwa),
    valu<[](f32 a, f32 b, Acc<f32> d) { return std::fma(a, b, d.value); }>(kF, 0x3b, "v_fmac_f32"),
    with_halves(valu<[](const FpMode& m, b32 a, b32 b, Acc<b32> d) {
      const u32 x = a.bits, y = b.bits, z = d.value.bits;
      const u32 lo = fma_f16(static_cast<u16>(x), static_cast<u16>(y), static_cast<u16>(z), m);
      const u32 hi = fma_f16(static_cast<u16>(x >> 16), static_cast<u16>(y >> 16), static_cast<u16>(z >> 16), m);
      return b32{lo | hi << 16};
    }>(kF, 0x3c, "v_pk_fmac_f16", Unit::kValuPacked16, kNoSdwa | kFloat | kReadsMode).flows(kHalves)),
    valu<[](u32 a, u32 b) { return ~(a ^ b); }>(kF, 0x3d, "v_xnor_b32").flows(kUnion),
};
// clang-format on
static_assert(unique_opcodes(kVop2));

}  // namespace

std::span<const Row> vop2_rows() { return kVop2; }

}  // namespace vdev
