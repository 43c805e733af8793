// What a simulated launch cost, and where.
#pragma once

#include <map>
#include <vector>

#include "timing/memory_path.h"

namespace vdev::timing {

// Why a wave did not issue its next instruction.
enum class Stall : u8 {
  kNone,
  kWaitcnt,      // s_waitcnt: a memory operation is under way
  kBarrier,      // other waves have not arrived
  kMatrix,       // the SIMD's matrix unit is busy
  kVector,       // the SIMD's VALU is busy
  kLds,          // LDS queue
  kVmem,         // vector memory queue
  kArbitration,  // another wave of the SIMD issued
  kFetch,        // instruction cache miss
  kBranch,       // a taken branch, s_nop, s_sleep
};
inline constexpr int kNumStalls = 10;
const char* stall_name(Stall stall);

struct Site {  // of one instruction
  u64 issued = 0;
  u64 stalled[kNumStalls] = {};  // clk, summed over waves
};

struct UnitUse {  // clk, summed over what there is of it
  u64 mfma = 0, valu = 0, salu = 0;
  u64 lds = 0, lds_address = 0, lds_conflict = 0;  // data; addresses of writes; of `lds`
};

struct WorkgroupTime {
  u64 flat_id = 0;
  u32 cu = 0;
  u64 start = 0, end = 0;  // clk: its waves may issue; the last one has ended
};

// What one instruction did, for a picture: on which unit, from when to when.
enum class Track : u8 { kWave, kMatrix, kVector, kLds, kMemory };
struct TraceEvent {
  u64 start = 0, end = 0;
  u32 simd = 0, wave = 0;  // number in the order of dispatch
  Track track = Track::kWave;
  const Inst* inst = nullptr;
};

struct Profile {
  // Events of CU 0 are kept up to this number; 0: none.
  u64 max_events = 0;
  u64 cycles = 0;  // until the last workgroup of the simulated XCD has ended, and its L2 is clean
  u64 write_back = 0;  // of it: for the L2
  u64 simulated_workgroups = 0, workgroups = 0;
  u32 cus = 0;       // simulated
  u64 wave_clk = 0;  // sum over waves of their lifetime
  u64 instructions = 0;
  UnitUse use;
  Traffic traffic;
  u32 resident_per_cu = 0;                     // workgroups
  double l1_clk = 0, l2_clk = 0, hbm_clk = 0;  // busy: all L1s, the XCD's L2, its share of HBM
  std::map<const Inst*, Site> sites;
  std::vector<WorkgroupTime> times;  // in the order in which they ended
  std::vector<TraceEvent> events;
};

}  // namespace vdev::timing
