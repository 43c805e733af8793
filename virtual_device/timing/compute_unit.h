// One CU: four SIMDs that issue from their waves, an LDS, the way to vector memory. Executes
// instructions as it issues them.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "core/wave.h"
#include "timing/coexecution.h"
#include "timing/lds_service.h"
#include "timing/profile.h"
#include "timing/readings.h"

namespace vdev::timing {

inline constexpr u64 kNever = ~u64{0};

// Executes one instruction of a wave; false: it faulted.
using Execute = std::function<bool(Wave&)>;

class ComputeUnit {
 public:
  ComputeUnit(const Arch& arch, const UnitTimes& times, const Readings& readings, u32 index,
              MemoryPath& memory, Profile& profile, Execute execute);

  // A workgroup whose waves may issue from `start` on.
  void add(Workgroup& workgroup, u64 start);
  // Issues what the SIMD whose turn it is at `now` can issue; when it wants to be asked again.
  u64 tick(u32 simd, u64 now);
  // When a SIMD has something to do.
  u64 next(u32 simd) const { return simds_[simd].next; }
  // Workgroups that have ended since the last call.
  std::vector<Workgroup*> take_finished();
  bool faulted() const { return faulted_; }

 private:
  enum class Category : u8 { kValu, kScalar, kVmem, kLds, kBranch, kInternal };
  static constexpr int kNumCategories = 6;
  struct Operation {
    u64 done;
    bool ordered;  // results of its queue come in order
  };
  struct TimedWave {
    Wave* wave = nullptr;
    u64 start = 0, age = 0;
    u64 next_issue = 0;          // earliest slot for the next instruction
    u64 next_lds = 0;            // ... if it is one of the LDS
    Stall delay = Stall::kNone;  // why not earlier
    u64 ready_since = 0;
    u64 fetched = 0;  // code line it has
    std::deque<Operation> vm, lgkm;
    bool at_barrier = false;
  };
  struct Simd {
    std::vector<std::unique_ptr<TimedWave>> waves;
    u64 valu_free = 0, mfma_free = 0;
    u64 matrix_end = 0;    // of the last matrix instruction
    u64 vector_issue = 0;  // an MFMA may follow a transcendental that the VALU still works on
    u64 lds_until = 0;
    u64 next = kNever;
  };
  struct Plan {  // when an instruction could issue, and what it waits for
    u64 at;
    Stall reason;
  };

  static Category category(const Inst& inst);
  Plan plan(const TimedWave& w, u32 simd, const Inst& inst) const;
  bool memory_of(const Wave& wave, const Inst& inst);
  void issue(TimedWave& w, u32 simd, const Inst& inst, u64 now);
  void issue_memory(TimedWave& w, u32 simd, const Inst& inst, const Footprint* touched, u64 now);
  void charge(TimedWave& w, const Inst& inst, u64 now, const Plan& plan);
  void release_barrier(Workgroup& workgroup, u64 now);
  u64 wait_done(const TimedWave& w, const Inst& inst) const;
  static u64 all_done(const TimedWave& w);
  u64 valu_clk(const Inst& inst, u32 simd, u64 now) const;
  u32 port(u32 simd) const { return simd * timing_.lds_ports / num_simds_; }
  void wake(u32 simd, u64 at);
  void trace(const TimedWave& w, u32 simd, Track track, const Inst& inst, u64 start, u64 end);

  const Timing& timing_;
  const u32 num_simds_;
  const UnitTimes& times_;
  const u32 lds_read_bytes_;
  const u32 mfma_lost_slots_, short_mfma_lost_slots_;
  const Readings readings_;
  const u32 index_;
  MemoryPath& memory_;
  Profile& profile_;
  const Execute execute_;
  std::vector<Simd> simds_;
  std::vector<Server> lds_ports_;
  // When each operation under way is done, and of some that are done.
  std::vector<std::vector<u64>> lds_queues_;  // by port
  std::vector<u64> vmem_queue_;
  u64 ta_free_ = 0;
  u64 next_age_ = 0;
  std::vector<Workgroup*> finished_;
  Footprint footprint_;
  bool faulted_ = false;
};

}  // namespace vdev::timing
