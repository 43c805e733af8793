// What holds across the vector formats: which modifiers an instruction has, and how many scalars it
// may read.
#include "core/wave.h"
#include "isa/decoder.h"

namespace vdev {
int num_sources(const Row& row) {
  int n = 0;
  while (n < 3 && row.src[n].used()) ++n;
  return n;
}

// Modifiers that mean nothing for the operand's type; the assembler refuses them too.
void Decoder::check_modifiers() {
  const int n = num_sources(*row_);
  for (int i = 0; i < 3; ++i) {
    const bool modified = ((inst_.neg | inst_.abs) >> i & 1) != 0;
    const bool floating = i < n && is_float(row_->src[i].type);
    need(!modified || floating, "neg or abs of an operand that is no float");
    need(!(inst_.sext >> i & 1) || !floating, "sext of a float");
  }
  const bool float_result =
      !row_->is(Trait::kMoves) && (is_float(row_->dst.type) || row_->dst.type == Type::kPkF16);
  const bool float_compare = row_->format == Format::kVopc && is_float(row_->src[0].type) &&
                             is_float(row_->src[1].type);  // not v_cmp_class
  need(inst_.omod == 0 || float_result, "omod of an integer");
  need(!inst_.clamp || float_result || float_compare || row_->is(Trait::kSaturates),
       "clamp of an instruction that does not saturate");
  need((inst_.op_sel & ~row_->op_sel_mask) == 0, "op_sel of an operand that has no halves");
}

// A VALU instruction reads one SGPR (or pair, VCC among them) or one literal.
void Decoder::check_constant_bus() {
  u32 seen[4];
  int n = 0;
  const auto count = [&](u32 key) {
    for (int i = 0; i < n; ++i)
      if (seen[i] == key) return;
    seen[n++] = key;
  };
  const bool writelane = row_->is(Trait::kSelectsLane) && !row_->is(Trait::kReadsLane);
  if (row_->effects & kReadsVcc) count(kVcc | 2u << 16);
  for (int i = 0; i < 3; ++i) {
    const Operand& s = inst_.src[i];
    if (writelane && i == 1 && s.index == kM0) continue;  // the lane select has its own path
    if (s.kind == OperandKind::kSgpr) count(s.index | static_cast<u32>(s.dwords) << 16);
    if (s.kind == OperandKind::kSpecial) count(s.code);
    if (s.kind == OperandKind::kConst && s.code == kLiteralCode) count(kLiteralCode);
  }
  need(n <= 1, "more than one SGPR or literal is read");
}

void Decoder::find_plain() {
  const bool packed =
      inst_.encoding == Format::kVop3p && !is_matrix(row_->unit) && !row_->is(Trait::kMix);
  const u8 default_op_sel_hi = packed ? static_cast<u8>((1 << num_sources(*row_)) - 1) : 0;
  inst_.plain = inst_.suffix == Suffix::kPlain && !inst_.clamp &&
                (inst_.neg | inst_.abs | inst_.op_sel | inst_.neg_hi | inst_.omod | inst_.cbsz |
                 inst_.abid | inst_.blgp) == 0 &&
                inst_.op_sel_hi == default_op_sel_hi;
}

}  // namespace vdev
