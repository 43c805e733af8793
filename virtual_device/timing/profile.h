// What a simulated launch cost, and where.
#pragma once

#include <map>

#include "timing/memory_path.h"

namespace vdev::timing {

// Why a wave did not issue its next instruction.
enum class Stall : u8 {
  kNone,
  kWaitcnt,    // s_waitcnt: a memory operation is under way
  kBarrier,    // other waves have not arrived
  kMatrix,     // the SIMD's matrix unit is busy
  kVector,     // the SIMD's VALU is busy
  kLds,        // LDS queue
  kVmem,       // vector memory queue
  kArbitration,  // another wave of the SIMD issued
  kFetch,      // instruction cache miss
  kBranch,     // a taken branch, s_nop, s_sleep
};
inline constexpr int kNumStalls = 10;
const char* stall_name(Stall stall);

struct Site {  // of one instruction
  u64 issued = 0;
  u64 stalled[kNumStalls] = {};  // clk, summed over waves
};

struct UnitUse {  // clk, summed over what there is of it
  u64 mfma = 0, valu = 0, lds = 0, lds_conflict = 0, salu = 0;
};

struct Profile {
  u64 cycles = 0;           // until the last workgroup of the simulated XCD has ended
  u64 simulated_workgroups = 0, workgroups = 0;
  u32 cus = 0;              // simulated
  u64 wave_clk = 0;         // sum over waves of their lifetime
  u64 instructions = 0;
  UnitUse use;
  Traffic traffic;
  std::map<const Inst*, Site> sites;
};

}  // namespace vdev::timing
