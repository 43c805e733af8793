// What a row says of its instruction beyond operands and effects. Decoder, printer, checked mode
// and the performance model ask these; none of them knows an instruction by its name or its opcode.
#pragma once

#include "core/types.h"

namespace vdev {

enum class Trait : u8 {

  // ---- Operands and their encoding
  kShortOnly,      // VOP1 without a VOP3 form
  kVectorSource,   // source 0 is a vector register
  kScalarSource,   // source 0 is an SGPR
  kAgprSource,     // source 0 is an AGPR
  kAgprResult,     // so is the destination
  kReadsLane,      // a lane of source 0 goes to an SGPR
  kSelectsLane,    // source 1 is a lane's number
  kSwaps,          // source 0 and destination
  kSwapsRows,      // ... rows of their lanes; op_sel says fi and bound_ctrl
  kTruthTable,     // omod, abs and neg are a table of bits
  kDstIsSource,    // the destination's field is only read
  kLiteralSource,  // a dword behind SIMM16
  kIndexMask,      // the immediate says which operands M0 moves
  kMoves,          // bits of a source as they are: no omod
  kSaturates,      // an integer result by the clamp bit
  kMix,            // sources are f32 or f16 as op_sel_hi says
  kWholeSources,   // VOP3P that looks at no op_sel_hi
  kSelectsByte,    // SDWA: of an 8-bit float to convert
  kPlacesByte,     // two bits of op_sel: of the result
  kHighHalf,       // the datum or result has the upper half
  kSwizzle,        // the offset is a pattern of lanes
  kTwoOffsets,     // DS: two of 8 bits
  kStride64,       // ... which count 64 data
  kNoOffset,       // DS: the offset is reserved
  kOddResult,      // a wide result may start at an odd register

  // ---- Memory
  kGws,            // global wave sync
  kAddsLane,       // the address is M0 and the lane's number
  kOneForWave,     // one access for all lanes
  kAligns8,        // drops the address's three low bits
  kScatters,       // lanes send to lanes
  kHasLdsForm,     // the lds bit makes it a load to LDS
  kConverts,       // data by a format
  kSignExtends,    // a narrow datum
  kHalfDatum,      // d16
  kReplaces,       // an atomic that ignores what memory held
  kComparesFirst,  // compare-and-swap
  kInvalidatesScalar,

  // ---- Program control and scalar state
  kWaitcnt,
  kNop,    // s_nop
  kSleep,  // s_sleep
  kEndpgm,
  kMessage,  // s_sendmsg, s_ttracedata
  kConditional,
  kLeavesFunction,
  kFromTrap,  // s_rfe
  kTraps,
  kGetreg,
  kSetreg,
  kSetVskip,
  kMovesSource,  // s_movrels: by M0
  kMovesResult,  // s_movreld
  kNewExec,      // the destination gets EXEC as it becomes

  // ---- Rules of their own among the hazards
  kDivFmas,
  kFma64,
  kCndmask,
  kCount,
};
static_assert(static_cast<int>(Trait::kCount) <= 64, "a trait is a bit of a u64");

class Traits {
 public:
  constexpr Traits() = default;
  constexpr Traits(Trait trait) : bits_(u64{1} << static_cast<u8>(trait)) {}  // NOLINT: as a set
  constexpr Traits operator|(Traits other) const { return Traits(bits_ | other.bits_); }
  constexpr bool any(Traits other) const { return (bits_ & other.bits_) != 0; }

 private:
  explicit constexpr Traits(u64 bits) : bits_(bits) {}
  u64 bits_ = 0;
};
constexpr Traits operator|(Trait a, Trait b) { return Traits(a) | Traits(b); }

}  // namespace vdev
