// How the shadow of a vector instruction's result follows from the shadows of its sources. A row
// without a rule of its own has the default: a lane's result is uninitialised as a whole when a bit
// of the sources that counts is.
#pragma once

#include "isa/inst.h"

namespace vdev {

enum class TaintKind : u8 {
  kAny,         // the default
  kNothing,     // the result is a constant
  kMove,        // the instruction itself, on shadows; `steers`: by the values of some sources
  kUnion,       // xor, not: bit by bit
  kAnd,         // a clean 0 decides
  kOr,          // a clean 1 decides
  kAndOr,       // (a & b) | c
  kSelectBits,  // v_bfi_b32: a chooses between b and c
  kShiftOr,     // (a << b) | c
  kSum,         // sums and products: a result bit depends on no source bit above it
  kShiftSum,    // (a << b) + c
  kSumShift,    // (a + b) << c
  kSelect,      // v_cndmask_b32
  kPermute,     // v_perm_b32
  kEqual,       // compares for (in)equality: clean bits that differ decide
  kPack,        // the low half from a, the high one from b
  kHalves,      // each half from the halves of its place
  kByte,        // v_cvt_pk_u8_f32: a byte of c is replaced
  // Rows without Row::compute; the instruction is executed on the shadow of the wave as it is.
  kMoveWhole,
  kLane,  // the same, with the value of src1 for a lane number
  kPacked16,
  kPacked32,
  kMix,
  kFp8Pack,
  kFp8Round,
};

struct TaintRule {
  TaintKind kind = TaintKind::kAny;
  u8 steers = 0;  // bit i: source i
  // Bits of the sources (the low dword of wide ones) that count, 0: all of the operand's type.
  u32 look[3] = {0, 0, 0};
};

const TaintRule& taint_rule(const Row& row);

}  // namespace vdev
