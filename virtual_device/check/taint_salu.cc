// Scalar ALU instructions that touch uninitialised bits.
#include <memory>
#include <optional>
#include <string_view>

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

// "s_and_saveexec" of s_and_saveexec_b64: the name without its type.
std::string_view stem_of(const Row& row) {
  const std::string_view name = row.name;
  return name.substr(0, name.rfind('_'));
}

bool starts(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

// a op b, with a or b inverted; the result's inversion changes no shadow.
struct Logic {
  char op;
  bool invert_a, invert_b;
  u64 taint(u64 t, u64 v, u64 u, u64 w) const {
    if (invert_a) v = ~v;
    if (invert_b) w = ~w;
    if (op == '^') return t | u;
    if (op == '|') v = ~v, w = ~w;
    return (t & u) | (t & w) | (v & u);  // a clean 0 decides
  }
};
std::optional<Logic> logic_of(std::string_view stem) {
  const std::string_view rest = stem.substr(2);
  const std::string_view op = rest.substr(0, rest.find('_'));
  if (op == "and" || op == "nand") return Logic{'&', false, false};
  if (op == "or" || op == "nor") return Logic{'|', false, false};
  if (op == "xor" || op == "xnor") return Logic{'^', false, false};
  if (op == "andn1") return Logic{'&', true, false};
  if (op == "andn2") return Logic{'&', false, true};
  if (op == "orn1") return Logic{'|', true, false};
  if (op == "orn2") return Logic{'|', false, true};
  return std::nullopt;
}

// Instructions that only move bits of src0, where src1 says how.
bool moves(std::string_view stem) {
  for (const std::string_view name : {"s_mov", "s_not", "s_brev", "s_sext_i32",
                                      "s_bitreplicate_b64", "s_lshl", "s_lshr", "s_ashr", "s_bfe"})
    if (stem == name) return true;
  return starts(stem, "s_pack_");
}
// Bits of src1 that say how; 0: it is data.
u64 steering_bits(std::string_view stem, u8 dwords) {
  const u64 amount = dwords == 2 ? 63 : 31;
  if (stem == "s_bfe") return amount | 0x7f0000;
  return stem == "s_lshl" || stem == "s_lshr" || stem == "s_ashr" ? amount : 0;
}
bool sums(std::string_view stem) {
  for (const std::string_view name :
       {"s_add", "s_sub", "s_addc", "s_subb", "s_mul", "s_addk", "s_mulk"})
    if (stem == name) return true;
  return false;
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
  const std::string_view stem = stem_of(row);
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
    const bool to = starts(stem, "s_movreld");
    Operand from = inst.src[0], dst = inst.dst;
    Operand& moved = to ? dst : from;
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
  if (const auto logic = logic_of(stem)) {
    nonzero = true;
    if (row.effects & kWritesExec) {
      const u64 combined = logic->taint(a.taint, a.value, exec_taint(), w.exec());
      if (combined) scc = zero_unknown(combined, result());
      set_scalars(inst.dst,
                  starts(stem.substr(2), "andn1_wr") || starts(stem.substr(2), "andn2_wr")
                      ? combined
                      : exec_taint(),
                  origin);
      for (u32 i = 0; i < 2; ++i)
        set_scalar(kExec + i, static_cast<u32>(combined >> 32 * i), origin);
      set_scalar(kSccIndex, combined ? scc : 0, origin);
      return;
    }
    taint = logic->taint(a.taint, a.value, b.taint, b.value);
  } else if (moves(stem)) {
    nonzero = true;
    const u64 steering = steering_bits(stem, row.dst.dwords);
    Wave& shadow = bench();
    Inst in = inst;
    in.src[0] = taint::constant(a.taint);
    in.src[1] = taint::constant(steering ? b.value : b.taint);
    in.dst.index = 0;
    row.exec(shadow, in);
    taint = row.dst.dwords == 2 ? shadow.pair(0) : shadow.s[0];
    if (stem == "s_not") taint = a.taint;
    if (b.taint & steering) taint = width;
  } else if (stem == "s_cselect") {
    taint = scc_taint ? any | (a.value ^ b.value) : w.scc ? a.taint : b.taint;
  } else if (stem == "s_cmov" || stem == "s_cmovk") {
    const u64 value = stem == "s_cmov" ? a.value : static_cast<u64>(i64{inst.imm});
    taint = scc_taint ? any | (value ^ old.value) : w.scc ? a.taint : old.taint;
  } else if (sums(stem)) {
    taint = upwards(any | u64{(row.effects & kReadsScc) && scc_taint});
  } else if (starts(stem, "s_lshl") && stem.size() == 11 && stem.substr(7) == "_add") {
    taint = upwards(a.taint << (stem[6] - '0') | b.taint);
    scc = any != 0;
  } else if (starts(stem, "s_bitset")) {
    const u64 bits = row.dst.dwords == 2 ? 63 : 31;
    taint = a.taint & bits ? width : old.taint & ~(u64{1} << (a.value & bits));
  } else if (starts(stem, "s_bitcmp")) {
    const u64 bits = row.src[0].dwords == 2 ? 63 : 31;
    scc = (b.taint & bits) != 0 || (a.taint >> (b.value & bits) & 1) != 0;
  } else if (starts(stem, "s_cmp_eq") || starts(stem, "s_cmp_lg")) {
    scc = any && !((a.value ^ b.value) & ~any);
  } else if (starts(stem, "s_cmpk_eq") || starts(stem, "s_cmpk_lg")) {
    const u64 k = row.name[stem.size() + 1] == 'u' ? static_cast<u64>(inst.imm & 0xffff)
                                                   : static_cast<u64>(static_cast<u32>(inst.imm));
    scc = any && !((old.value ^ k) & ~any & ~0u);
  } else if (!starts(stem, "s_min") && !starts(stem, "s_max")) {
    nonzero = true;
  }
  taint &= width;
  if (row.effects & kWritesScc) {
    if (nonzero) scc = taint && zero_unknown(taint, result());
    set_scalar(kSccIndex, scc, origin);
  }
  const bool compares = row.format == Format::kSopc || starts(stem, "s_cmpk");
  if (!compares) set_scalars(inst.dst, taint, origin);
}

}  // namespace vdev
