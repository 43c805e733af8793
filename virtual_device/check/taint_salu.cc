// Scalar ALU instructions that touch uninitialised bits.
#include <memory>

#include "check/taint.h"
#include "check/taint_compute.h"
#include "isa/operand.h"

namespace vdev {
namespace {

u64 upwards(u64 t) { return t | (0 - t); }

// A bare wave on which instructions run to see what they make of shadows.
Wave& bench() {
  thread_local std::unique_ptr<Wave> wave = std::make_unique<Wave>();
  return *wave;
}

// a op b, with a or b inverted; that the result is inverted changes no shadow.
u64 logic(const Flow& flow, u64 t, u64 v, u64 u, u64 w) {
  if (flow.kind == FlowKind::kUnion) return t | u;
  if (flow.inverts & 1) v = ~v;
  if (flow.inverts & 2) w = ~w;
  if (flow.kind == FlowKind::kOr) v = ~v, w = ~w;
  return (t & u) | (t & w) | (v & u);  // a clean 0 decides
}

}  // namespace

Taint::Pair Taint::source(const Step& step, int i) const {
  const OperandSpec& spec = step.inst.row->src[i];
  const Operand& o = step.inst.src[i];
  if (!spec.used() || spec.type == Type::kImm) return {0, 0};
  const u64 width = spec.dwords == 2 ? ~u64{0} : ~0u;
  const u64 value = spec.dwords == 2 ? read_scalar64(step.wave, o) : u64{read_scalar(step.wave, o)};
  return {scalar_operand(step.wave, o) & width, value & width};
}

void Taint::scalar(const Step& step) {
  const Inst& inst = step.inst;
  const Row& row = *inst.row;
  const Wave& w = step.wave;
  const Flow& flow = row.flow;
  const Inst* const origin = origin_of(step);
  const Pair a = source(step, 0), b = source(step, 1);
  const bool scc_taint = scalar_[kSccIndex] != 0;
  const u64 width = row.dst.dwords == 2 ? ~u64{0} : ~0u;
  const bool reads_dst = (row.effects & kReadsDst) != 0 && inst.dst.kind == OperandKind::kSgpr;
  const Pair old = !reads_dst            ? Pair{0, 0}
                   : row.dst.dwords == 2 ? Pair{pair(inst.dst.index), w.pair(inst.dst.index)}
                                         : Pair{scalar_[inst.dst.index], w.s[inst.dst.index]};
  const u64 any = a.taint | b.taint | old.taint;

  if (row.effects & kBranch) {
    // s_setpc_b64, s_swappc_b64, s_call_b64; what is written is the program counter.
    if (a.taint)
      report(step, FindingKind::kUninitialisedBranch, {RegisterFile::kScalar, inst.src[0].index, 2},
             -1, "the target of a jump");
    return set_scalars(inst.dst, 0, nullptr);
  }
  if (row.effects & kWritesMode) {  // s_setreg: MODE has no shadow. s_set_gpr_idx_on: nor has that.
    if (row.effects & kWritesM0)
      set_scalar(kM0, (scalar_[kM0] & ~0xf0ffu) | (static_cast<u32>(a.taint) & 0xff), origin);
    return;
  }
  if (row.effects & kWritesM0)  // s_set_gpr_idx_idx
    return set_scalar(kM0, (scalar_[kM0] & ~0xffu) | (static_cast<u32>(a.taint) & 0xff), origin);
  if (row.effects & kReadsM0) {  // s_movrels_*, s_movreld_*
    const u32 offset = w.s[kM0];
    Operand from = inst.src[0], dst = inst.dst;
    Operand& moved = row.is(Trait::kMovesResult) ? dst : from;
    if (u64{moved.index} + offset + moved.dwords > w.num_sgprs) return;  // it faults
    moved.index = static_cast<u16>(moved.index + offset);
    const u64 taint = scalar_operand(w, from);
    return set_scalars(dst, scalar_[kM0] ? ~u64{0} : taint, origin);
  }

  // What the instruction makes of the real sources.
  const auto result = [&]() -> u64 {
    Wave& real = bench();
    std::memcpy(real.s, w.s, sizeof w.s);
    real.scc = w.scc;
    row.exec(real, inst);
    if (row.effects & kWritesExec) return real.exec();
    return row.dst.dwords == 2 ? real.pair(inst.dst.index) : real.s[inst.dst.index];
  };
  u64 taint = any ? width : 0;
  bool scc = any != 0 || (row.effects & kReadsScc && scc_taint);
  bool nonzero = false;  // SCC says whether the result is not zero
  switch (flow.kind) {
    case FlowKind::kAnd:
    case FlowKind::kOr:
    case FlowKind::kUnion:
      nonzero = true;
      if (row.effects & kWritesExec) {
        const u64 combined = logic(flow, a.taint, a.value, exec_taint(), w.exec());
        if (combined) scc = zero_unknown(combined, result());
        set_scalars(inst.dst, row.is(Trait::kNewExec) ? combined : exec_taint(), origin);
        for (u32 i = 0; i < 2; ++i)
          set_scalar(kExec + i, static_cast<u32>(combined >> 32 * i), origin);
        set_scalar(kSccIndex, combined ? scc : 0, origin);
        return;
      }
      taint = logic(flow, a.taint, a.value, b.taint, b.value);
      break;
    case FlowKind::kMove: {  // bits of src0, where src1 says how if it steers
      nonzero = true;
      const u64 steering = flow.look[1];
      Wave& shadow = bench();
      Inst in = inst;
      in.src[0] = taint::constant(a.taint);
      in.src[1] = taint::constant(steering ? b.value : b.taint);
      in.dst.index = 0;
      row.exec(shadow, in);
      taint = row.dst.dwords == 2 ? shadow.pair(0) : shadow.s[0];
      if (b.taint & steering) taint = width;
      break;
    }
    case FlowKind::kSelect:
      taint = scc_taint ? any | (a.value ^ b.value) : w.scc ? a.taint : b.taint;
      break;
    case FlowKind::kKeep: {
      const bool immediate = row.format == Format::kSopk;
      const u64 value = immediate ? static_cast<u64>(i64{inst.imm}) : a.value;
      taint = scc_taint ? any | (value ^ old.value) : w.scc ? a.taint : old.taint;
      break;
    }
    case FlowKind::kSum:
      taint = upwards(any | u64{(row.effects & kReadsScc) && scc_taint});
      break;
    case FlowKind::kConstShiftSum:
      taint = upwards(a.taint << flow.steers | b.taint);
      scc = any != 0;
      break;
    case FlowKind::kSetBit:
      taint = a.taint & flow.look[0] ? width : old.taint & ~(u64{1} << (a.value & flow.look[0]));
      break;
    case FlowKind::kTestBit:
      scc = (b.taint & flow.look[1]) != 0 || (a.taint >> (b.value & flow.look[1]) & 1) != 0;
      break;
    case FlowKind::kEqual:
      if (row.is(Trait::kDstIsSource)) {  // with SIMM16
        const u32 k = static_cast<u32>(inst.imm) & (row.dst.type == Type::kI32 ? ~0u : 0xffff);
        scc = any && !((old.value ^ k) & ~any & ~0u);
      } else {
        scc = any && !((a.value ^ b.value) & ~any);
      }
      break;
    case FlowKind::kLesser:
      break;
    default:
      nonzero = true;
  }
  taint &= width;
  if (row.effects & kWritesScc) {
    if (nonzero) scc = taint && zero_unknown(taint, result());
    set_scalar(kSccIndex, scc, origin);
  }
  if (row.format != Format::kSopc && !row.is(Trait::kDstIsSource))
    set_scalars(inst.dst, taint, origin);
}

}  // namespace vdev
