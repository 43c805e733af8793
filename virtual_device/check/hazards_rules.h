// The wait states that instruction sets leave to software: one table, which the checker and the
// documentation (docs/generated/checked-mode-hazards.md) both read.
#pragma once

#include <span>

#include "isa/register_use.h"

namespace vdev {

// What an instruction is to the rules; an instruction has several.
namespace role {
inline constexpr u64 kVectorOp = u64{1} << 0;  // VALU, matrix, LDS or vector memory
inline constexpr u64 kAnyValu = u64{1} << 1;   // without matrix instructions, as everywhere below
inline constexpr u64 kNonTransValu = u64{1} << 2;
inline constexpr u64 kNonDotValu = u64{1} << 3;
inline constexpr u64 kTransOp = u64{1} << 4;
inline constexpr u64 kDotOp = u64{1} << 5;
inline constexpr u64 kPartialOp = u64{1} << 6;  // SDWA, op_sel or a byte select places the result
inline constexpr u64 kWideOffsetStore = u64{1} << 7;  // as kWideStore, of a buffer; SGPR offset
inline constexpr u64 kDppOp = u64{1} << 8;
inline constexpr u64 kWritesScalar = u64{1} << 9;  // VALU
inline constexpr u64 kCmpx = u64{1} << 10;         // writes EXEC
inline constexpr u64 kDivFmas = u64{1} << 11;
inline constexpr u64 kReadsLane = u64{1} << 12;    // v_readlane, v_readfirstlane
inline constexpr u64 kSelectsLane = u64{1} << 13;  // v_readlane, v_writelane
inline constexpr u64 kLaneOp = u64{1} << 14;       // any of the three
inline constexpr u64 kFma64 = u64{1} << 15;
inline constexpr u64 kXdl = u64{1} << 16;        // v_mfma of up to 16 bits, xf32, and v_smfmac
inline constexpr u64 kSgemm = u64{1} << 17;      // v_mfma of f32
inline constexpr u64 kDgemm16 = u64{1} << 18;    // v_mfma_f64_16x16x4
inline constexpr u64 kDgemm4 = u64{1} << 19;     // v_mfma_f64_4x4x4
inline constexpr u64 kVmem = u64{1} << 20;       // buffer, flat, global, scratch
inline constexpr u64 kMemory = u64{1} << 21;     // kVmem and LDS
inline constexpr u64 kWideStore = u64{1} << 22;  // stores or swaps > 64 bits a lane; no SGPR offset
inline constexpr u64 kSaluWritesM0 = u64{1} << 23;
inline constexpr u64 kMessageOp = u64{1} << 24;  // s_sendmsg, s_ttracedata, GWS
inline constexpr u64 kLdsDma = u64{1} << 25;     // loads to LDS
inline constexpr u64 kAddTid = u64{1} << 26;     // LDS add-TID
inline constexpr u64 kMovrel = u64{1} << 27;
inline constexpr u64 kSetreg = u64{1} << 28;
inline constexpr u64 kSetVskip = u64{1} << 29;     // s_setvskip
inline constexpr u64 kSetregVskip = u64{1} << 30;  // s_setreg of MODE.vskip
inline constexpr u64 kSetregTrap = u64{1} << 31;   // s_setreg of TRAPSTS
inline constexpr u64 kGetreg = u64{1} << 32;
inline constexpr u64 kRfe = u64{1} << 33;
inline constexpr u64 kSelectOp = u64{1} << 34;   // v_cndmask
inline constexpr u64 kSwapsRows = u64{1} << 35;  // v_permlane16_swap, v_permlane32_swap
inline constexpr u64 kMixHigh = u64{1} << 36;
inline constexpr u64 kSdgemm = kSgemm | kDgemm16 | kDgemm4;
inline constexpr u64 kMatrix = kXdl | kSdgemm;
}  // namespace role
inline constexpr int kNumHazardRoles = 37;

// A part of the registers that an instruction reads or writes.
enum class HazardRegisters : u8 {
  kNone,  // the rule holds whatever the registers
  kVectorWrites,
  kVectorReads,
  kVectorAccess,  // both
  kSource0,       // vector
  kOtherSources,  // vector, without source 0
  kScalarWrites,  // SGPRs, VCC, EXEC
  kScalarReads,
  kConstants,   // scalar data sources: no carry-in, no lane select
  kCarryIn,     // lane masks: v_cndmask, v_addc, v_div_fmas
  kZeroFlags,   // VCCZ, EXECZ as data: their register
  kVcc,         // VCC, as read
  kLaneSelect,  // of v_readlane, v_writelane
  kStoreData,
  kMatrixAb,       // A, B, the index of v_smfmac, block scales
  kMatrixC,        // the addend: v_smfmac's is its destination
  kMatrixAddends,  // C, and the index of v_smfmac
};

// How the registers must relate for the rule to hold.
enum class HazardMatch : u8 {
  kOverlap,
  kSame,     // the same registers and instruction, and as many passes
  kNotSame,  // overlap otherwise
  kHwreg,    // s_setreg, s_getreg: the same hardware register
};
enum class HazardOpcodes : u8 { kAny, kEqual, kDifferent };

enum class HazardLevel : u8 {
  kError,
  kAdvice,  // one source asks for it; another says that it is not needed, or shipped kernels do
            // without
  kSilent,  // asked for, and compilers' own output does without: documented, not reported
};

struct HazardRule {
  const char* name;
  struct Side {
    const char* text;  // for reports and documentation
    u64 roles;         // any of these
    HazardRegisters registers = HazardRegisters::kNone;
  };
  Side producer, consumer;
  // Wait states between the two: `wait`, and the producer's passes if `per_pass`.
  i8 wait;
  bool per_pass = false;
  HazardMatch match = HazardMatch::kOverlap;
  HazardOpcodes opcodes = HazardOpcodes::kAny;
  u8 only_passes = 0;  // 0: of any number of passes
  u8 from_passes = 0;  // of at least so many
  const char* source;
  HazardLevel level = HazardLevel::kError;
  InstructionSets sets = kCdna;  // whose code has to keep it

  int required(int passes) const { return wait + (per_pass ? passes : 0); }
};

std::span<const HazardRule> hazard_rules();
std::span<const HazardRule> matrix_hazard_rules();  // a part of them

// The longest waits.
inline constexpr int kMaxHazardWait = 20, kMaxScalarWait = 5;  // the latter: after SGPR writes

// What `inst` is to the rules.
u64 hazard_roles(const Inst& inst, const RegisterUse& use);

// The ranges of `use` that `part` names; they lie in `use`.
struct HazardRanges {
  const RegisterRange* ranges[15];
  u8 count = 0;
  const RegisterRange* const* begin() const { return ranges; }
  const RegisterRange* const* end() const { return ranges + count; }
};
HazardRanges hazard_ranges(HazardRegisters part, const Inst& inst, const RegisterUse& use);

}  // namespace vdev
