// A worker thread: runs workgroups, interleaving their waves finely.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/launch_state.h"
#include "core/starvation.h"
#include "core/wave.h"

namespace vdev {

struct Worker {
  // Told of each store and atomic before it is executed.
  using Stores = std::function<void(const Wave&, const Inst&)>;

  explicit Worker(Device& device, Stores stores = {})
      : device_(device), stores_(std::move(stores)) {}
  ~Worker();

  Memory& memory() { return device_.memory(); }
  // Host view of device memory, through the allocations that this worker used last.
  std::byte* translate(u64 address, u64 bytes);

  // Starts the next workgroup of the launch if the modelled device has room. False: none started.
  bool start(const std::shared_ptr<LaunchState>& launch);
  // Gives every workgroup that it holds a slice, oldest first. False: it holds none.
  bool run_slice();
  bool holds(const LaunchState* launch) const;

  // For who decides by himself which wave runs when (the performance model): the workgroup that is
  // number `position` of a launch, one instruction of one of its waves (false: it faulted, and the
  // launch knows), and its end.
  Workgroup* admit(const std::shared_ptr<LaunchState>& launch, u64 position);
  bool step(Wave& wave);
  void leave(Workgroup& workgroup);
  // Runs what it holds until all has ended, or waits for what it does not hold; the rest is kept.
  void run_until_waiting();
  // The host's rounding and denormal modes, which steps change, are restored at the end of a scope.
  struct HostModes {
    explicit HostModes(Worker& worker);
    ~HostModes();
    const u32 saved;
  };

  // One instruction of a wave whose MODE asks for GPR indexing or VSKIP (Wave::special).
  void step_special(Wave& wave, const Inst& inst);

 private:
  struct Resident {
    explicit Resident(Worker& w) : worker(w) {}
    ~Resident();  // gives the waves back
    Worker& worker;
    std::shared_ptr<LaunchState> launch;
    Workgroup workgroup;
    u64 random = 0;
    Starvation starvation;
    u32 slices_to_proof = 1, proof_interval = 1;  // patience before the next costly proof
  };
  // Makes the workgroup that is number `position` of a launch.
  std::unique_ptr<Resident> make(const std::shared_ptr<LaunchState>& launch, u64 position);
  enum class Slice { kFinished, kExpired, kFaulted };

  Slice run(Resident& resident);
  // Runs one wave for up to `quantum` instructions.
  void run_wave(Wave& wave, u32 quantum);
  // As above; it may have to stand still before they are done.
  void run_until_starved(Starvation& starvation, Wave& wave, u32 quantum);
  void execute(Wave& wave, u32 quantum, u32& executed);
  void execute_telling(Wave& wave, u32 quantum, u32& executed);
  void execute_observed(Observer& observer, Wave& wave, u32 quantum, u32& executed);
  void step_observed(Observer& observer, Wave& wave, const Inst& inst);
  // The order of waves in a turn, and how long each may run: see run().
  struct Turn {
    u32 first = 0, quantum = 8;
    bool reverse = false;
  };
  Turn next_turn(Resident& resident) const;
  void report_fault(Resident& resident, const Fault& fault);
  void retire(Resident& resident, bool finished);
  bool proved_spinning(Resident& resident);
  void check_watchdog(Resident& resident, bool looping);
  void end_a_starvation(LaunchState& launch);
  Wave* take_wave();
  void become(u32 gpu);  // whose launch it goes on with

  Device& device_;
  const Stores stores_;
  std::deque<std::unique_ptr<Resident>> residents_;
  std::vector<Wave*> free_waves_;
  size_t num_waves_ = 0;     // made so far
  Wave* current_ = nullptr;  // for fault reports
  const Inst* current_inst_ = nullptr;
  u32 mxcsr_ = 0x1f80;
  std::unordered_map<const Wave*, u64> split_;  // lanes of an atomic that have not acted yet

  static constexpr int kCacheSize = 8;
  Allocation cache_[kCacheSize];
  u64 cache_epoch_ = 0;
  u32 cache_next_ = 0;
  u32 gpu_ = 0;
};

}  // namespace vdev
