// What an instruction is to the rules: from its row, its modifiers and its registers.
#include <initializer_list>
#include <utility>

#include "check/hazards_rules.h"
#include "core/wave.h"
#include "isa/scaled.h"
#include "numerics/mfma.h"

namespace vdev {
namespace {

using namespace role;

constexpr u32 kHwregMode = 1, kHwregTrapsts = 3;
constexpr u32 kVskipBit = 28;

// Of traits that are roles as they are.
u64 roles_of(const Row& row, std::initializer_list<std::pair<Traits, u64>> table) {
  u64 roles = 0;
  for (const auto& [traits, role] : table)
    if (row.is(traits)) roles |= role;
  return roles;
}

u64 alu_roles(const Row& row) {
  const bool trans = row.unit == Unit::kTrans || row.unit == Unit::kTrans64;
  const bool dot = row.unit == Unit::kValuDot;
  u64 roles = kVectorOp | kAnyValu;
  roles |= trans ? kTransOp : kNonTransValu;
  roles |= dot ? kDotOp : kNonDotValu;
  if (row.is(Trait::kMix) && row.is(Trait::kHighHalf)) roles |= kMixHigh;
  if (row.effects & kWritesExec) roles |= kCmpx;
  return roles | roles_of(row, {{Trait::kDivFmas, kDivFmas},
                                {Trait::kCndmask, kSelectOp},
                                {Trait::kFma64, kFma64},
                                {Trait::kSwapsRows, kSwapsRows},
                                {Trait::kReadsLane, kReadsLane},
                                {Trait::kSelectsLane, kSelectsLane},
                                {Trait::kReadsLane | Trait::kSelectsLane, kLaneOp}});
}

u64 memory_roles(const Row& row) {
  const u64 roles = kVectorOp | kMemory;
  if (row.format != Format::kDs) return roles | kVmem | (row.effects & kReadsM0 ? kLdsDma : 0u);
  return roles | roles_of(row, {{Trait::kGws, kMessageOp}, {Trait::kAddsLane, kAddTid}});
}

u64 scalar_roles(const Row& row) {
  return roles_of(row, {{Trait::kSetreg, kSetreg},
                        {Trait::kGetreg, kGetreg},
                        {Trait::kSetVskip, kSetVskip},
                        {Trait::kFromTrap, kRfe},
                        {Trait::kMovesSource | Trait::kMovesResult, kMovrel},
                        {Trait::kMessage, kMessageOp}});
}

u64 matrix_roles(const Row& row) {
  const MfmaGeometry& g = row.matrix->geometry;
  return kVectorOp | (g.a == MfmaSrc::kF64   ? (g.m == 16 ? kDgemm16 : kDgemm4)
                      : g.a == MfmaSrc::kF32 ? kSgemm
                                             : kXdl);
}

u64 row_roles(const Row& row) {
  if (is_matrix(row.unit)) return matrix_roles(row);
  if (is_valu(row.unit)) return alu_roles(row);
  if (row.format >= Format::kDs) return memory_roles(row);
  return scalar_roles(row);
}

u32 hwreg_id(const Inst& inst) { return inst.imm & 63; }
bool sets_vskip(const Inst& inst) {
  const u32 first = inst.imm >> 6 & 31, width = (inst.imm >> 11 & 31) + 1;
  return hwreg_id(inst) == kHwregMode && first <= kVskipBit && kVskipBit < first + width;
}

// The result does not land where the operation makes it.
bool moves_result(const Inst& inst) {
  if (inst.suffix == Suffix::kSdwa) return inst.row->dst.used() && inst.dst_sel != 6;
  if (inst.encoding != Format::kVop3) return false;
  // Conversions to less than 16 bits choose a byte with two bits, the others a half with one.
  if (const ScaledShape* const scaled = inst.row->scaled) {
    if (scaled->stochastic && scaled->result_bits == 4) return true;  // LLVM, whatever op_sel is
    return inst.op_sel & inst.row->op_sel_mask & 0xc;
  }
  return inst.op_sel & (inst.row->is(Trait::kPlacesByte) ? 0xc : 0x8);
}

}  // namespace

u64 hazard_roles(const Inst& inst, const RegisterUse& use) {
  u64 roles = row_roles(*inst.row);
  if (roles & kAnyValu) {
    if (inst.suffix == Suffix::kDpp) roles |= kDppOp;
    if (moves_result(inst)) roles |= kPartialOp;
    for (int i = 0; i < use.num_writes; ++i)
      if (use.writes[i].file == RegisterFile::kScalar) roles |= kWritesScalar;
    return roles;
  }
  if (roles & kVmem) {
    if (inst.lds) roles |= kLdsDma;
    const bool buffer = inst.encoding == Format::kMubuf || inst.encoding == Format::kMtbuf;
    if (inst.row->effects & (kStore | kAtomic) && inst.src[1].dwords > 2)
      roles |= buffer && inst.src[3].kind == OperandKind::kSgpr ? kWideOffsetStore : kWideStore;
    return roles;
  }
  if (roles & kSetreg) {
    if (sets_vskip(inst)) roles |= kSetregVskip;
    if (hwreg_id(inst) == kHwregTrapsts) roles |= kSetregTrap;
  }
  if (inst.encoding <= Format::kSopp)
    for (int i = 0; i < use.num_writes; ++i)
      if (use.writes[i].file == RegisterFile::kScalar && use.writes[i].contains(kM0))
        roles |= kSaluWritesM0;
  return roles;
}

HazardRanges hazard_ranges(HazardRegisters part, const Inst& inst, const RegisterUse& use) {
  using enum HazardRegisters;
  HazardRanges found;
  const auto reads = [&](auto&& wanted) {
    for (int i = 0; i < use.num_reads; ++i)
      if (wanted(use.reads[i])) found.ranges[found.count++] = &use.reads[i];
  };
  const auto writes = [&](auto&& wanted) {
    for (int i = 0; i < use.num_writes; ++i)
      if (wanted(use.writes[i])) found.ranges[found.count++] = &use.writes[i];
  };
  const auto is_vector = [](const RegisterRange& r) { return r.file == RegisterFile::kVector; };
  const auto is_scalar = [](const RegisterRange& r) {
    return r.file == RegisterFile::kScalar && r.first != kSccIndex;
  };
  const auto is_mask = [&](const RegisterRange& r) {
    return r.source == kImplicit ||
           (r.source < kDstSource && inst.row->src[r.source].type == Type::kMask);
  };
  const bool sparse = inst.row->effects & kReadsDst;  // of matrix instructions
  switch (part) {
    case kNone:
      break;
    case kVectorWrites:
      writes(is_vector);
      break;
    case kVectorReads:
      reads(is_vector);
      break;
    case kVectorAccess:
      reads(is_vector);
      writes(is_vector);
      break;
    case kSource0:
      reads([&](const RegisterRange& r) { return is_vector(r) && r.source == 0; });
      break;
    case kOtherSources:
      reads([&](const RegisterRange& r) { return is_vector(r) && r.source != 0; });
      break;
    case kScalarWrites:
      writes(is_scalar);
      break;
    case kScalarReads:
      reads(is_scalar);
      break;
    case kConstants:
      reads([&](const RegisterRange& r) { return is_scalar(r) && !is_mask(r); });
      break;
    case kCarryIn:
      reads([&](const RegisterRange& r) { return is_scalar(r) && is_mask(r); });
      break;
    case kZeroFlags:
      reads([&](const RegisterRange& r) {
        return is_scalar(r) && r.source < kDstSource &&
               inst.src[r.source].kind == OperandKind::kSpecial;
      });
      break;
    case kVcc:
      reads([&](const RegisterRange& r) {
        return is_scalar(r) && (r.contains(SgprIndex::kVcc) || r.contains(SgprIndex::kVcc + 1));
      });
      break;
    case kLaneSelect:
      reads([&](const RegisterRange& r) { return is_scalar(r) && r.source == 1; });
      break;
    case kStoreData:
      reads([&](const RegisterRange& r) { return is_vector(r) && r.source == 1; });
      break;
    case kMatrixAb:
      reads([&](const RegisterRange& r) {
        return r.source < kDstSource && (sparse || r.source != 2);
      });
      break;
    case kMatrixC:
      reads([&](const RegisterRange& r) { return r.source == (sparse ? kDstSource : 2); });
      break;
    case kMatrixAddends:
      reads([&](const RegisterRange& r) { return r.source == 2 || r.source == kDstSource; });
      break;
  }
  return found;
}

}  // namespace vdev
