#include "check/hazards.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

namespace vdev {

struct Hazards::RuleIndex {
  HazardRuleSet produced[kNumHazardRoles] = {}, consumed[kNumHazardRoles] = {};
  explicit RuleIndex(InstructionSets sets) {
    const auto rules = hazard_rules();
    assert(rules.size() <= 8 * sizeof(HazardRuleSet));
    for (size_t i = 0; i < rules.size(); ++i) {
      if (rules[i].level == HazardLevel::kSilent || !(rules[i].sets & sets)) continue;
      for (int role = 0; role < kNumHazardRoles; ++role) {
        if (rules[i].producer.roles >> role & 1) produced[role] |= HazardRuleSet{1} << i;
        if (rules[i].consumer.roles >> role & 1) consumed[role] |= HazardRuleSet{1} << i;
      }
    }
  }
};

namespace {

const Hazards::RuleIndex& index_of(InstructionSets sets) {
  static std::mutex mutex;
  static auto& indices = *new std::map<InstructionSets, Hazards::RuleIndex>;  // never freed
  std::lock_guard lock(mutex);
  return indices.try_emplace(sets, sets).first->second;
}

HazardRuleSet rules_of(const HazardRuleSet (&by_role)[kNumHazardRoles], u64 roles) {
  HazardRuleSet rules = 0;
  for (; roles; roles &= roles - 1) rules |= by_role[std::countr_zero(roles)];
  return rules;
}

int lowest(HazardRuleSet rules) {
  const u64 low = static_cast<u64>(rules);
  return low ? std::countr_zero(low) : 64 + std::countr_zero(static_cast<u64>(rules >> 64));
}

// MODE for s_setvskip, which has no hwreg field.
u32 hwreg_id(const Inst& inst) { return inst.encoding == Format::kSopk ? inst.imm & 63 : 1; }

RegisterRange intersection(const RegisterRange& a, const RegisterRange& b) {
  RegisterRange both = b;
  both.first = std::max(a.first, b.first);
  both.count = static_cast<u16>(std::min(a.first + a.count, b.first + b.count) - both.first);
  return both;
}

// As the instruction spells it: an operand of AGPRs tells where they begin.
std::string spelled(const Inst& inst, const RegisterRange& range) {
  const Operand* operand = range.source < kDstSource    ? &inst.src[range.source]
                           : range.source == kDstSource ? &inst.dst
                                                        : nullptr;
  const bool agpr = operand && operand->kind == OperandKind::kAgpr;
  return register_name(range, agpr ? operand->base : 512);
}

// Takes `now` out of the writes of `use`.
void cut(RegisterUse& use, const RegisterRange& now) {
  for (int w = use.num_writes; w-- > 0;) {
    const RegisterRange old = use.writes[w];
    if (!now.overlaps(old)) continue;
    use.writes[w] = use.writes[--use.num_writes];
    const auto keep = [&](int first, int end) {
      if (first >= end || use.num_writes == std::size(use.writes)) return;
      RegisterRange& rest = use.writes[use.num_writes++];
      rest = old;
      rest.first = static_cast<u16>(first);
      rest.count = static_cast<u16>(end - first);
    };
    keep(old.first, now.first);
    keep(now.first + now.count, old.first + old.count);
  }
}

}  // namespace

// What overwrites a register comes after the earlier result, and who reads the register later has
// to do with the new one: of a scalar instruction, which waited for the VALU's write and is waited
// for in turn; of a matrix instruction, which left the same pipeline later.
void Hazards::forget_overwritten(const RegisterUse& use, bool by_matrix) {
  const RegisterFile file = by_matrix ? RegisterFile::kVector : RegisterFile::kScalar;
  const u32 window = by_matrix ? kMaxHazardWait : kMaxScalarWait;
  for (u32 i = 1; i <= kDepth; ++i) {
    Past& past = past_[(head_ - i) % kDepth];
    if (slot_ - past.slot > window) break;
    if (by_matrix && !past.passes) continue;
    for (int n = 0; n < use.num_writes; ++n)
      if (use.writes[n].file == file) cut(past.use, use.writes[n]);
  }
}

void Hazards::step(const Step& step) {
  if (!index_) index_ = &index_of(step.report.code().set->wait_states());
  const RuleIndex& index = *index_;
  const Inst& inst = step.inst;
  if (inst.row->is(Trait::kNop)) {
    slot_ += (inst.imm & 15) + 1;
    return;
  }
  const u8 passes = inst.passes;
  const u64 roles = hazard_roles(inst, step.use);
  if (const HazardRuleSet consumed = rules_of(index.consumed, roles)) {
    for (u32 i = 1; i <= kDepth; ++i) {
      const Past& past = past_[(head_ - i) % kDepth];
      if (slot_ - past.slot > kMaxHazardWait) break;
      if (const HazardRuleSet rules = past.rules & consumed) check(step, past, rules, passes);
    }
  }
  if ((inst.row->format <= Format::kSmem && step.use.num_writes) || passes)
    forget_overwritten(step.use, passes > 0);
  if (const HazardRuleSet produced = rules_of(index.produced, roles)) {
    Past& past = past_[head_++ % kDepth];
    past.inst = &inst;
    past.rules = produced;
    past.slot = slot_;
    past.passes = passes;
    past.use = step.use;
  }
  ++slot_;
}

void Hazards::check(const Step& step, const Past& past, HazardRuleSet rules, u8 passes) const {
  const int present = static_cast<int>(slot_ - past.slot) - 1;
  const HazardRule* worst = nullptr;
  RegisterRange where;
  for (; rules; rules &= rules - 1) {
    const HazardRule& rule = hazard_rules()[static_cast<size_t>(lowest(rules))];
    const int required = rule.required(past.passes);
    if (required <= present) continue;
    // Errors before advice, then the longest.
    if (worst &&
        std::pair(worst->level, -worst->required(past.passes)) <= std::pair(rule.level, -required))
      continue;
    if (rule.only_passes && rule.only_passes != past.passes) continue;
    if (past.passes < rule.from_passes) continue;
    if (rule.opcodes != HazardOpcodes::kAny &&
        (rule.opcodes == HazardOpcodes::kEqual) != (past.inst->row == step.inst.row))
      continue;
    RegisterRange at;
    if (!holds(rule, step, past, passes, at)) continue;
    worst = &rule;
    where = at;
  }
  if (!worst) return;
  const FindingKind kind =
      worst->level == HazardLevel::kError ? FindingKind::kHazard : FindingKind::kHazardAdvice;
  step.report.add(step.wave, step.inst, kind, step.report.pc(*past.inst), [&](Finding& f) {
    if (where.count) f.where = spelled(step.inst, where);
    f.message = std::string(worst->name) + ": " + worst->producer.text + ", then " +
                worst->consumer.text + ": " + std::to_string(worst->required(past.passes)) +
                " wait states are required, " + std::to_string(present) + " are present (" +
                worst->source + ")";
  });
}

// Whether the registers are related as the rule has it; `where`: those that both name.
bool Hazards::holds(const HazardRule& rule, const Step& step, const Past& past, u8 passes,
                    RegisterRange& where) {
  if (rule.match == HazardMatch::kHwreg) return hwreg_id(*past.inst) == hwreg_id(step.inst);
  if (rule.consumer.registers == HazardRegisters::kNone) return true;
  const HazardRanges made = hazard_ranges(rule.producer.registers, *past.inst, past.use);
  const HazardRanges used = hazard_ranges(rule.consumer.registers, step.inst, step.use);
  for (const RegisterRange* a : made) {
    for (const RegisterRange* b : used) {
      if (!a->overlaps(*b)) continue;
      const Operand& d = past.inst->dst;
      const bool same = d.reg() == b->first && d.dwords == b->count && past.passes == passes &&
                        past.inst->row == step.inst.row;
      if (rule.match != HazardMatch::kOverlap && same != (rule.match == HazardMatch::kSame))
        continue;
      where = intersection(*a, *b);
      return true;
    }
  }
  return false;
}

}  // namespace vdev
