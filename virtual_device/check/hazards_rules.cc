#include "check/hazards_rules.h"

#include <iterator>
#include <vector>

namespace vdev {
namespace {

using namespace role;

using enum HazardRegisters;
using Side = HazardRule::Side;

// Sources. Tables and sections are of AMD's "Instinct MI300 CDNA3 Instruction Set Architecture"; a
// cell that its print leaves empty is filled from the "Vega 7nm" manual's table, which has the same
// rows. "LLVM": what LLVM 22 inserts, as the tests' hazard_oracle_*.json record it.
#define ISA11 "CDNA3 ISA 4.5, Table 11"
#define ISA37 "CDNA3 ISA 7.5, Table 37"
#define ISA11_4 "CDNA4 ISA 4.5, Table 11"

// Sides that several rows share.
constexpr u64 kAlu = kAnyValu | kMatrix;  // "VALU" where matrix instructions count as such
constexpr Side kValuVgpr{"VALU writes VGPR", kAnyValu, kVectorWrites};
constexpr Side kValuSgpr{"VALU writes SGPR, VCC or EXEC", kWritesScalar, kScalarWrites};
constexpr Side kCmpxWrite{"v_cmpx writes EXEC", kCmpx};
constexpr Side kSaluM0{"SALU writes M0", kSaluWritesM0};
constexpr Side kDotWrite{"v_dot writes VGPR", kDotOp, kVectorWrites};
constexpr Side kWideData{"store or compare-and-swap of more than 64 bits, no SGPR offset",
                         kWideStore, kStoreData};

constexpr HazardRule kRules[] = {
    // ---- Scalar state
    {.name = "setreg-getreg",
     .producer = {"s_setreg", kSetreg},
     .consumer = {"s_getreg of the same register", kGetreg},
     .wait = 2,
     .match = HazardMatch::kHwreg,
     .source = ISA11 " row 1; LLVM"},
    {.name = "setreg-setreg",
     .producer = {"s_setreg", kSetreg},
     .consumer = {"s_setreg of the same register", kSetreg},
     .wait = 2,
     .match = HazardMatch::kHwreg,
     .source = ISA11 " row 2; LLVM"},
    {.name = "setvskip-getreg",
     .producer = {"s_setvskip", kSetVskip},
     .consumer = {"s_getreg of MODE", kGetreg},
     .wait = 2,
     .match = HazardMatch::kHwreg,
     .source = ISA11 " row 3"},
    {.name = "setreg-vskip-vector",
     .producer = {"s_setreg of MODE.vskip", kSetregVskip},
     .consumer = {"any vector instruction", kVectorOp},
     .wait = 2,
     .source = ISA11 " row 4"},
    {.name = "setreg-trapsts-rfe",
     .producer = {"s_setreg of TRAPSTS", kSetregTrap},
     .consumer = {"s_rfe", kRfe},
     .wait = 1,
     .source = ISA11 " row S_SETREG TRAPSTS"},
    {.name = "m0-message",
     .producer = kSaluM0,
     .consumer = {"s_sendmsg, s_ttracedata, GWS", kMessageOp},
     .wait = 1,
     .source = ISA11 " row SALU writes M0, GDS; LLVM"},
    {.name = "m0-lds",
     .producer = kSaluM0,
     .consumer = {"LDS add-TID instruction, or load to LDS", kAddTid | kLdsDma},
     .wait = 1,
     .source = ISA11 " row SALU writes M0, LDS add-TID (wait from Vega 7nm); LLVM"},
    {.name = "m0-movrel",
     .producer = kSaluM0,
     .consumer = {"s_movrel", kMovrel},
     .wait = 1,
     .source = ISA11 " row SALU writes M0, S_MOVEREL; LLVM"},

    // ---- VALU writes an SGPR, VCC or EXEC
    {.name = "valu-zero-flag",
     .producer = kValuSgpr,
     .consumer = {"VALU reads VCCZ or EXECZ of it as data", kAnyValu, kZeroFlags},
     .wait = 5,
     .source = ISA11 " row VALU sets VCC or EXEC (wait from Vega 7nm)"},
    {.name = "valu-lane-select",
     .producer = kValuSgpr,
     .consumer = {"v_readlane or v_writelane selects the lane by it", kSelectsLane, kLaneSelect},
     .wait = 4,
     .source = ISA11 " row V_{READ,WRITE}LANE (wait from Vega 7nm); LLVM"},
    {.name = "valu-vcc-div-fmas",
     .producer = kValuSgpr,
     .consumer = {"v_div_fmas reads VCC", kDivFmas, kVcc},
     .wait = 4,
     .source = ISA11 " row V_DIV_FMAS; LLVM"},
    {.name = "valu-sgpr-vmem",
     .producer = kValuSgpr,
     .consumer = {"buffer, flat, global or scratch instruction reads it", kVmem, kScalarReads},
     .wait = 5,
     .source = ISA11 " row VMEM reads that SGPR; LLVM"},
    {.name = "valu-sgpr-constant",
     .producer = kValuSgpr,
     .consumer = {"VALU reads it as a constant", kAnyValu, kConstants},
     .wait = 2,
     // Covers the row of 1 for VCC under two names: an encoding names VCC in one way only.
     .source = ISA11 " rows VALU reads SGPR as constant, VALU reads EXEC as constant; LLVM"},
    // The manual's 0 is for carries. Of lane masks it says nothing, and AMD's hand-written kernels
    // do without, in 1,077 of the 1,432 that AITER ships; compilers never do.
    {.name = "valu-sgpr-select",
     .producer = kValuSgpr,
     .consumer = {"v_cndmask selects by it", kSelectOp, kCarryIn},
     .wait = 2,
     .source = "LLVM gfx940",
     .level = HazardLevel::kAdvice},
    {.name = "valu-sgpr-carry-in",
     .producer = kValuSgpr,
     .consumer = {"VALU reads it as a carry-in", kAnyValu, kCarryIn},
     .wait = 2,
     .source = "LLVM; " ISA11 " row VALU reads SGPR as carry-in: 0",
     .level = HazardLevel::kAdvice},
    {.name = "cmpx-lane",
     .producer = kCmpxWrite,
     .consumer = {"v_readlane, v_readfirstlane or v_writelane", kLaneOp},
     .wait = 4,
     .source = ISA11 " row v_cmpx; LLVM"},
    {.name = "cmpx-dpp",
     .producer = kCmpxWrite,
     .consumer = {"DPP instruction", kDppOp},
     .wait = 5,
     .source = ISA11 " row VALU writes EXEC, DPP; LLVM"},
    {.name = "cmpx-vmem",
     .producer = kCmpxWrite,
     .consumer = {"buffer, flat, global or scratch instruction", kVmem},
     .wait = 5,
     .source = "LLVM"},
    {.name = "cmpx-mfma",
     .producer = kCmpxWrite,
     .consumer = {"MFMA or SMFMAC", kMatrix},
     .wait = 4,
     .source = ISA37 " row V_CMPX; LLVM"},
    {.name = "cmpx-swap",
     .producer = kCmpxWrite,
     .consumer = {"v_permlane16_swap or v_permlane32_swap", kSwapsRows},
     .wait = 4,
     .source = ISA11_4 " row V_CMPX, V_PERMLANE*; LLVM",
     .sets = kCdna4},

    // ---- VALU writes a VGPR
    {.name = "vgpr-swap",
     .producer = kValuVgpr,
     .consumer = {"v_permlane16_swap or v_permlane32_swap reads it", kSwapsRows, kVectorReads},
     .wait = 2,
     .source = ISA11_4 " row VALU writes vdst, V_PERMLANE*; LLVM",
     .sets = kCdna4},
    {.name = "vgpr-dpp",
     .producer = kValuVgpr,
     .consumer = {"DPP instruction reads it as the permuted source", kDppOp, kSource0},
     .wait = 2,
     .source = ISA11 " row VALU DPP reads that VGPR; LLVM"},
    {.name = "vgpr-dpp-other",
     .producer = kValuVgpr,
     .consumer = {"DPP instruction reads it as another source", kDppOp, kOtherSources},
     .wait = 2,
     .source = "LLVM",
     .level = HazardLevel::kAdvice},
    {.name = "vgpr-dpp-old",
     .producer = kValuVgpr,
     .consumer = {"DPP instruction may keep its old value", kDppOp, kVectorWrites},
     .wait = 2,
     .source = "LLVM",
     .level = HazardLevel::kAdvice},
    {.name = "load-dpp",
     .producer = {"load returns to VGPR", kMemory, kVectorWrites},
     .consumer = {"DPP instruction reads or writes it", kDppOp, kVectorAccess},
     .wait = 2,
     .source = "LLVM",
     .level = HazardLevel::kAdvice},
    {.name = "vgpr-readlane",
     .producer = kValuVgpr,
     .consumer = {"v_readlane or v_readfirstlane reads it", kReadsLane, kVectorReads},
     .wait = 1,
     .source = ISA11 " row v_readlane vsrc0; LLVM"},
    {.name = "partial-use",
     .producer = {"SDWA, op_sel or fp8 select places VALU result", kPartialOp, kVectorWrites},
     .consumer = {"VALU or load to LDS reads it", kAnyValu | kLdsDma, kVectorReads},
     .wait = 1,
     .source = ISA11 " row OPSEL or SDWA; LLVM"},
    {.name = "partial-write",
     .producer = {"SDWA, op_sel or fp8 select places VALU result", kPartialOp, kVectorWrites},
     .consumer = {"VALU or matrix instruction writes it", kAlu, kVectorWrites},
     .wait = 1,
     .source = "LLVM"},
    // Its name, no modifier, places the result in the upper half.
    {.name = "mix-high-use",
     .producer = {"v_fma_mixhi writes VGPR", kMixHigh, kVectorWrites},
     .consumer = {"VALU, matrix instruction or load to LDS uses it", kAlu | kLdsDma, kVectorAccess},
     .wait = 1,
     .source = "LLVM",
     .level = HazardLevel::kAdvice},
    {.name = "trans-use",
     .producer = {"transcendental VALU writes VGPR", kTransOp, kVectorWrites},
     .consumer = {"other VALU or load to LDS reads it", kNonTransValu | kLdsDma, kVectorReads},
     .wait = 1,
     .source = ISA11 " row VALU Trans op (wait from LLVM)"},
    {.name = "valu-mfma",
     .producer = {"VALU (v_dot apart) writes VGPR", kNonDotValu, kVectorWrites},
     .consumer = {"MFMA or SMFMAC reads it", kMatrix, kVectorReads},
     .wait = 2,
     .source = ISA37 " row Non-DLops VALU; LLVM"},
    {.name = "dot-same-ab",
     .producer = kDotWrite,
     .consumer = {"the same v_dot reads it as A or B", kDotOp, kMatrixAb},
     .wait = 3,
     .opcodes = HazardOpcodes::kEqual,
     .source = ISA37 " row DL ops; LLVM"},
    {.name = "dot-read",
     .producer = kDotWrite,
     .consumer = {"any other vector instruction reads it", kVectorOp, kVectorReads},
     .wait = 3,
     .opcodes = HazardOpcodes::kDifferent,
     .source = ISA37 " row DL ops; LLVM"},
    {.name = "dot-write",
     .producer = kDotWrite,
     .consumer = {"any other vector instruction writes it", kVectorOp, kVectorWrites},
     .wait = 3,
     .opcodes = HazardOpcodes::kDifferent,
     .source = ISA37 " row DL ops; LLVM"},

    // ---- Data of wide stores
    {.name = "wide-store-valu",
     .producer = kWideData,
     .consumer = {"VALU writes the data", kAlu, kVectorWrites},
     .wait = 2,
     .source = ISA11 " row VALU writes VGPRs holding writedata; LLVM"},
    // The manual has no row for it, and LLVM 22 does not wait.
    {.name = "wide-store-offset-valu",
     .producer = {"buffer store or compare-and-swap of more than 64 bits, SGPR offset",
                  kWideOffsetStore, kStoreData},
     .consumer = {"VALU writes the data", kAlu, kVectorWrites},
     .wait = 1,
     .source = "LLVM, measured on silicon (llvm-project 197267)"},
    {.name = "wide-store-load",
     .producer = kWideData,
     .consumer = {"load or atomic returns to the data", kMemory, kVectorWrites},
     .wait = 1,
     // LLVM follows wide stores with LDS reads into their data.
     .source = ISA11 " row write VGPRs holding writedata",
     .level = HazardLevel::kSilent},
};

#undef ISA11
#undef ISA37
#undef ISA11_4

}  // namespace

std::span<const HazardRule> hazard_rules() {
  static const std::vector<HazardRule> all = [] {
    std::vector<HazardRule> rules{std::begin(kRules), std::end(kRules)};
    rules.insert(rules.end(), matrix_hazard_rules().begin(), matrix_hazard_rules().end());
    return rules;
  }();
  return all;
}

}  // namespace vdev
