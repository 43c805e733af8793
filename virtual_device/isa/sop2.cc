// SOP2, SOPC and SOPK: scalar ALU with two sources, compares, and 16-bit immediates.
#include "core/program.h"
#include "isa/control.h"
#include "isa/scalar.h"
#include "isa/tables.h"

namespace vdev {
namespace {

using enum FlowKind;

template <class T>
constexpr Scc<T> logic(T x) {
  return {x, x != 0};
}
// Signed add and subtract report signed overflow in SCC.
constexpr Scc<i32> signed_sum(i64 x) {
  return {static_cast<i32>(x), x != static_cast<i64>(static_cast<i32>(x))};
}
constexpr u32 low16(u32 x) { return x & 0xffff; }

// S1[4:0] (5:0) offset, S1[22:16] width. A field that reaches beyond the top goes on with zeros, or
// with the sign when signed.
template <class T>
constexpr T extract(T x, u32 control, bool is_signed) {
  using Signed = std::make_signed_t<T>;
  constexpr u32 bits = sizeof(T) * 8;
  const u32 offset = control & (bits - 1), width = control >> 16 & 0x7f;
  if (width == 0) return 0;
  const T field = is_signed ? static_cast<T>(static_cast<Signed>(x) >> offset) : x >> offset;
  if (width >= bits) return field;
  const T top = field << (bits - width);
  return is_signed ? static_cast<T>(static_cast<Signed>(top) >> (bits - width))
                   : top >> (bits - width);
}

// (a << n) + b
constexpr Flow plus_shifted(int n) {
  Flow flow(kConstShiftSum);
  flow.steers = static_cast<u8>(n);
  return flow;
}

#define LOGIC(OP, NAME, EXPR, FLOW)                                                                \
  salu<[](u32 a, u32 b) { return logic<u32>(EXPR); }>(Format::kSop2, OP, NAME "_b32").flows(FLOW), \
      salu<[](u64 a, u64 b) { return logic<u64>(EXPR); }>(Format::kSop2, OP + 1, NAME "_b64")      \
          .flows(FLOW)

// clang-format off
constexpr Row kSop2[] = {
    salu<[](u32 a, u32 b) { return Scc<u32>{a + b, a + b < a}; }>(Format::kSop2, 0x00, "s_add_u32").flows(kSum),
    salu<[](u32 a, u32 b) { return Scc<u32>{a - b, a < b}; }>(Format::kSop2, 0x01, "s_sub_u32").flows(kSum),
    salu<[](i32 a, i32 b) { return signed_sum(i64{a} + b); }>(Format::kSop2, 0x02, "s_add_i32").flows(kSum),
    salu<[](i32 a, i32 b) { return signed_sum(i64{a} - b); }>(Format::kSop2, 0x03, "s_sub_i32").flows(kSum),
    salu<[](u32 a, u32 b, SccIn c) {
      const u64 sum = u64{a} + b + c.value;
      return Scc<u32>{static_cast<u32>(sum), (sum >> 32) != 0};
    }>(Format::kSop2, 0x04, "s_addc_u32").flows(kSum),
    salu<[](u32 a, u32 b, SccIn c) {
      return Scc<u32>{a - b - c.value, (u64{b} + c.value > a)};
    }>(Format::kSop2, 0x05, "s_subb_u32").flows(kSum),
    salu<[](i32 a, i32 b) { return Scc<i32>{a < b ? a : b, a < b}; }>(Format::kSop2, 0x06, "s_min_i32").flows(kLesser),
    salu<[](u32 a, u32 b) { return Scc<u32>{a < b ? a : b, a < b}; }>(Format::kSop2, 0x07, "s_min_u32").flows(kLesser),
    salu<[](i32 a, i32 b) { return Scc<i32>{(a < b ? b : a), (a >= b)}; }>(Format::kSop2, 0x08, "s_max_i32").flows(kLesser),
    salu<[](u32 a, u32 b) { return Scc<u32>{(a < b ? b : a), (a >= b)}; }>(Format::kSop2, 0x09, "s_max_u32").flows(kLesser),
    salu<[](u32 a, u32 b, SccIn c) { return c.value ? a : b; }>(Format::kSop2, 0x0a, "s_cselect_b32").flows(kSelect),
    salu<[](u64 a, u64 b, SccIn c) { return c.value ? a : b; }>(Format::kSop2, 0x0b, "s_cselect_b64").flows(kSelect),
    LOGIC(0x0c, "s_and", a & b, kAnd),
    LOGIC(0x0e, "s_or", a | b, kOr),
    LOGIC(0x10, "s_xor", a ^ b, kUnion),
    LOGIC(0x12, "s_andn2", a & ~b, inverting(kAnd, 1)),
    LOGIC(0x14, "s_orn2", a | ~b, inverting(kOr, 1)),
    LOGIC(0x16, "s_nand", ~(a & b), kAnd),
    LOGIC(0x18, "s_nor", ~(a | b), kOr),
    LOGIC(0x1a, "s_xnor", ~(a ^ b), kUnion),
    salu<[](u32 a, u32 b) { return logic<u32>(a << (b & 31)); }>(Format::kSop2, 0x1c, "s_lshl_b32").flows(steered(kMove, 1, 31)),
    salu<[](u64 a, u32 b) { return logic<u64>(a << (b & 63)); }>(Format::kSop2, 0x1d, "s_lshl_b64").flows(steered(kMove, 1, 63)),
    salu<[](u32 a, u32 b) { return logic<u32>(a >> (b & 31)); }>(Format::kSop2, 0x1e, "s_lshr_b32").flows(steered(kMove, 1, 31)),
    salu<[](u64 a, u32 b) { return logic<u64>(a >> (b & 63)); }>(Format::kSop2, 0x1f, "s_lshr_b64").flows(steered(kMove, 1, 63)),
    salu<[](i32 a, u32 b) { return logic<i32>(a >> (b & 31)); }>(Format::kSop2, 0x20, "s_ashr_i32").flows(steered(kMove, 1, 31)),
    salu<[](i64 a, u32 b) { return logic<i64>(a >> (b & 63)); }>(Format::kSop2, 0x21, "s_ashr_i64").flows(steered(kMove, 1, 63)),
    salu<[](u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); }>(Format::kSop2, 0x22, "s_bfm_b32"),
    salu<[](u32 a, u32 b) {
      return ((u64{1} << (a & 63)) - 1) << (b & 63);
    }>(Format::kSop2, 0x23, "s_bfm_b64"),
    salu<[](u32 a, u32 b) { return a * b; }>(Format::kSop2, 0x24, "s_mul_i32").flows(kSum),
    salu<[](u32 a, u32 b) { return logic<u32>(extract<u32>(a, b, false)); }>(Format::kSop2, 0x25, "s_bfe_u32").flows(steered(kMove, 1, 0x7f001f)),
    salu<[](u32 a, u32 b) { return logic<u32>(extract<u32>(a, b, true)); }>(Format::kSop2, 0x26, "s_bfe_i32").flows(steered(kMove, 1, 0x7f001f)),
    salu<[](u64 a, u32 b) { return logic<u64>(extract<u64>(a, b, false)); }>(Format::kSop2, 0x27, "s_bfe_u64").flows(steered(kMove, 1, 0x7f003f)),
    salu<[](u64 a, u32 b) { return logic<u64>(extract<u64>(a, b, true)); }>(Format::kSop2, 0x28, "s_bfe_i64").flows(steered(kMove, 1, 0x7f003f)),
    salu<[](i32 a, i32 b) {
      const u32 d = static_cast<u32>(a) - static_cast<u32>(b);
      return logic<u32>(static_cast<i32>(d) < 0 ? 0u - d : d);
    }>(Format::kSop2, 0x2a, "s_absdiff_i32"),
    salu<[](u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32); }>(Format::kSop2, 0x2c, "s_mul_hi_u32"),
    salu<[](i32 a, i32 b) { return static_cast<u32>(i64{a} * b >> 32); }>(Format::kSop2, 0x2d, "s_mul_hi_i32"),
#define SHIFT_ADD(OP, N)                                                                     \
  salu<[](u32 a, u32 b) {                                                                    \
    const u64 sum = (u64{a} << N) + b;                                                       \
    return Scc<u32>{static_cast<u32>(sum), (sum >> 32) != 0};                                \
  }>(Format::kSop2, OP, "s_lshl" #N "_add_u32").flows(plus_shifted(N))
    SHIFT_ADD(0x2e, 1),
    SHIFT_ADD(0x2f, 2),
    SHIFT_ADD(0x30, 3),
    SHIFT_ADD(0x31, 4),
#undef SHIFT_ADD
    salu<[](u32 a, u32 b) { return low16(a) | b << 16; }>(Format::kSop2, 0x32, "s_pack_ll_b32_b16").flows(kMove),
    salu<[](u32 a, u32 b) { return low16(a) | (b & 0xffff0000); }>(Format::kSop2, 0x33, "s_pack_lh_b32_b16").flows(kMove),
    salu<[](u32 a, u32 b) { return (a >> 16) | (b & 0xffff0000); }>(Format::kSop2, 0x34, "s_pack_hh_b32_b16").flows(kMove),
};
// clang-format on
static_assert(unique_opcodes(kSop2));

#define COMPARE(OP, NAME, T, CMP) salu<[](T a, T b) { return (a CMP b); }>(Format::kSopc, OP, NAME)
#define COMPARE_EQUAL(OP, NAME, T, CMP) COMPARE(OP, NAME, T, CMP).flows(kEqual)

// clang-format off
constexpr Row kSopc[] = {
    COMPARE_EQUAL(0x00, "s_cmp_eq_i32", i32, ==), COMPARE_EQUAL(0x01, "s_cmp_lg_i32", i32, !=),
    COMPARE(0x02, "s_cmp_gt_i32", i32, >),  COMPARE(0x03, "s_cmp_ge_i32", i32, >=),
    COMPARE(0x04, "s_cmp_lt_i32", i32, <),  COMPARE(0x05, "s_cmp_le_i32", i32, <=),
    COMPARE_EQUAL(0x06, "s_cmp_eq_u32", u32, ==), COMPARE_EQUAL(0x07, "s_cmp_lg_u32", u32, !=),
    COMPARE(0x08, "s_cmp_gt_u32", u32, >),  COMPARE(0x09, "s_cmp_ge_u32", u32, >=),
    COMPARE(0x0a, "s_cmp_lt_u32", u32, <),  COMPARE(0x0b, "s_cmp_le_u32", u32, <=),
    salu<[](u32 a, u32 b) { return ((a >> (b & 31)) & 1) == 0; }>(Format::kSopc, 0x0c, "s_bitcmp0_b32").flows({kTestBit, 0, 31}),
    salu<[](u32 a, u32 b) { return ((a >> (b & 31)) & 1) != 0; }>(Format::kSopc, 0x0d, "s_bitcmp1_b32").flows({kTestBit, 0, 31}),
    salu<[](u64 a, u32 b) { return (((a >> (b & 63)) & 1) == 0); }>(Format::kSopc, 0x0e, "s_bitcmp0_b64").flows({kTestBit, 0, 63}),
    salu<[](u64 a, u32 b) { return (((a >> (b & 63)) & 1) != 0); }>(Format::kSopc, 0x0f, "s_bitcmp1_b64").flows({kTestBit, 0, 63}),
    scalar_row(Format::kSopc, 0x10, "s_setvskip", exec_setvskip, {}, {Type::kB32, Type::kB32},
               kWritesMode).with(Trait::kSetVskip),
    scalar_row(Format::kSopc, 0x11, "s_set_gpr_idx_on", exec_set_gpr_idx_on, {},
               {Type::kB32, Type::kImm}, kWritesMode | kWritesM0).with(Trait::kIndexMask),
    COMPARE_EQUAL(0x12, "s_cmp_eq_u64", u64, ==),
    COMPARE_EQUAL(0x13, "s_cmp_lg_u64", u64, !=),
};
// clang-format on
static_assert(unique_opcodes(kSopc));

#define COMPARE_SIGNED(OP, NAME, CMP)                                                     \
  salu<[](Dst<i32> d, Simm k) { return (d.value CMP k.value); }>(Format::kSopk, OP, NAME) \
      .with(Trait::kDstIsSource)
#define COMPARE_UNSIGNED(OP, NAME, CMP)                                                    \
  salu<[](Dst<u32> d, Simm k) { return (d.value CMP low16(static_cast<u32>(k.value))); }>( \
      Format::kSopk, OP, NAME)                                                             \
      .with(Trait::kDstIsSource)

// clang-format off
constexpr Row kSopk[] = {
    salu<[](Simm k) { return k.value; }>(Format::kSopk, 0x00, "s_movk_i32"),
    salu<[](Simm k, SccIn c) { return Maybe<i32>{k.value, c.value}; }>(Format::kSopk, 0x01, "s_cmovk_i32").flows(kKeep),
    COMPARE_SIGNED(0x02, "s_cmpk_eq_i32", ==).flows(kEqual),
    COMPARE_SIGNED(0x03, "s_cmpk_lg_i32", !=).flows(kEqual),
    COMPARE_SIGNED(0x04, "s_cmpk_gt_i32", >),
    COMPARE_SIGNED(0x05, "s_cmpk_ge_i32", >=),
    COMPARE_SIGNED(0x06, "s_cmpk_lt_i32", <),
    COMPARE_SIGNED(0x07, "s_cmpk_le_i32", <=),
    COMPARE_UNSIGNED(0x08, "s_cmpk_eq_u32", ==).flows(kEqual),
    COMPARE_UNSIGNED(0x09, "s_cmpk_lg_u32", !=).flows(kEqual),
    COMPARE_UNSIGNED(0x0a, "s_cmpk_gt_u32", >),
    COMPARE_UNSIGNED(0x0b, "s_cmpk_ge_u32", >=),
    COMPARE_UNSIGNED(0x0c, "s_cmpk_lt_u32", <),
    COMPARE_UNSIGNED(0x0d, "s_cmpk_le_u32", <=),
    salu<[](Dst<i32> d, Simm k) { return signed_sum(i64{d.value} + k.value); }>(Format::kSopk, 0x0e, "s_addk_i32").flows(kSum),
    salu<[](Dst<u32> d, Simm k) { return d.value * static_cast<u32>(k.value); }>(Format::kSopk, 0x0f, "s_mulk_i32").flows(kSum),
    scalar_row(Format::kSopk, 0x10, "s_cbranch_i_fork", exec_unsupported, {}, {Type::kB64, Type::kImm},
               kBranch, Unit::kBranch, Fidelity::kUnverified, "traps: no compiler emits it").with(Trait::kLeavesFunction | Trait::kConditional),
    scalar_row(Format::kSopk, 0x11, "s_getreg_b32", exec_getreg, Type::kB32, {Type::kImm}, kReadsMode,
               Unit::kSalu, Fidelity::kModelled, "identity registers hold modelled places").with(Trait::kGetreg),
    scalar_row(Format::kSopk, 0x12, "s_setreg_b32", exec_setreg, Type::kB32, {Type::kImm},
               kReadsDst | kWritesMode).with(Trait::kSetreg | Trait::kDstIsSource),
    scalar_row(Format::kSopk, 0x14, "s_setreg_imm32_b32", exec_setreg_imm32, {},
               {Type::kImm, Type::kImm}, kWritesMode).with(Trait::kSetreg | Trait::kLiteralSource),
    scalar_row(Format::kSopk, 0x15, "s_call_b64", exec_call, Type::kB64, {Type::kImm}, kBranch, Unit::kBranch).with(Trait::kLeavesFunction),
};
// clang-format on
static_assert(unique_opcodes(kSopk));

}  // namespace

std::span<const Row> sop2_rows() { return kSop2; }
std::span<const Row> sopc_rows() { return kSopc; }
std::span<const Row> sopk_rows() { return kSopk; }

}  // namespace vdev
