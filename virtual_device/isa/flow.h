// How the bits of a result depend on the bits of the sources: what checked mode makes the shadow of
// a result from. A row that says nothing has the default.
#pragma once

#include "core/types.h"

namespace vdev {

enum class FlowKind : u8 {
  kAny,            // the default: the whole result depends on every bit that counts
  kNothing,        // the result is a constant
  kMove,           // bits are moved as they are; `steers`: where to is the value of some sources
  kUnion,          // xor, not: bit by bit
  kAnd,            // a known 0 decides
  kOr,             // a known 1 decides
  kAndOr,          // (a & b) | c
  kSelectBits,     // v_bfi_b32: a chooses between b and c
  kTruthTable,     // v_bitop3: bit by bit, by the table in Inst::imm
  kShiftOr,        // (a << b) | c
  kSum,            // sums and products: a result bit depends on no source bit above it
  kShiftSum,       // (a << b) + c
  kSumShift,       // (a + b) << c
  kSelect,         // a condition chooses: v_cndmask_b32, s_cselect
  kKeep,           // a condition chooses between the source and the destination: s_cmov
  kPermute,        // v_perm_b32
  kEqual,          // compares for (in)equality: known bits that differ decide
  kLesser,         // minimum and maximum: SCC tells which source it was
  kPack,           // the low half from a, the high one from b
  kHalves,         // each half from the halves of its place
  kByte,           // v_cvt_pk_u8_f32: a byte of c is replaced
  kSetBit,         // s_bitset: a bit of the destination is replaced
  kTestBit,        // s_bitcmp
  kConstShiftSum,  // (a << N) + b, N in `steers`
  // Vector rows without Row::compute; the instruction itself runs on the shadow.
  kMoveWhole,
  kLane,  // the same, with the value of src1 for a lane number
  kPacked16,
  kPacked32,
  kMix,
  kFp8Pack,
  kFp8Round,
  kScaled,     // v_cvt_scalef32_*: element by element, as Row::scaled has them
  kHalfRound,  // v_cvt_sr_{f16,bf16}_f32: op_sel[3] names the half
};

struct Flow {
  FlowKind kind = FlowKind::kAny;
  u8 steers = 0;   // bit i: source i
  u8 inverts = 0;  // bit i: source i is inverted first
  // Bits of the sources (the low dword of wide ones) that count, 0: all of the operand's type.
  u32 look[3] = {0, 0, 0};

  constexpr Flow() = default;
  constexpr Flow(FlowKind k, u32 a = 0, u32 b = 0, u32 c = 0)  // NOLINT: table brevity
      : kind(k), look{a, b, c} {}
};
// Source i steers by those of its bits that count.
constexpr Flow steered(FlowKind kind, int i, u32 look) {
  Flow flow(kind);
  flow.steers = static_cast<u8>(1 << i);
  flow.look[i] = look;
  return flow;
}
constexpr Flow inverting(FlowKind kind, int i) {
  Flow flow(kind);
  flow.inverts = static_cast<u8>(1 << i);
  return flow;
}

}  // namespace vdev
