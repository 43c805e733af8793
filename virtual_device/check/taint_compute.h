// Computations on shadows that take the place of Row::compute.
#pragma once

#include "isa/flow.h"
#include "isa/operand.h"

namespace vdev::taint {

// A scalar source with 64 bits of shadow.
inline Operand constant(u64 value) {
  Operand o;
  o.kind = OperandKind::kConst;
  o.dwords = 2;
  o.lo = static_cast<u32>(value);
  o.hi = static_cast<u32>(value >> 32);
  return o;
}

// What exec_modified executes on the shadow: the instruction with shadows for scalar operands, and
// what the rule needs to know of the real one.
struct ShadowInst : Inst {
  const Row* real = nullptr;
  Flow flow;
  int sources = 0;
  u8 wide = 0;      // bit i: source i has two dwords
  Reg value[3][2];  // the real sources, modifiers applied
  u64 mask_value = 0;
  u32 result = 0;  // bits of the result's type
};

// Completes `in`, which is a copy of the instruction: sources, widths, rule.
void describe(const Inst& real, ShadowInst& in);
// Whether the rule looks at ShadowInst::value and mask_value.
bool needs_values(const Flow& flow);
// Takes the place of compute on the real wave: fills those in and changes nothing.
void capture(LaneArgs& a);
// The rule.
Compute compute_of(const Flow& flow);

}  // namespace vdev::taint
