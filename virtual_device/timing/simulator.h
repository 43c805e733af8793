// The performance model of one launch: simulates the CUs of one XCD, clk by clk, with the
// workgroups that the dispatcher would give it. All XCDs are alike, so that one stands for the
// device; MALL and HBM give it its share. The others' workgroups only run where one of this XCD
// asks memory who came before it: what the last part to arrive does takes time on the XCD that does
// it.
#pragma once

#include <optional>

#include "core/worker.h"
#include "timing/compute_unit.h"
#include "timing/readings.h"

namespace vdev::timing {

struct Options {
  double clock_ghz = 0;    // 0: the architecture's sustained clock
  u64 max_workgroups = 0;  // simulated; 0: all of the XCD
  u32 xcd = 0;             // the simulated one
  u64 max_events = 0;      // of the trace of CU 0
  bool warm_code = true;   // kernels have run before: their code is in the code caches
  bool complete = false;   // what is not simulated is executed besides
  Readings readings;
};

class Simulator {
 public:
  // `caches`: as the launches before left them.
  Simulator(const std::shared_ptr<LaunchState>& launch, Device& device, const Options& options,
            Caches& caches);
  // False: a workgroup faulted; the launch knows.
  bool run(Profile& profile);
  // Executes the workgroups that were not simulated, so that all results are there.
  void run_rest();

 private:
  bool dispatch(u64 now);
  // One instruction of a wave; false: it faulted.
  bool step(Wave& wave);
  // Workgroups of the other XCDs, as far as they do not wait for this one's: so many from the first
  // on, and those that arrive at a counter before one of this XCD.
  void run_others(u64 first, u64 count);
  void arrive(u64 nth);
  // A workgroup of this XCD that has arrived, or ended: none that may still arrive.
  void settle(u64 round);

  const Machine& machine_;
  const Timing& timing_;
  const std::shared_ptr<LaunchState> launch_;
  const Options options_;
  Caches& caches_;
  const UnitTimes times_;
  Worker worker_, others_;
  std::vector<bool> others_ran_;  // by number
  std::vector<bool> is_pending_;  // of this XCD: it may still arrive, by its round
  u64 pending_ = 0;
  u64 arrived_ = 0;                   // of this XCD, the last one, by its round
  std::optional<MemoryPath> memory_;  // of the launch
  u32 per_cu_ = 1;
  u64 next_ = 0, limit_ = 0;  // workgroups of the XCD, by number
  u64 dispatcher_free_ = 0;
  std::vector<u32> resident_;  // by CU
  std::deque<ComputeUnit> cus_;
};

}  // namespace vdev::timing
