// What checked mode reports.
#pragma once

#include <string>
#include <vector>

#include "core/device.h"
#include "core/types.h"

namespace vdev {

// The name of each (finding_kind_name) is what reports and suppressions use.
enum class FindingKind : u8 {
  // Waits
  kUseBeforeWait,        // a register or LDS byte is used while the load that fills it is pending
  kOverwriteBeforeWait,  // ... is overwritten while it is pending
  kCounterSaturated,     // ... used behind no wait, since more are out than the counter counts
  kOverWait,             // advice: the wait could be weaker
  // Hazards
  kHazard,
  kHazardAdvice,     // advice: LLVM keeps a distance that the manual does not ask for
  kClauseOverwrite,  // a load overwrites what an access of its clause reads: no replay (XNACK)
  // Races
  kLdsRace,
  kGlobalRace,     // two workgroups, or two waves of one, without order
  kStaleRead,      // another workgroup's store is read without release and acquire at agent scope
  kSameValueRace,  // counted: the writes that race, in LDS or device memory, leave the same value
  // Memory
  kIllegalAddress,
  kUseAfterFree,
  kMisaligned,
  kAmbiguousRange,  // a buffer's range check depends on how it counts the scalar offset
  kRangeSwallowed,  // counted: a buffer's range check dropped lanes
  kUninitialisedStore,
  kUninitialisedAddress,
  kUninitialisedBranch,
  kUnwrittenOutput,  // bytes that nothing wrote are copied to the host
  kReadOnlyWrite,
  kKernargOverread,
  // Control
  kBarrierMismatch,
  kNoActiveLane,
  kRunaway,
  kDeadlock,
  kDirtyMemory,  // memory declared to be left zero is not
  kScratchBounds,
  kLdsBounds,
  kOutsideKernel,
  kIllegalInstruction,
  kTrap,
  kUnchecked,  // advice: something that checked mode does not follow
};
const char* finding_kind_name(FindingKind kind);

enum class Severity : u8 {
  kError,
  kCounted,  // legitimate, and worth a number
  kAdvice,
};
Severity severity_of(FindingKind kind);

inline constexpr u64 kNoPc = ~u64{0};
inline constexpr size_t kOtherProducers = 15;

struct Finding {
  FindingKind kind{};
  u64 pc = kNoPc;                    // device address of the instruction; kNoPc: a host call
  u64 producer_pc = kNoPc;           // of the load, write, barrier ... that it conflicts with
  std::vector<u64> other_producers;  // seen later, at most kOtherProducers
  Dim3 workgroup;
  u32 wave = 0;
  int lane = -1;        // -1: not of one lane
  std::string where;    // "v12", "s[4:5]", "lds 0x40", "0x7f0000001000"
  std::string message;  // one line
  u64 count = 1;        // times it was seen; the other fields are of the first

  void see_again(const Finding& again);
};

}  // namespace vdev
