// One launch in flight: what every worker needs to start and finish its workgroups.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "core/device.h"
#include "core/program.h"

namespace vdev {

class Observer;
struct Wave;
struct Workgroup;

inline constexpr u64 kPacketBytes = 64;
inline constexpr u64 kQueueBytes = 256;  // amd_queue_t, of which kernels read the aperture words

struct LaunchState {
  const Launch& launch;
  const DecodedCode& code;
  const Machine& machine;
  const Inst* entry = nullptr;
  DeviceOptions options;
  std::shared_ptr<Observer> observer;  // null: nobody watches
  // The order in which the lanes of an atomic act is not specified: ascending, or, under some seeds
  // of observed launches, descending.
  bool descending_lanes = false;
  bool starves = false;  // observed launches, under some seeds: see Starvation
  u64 kernarg_address = 0, dispatch_packet_address = 0, queue_address = 0;
  std::vector<u8> kernarg;  // complete, hidden arguments included (for preloading)
  u32 lds_bytes = 0, waves_per_workgroup = 0;
  u64 num_workgroups = 0;
  u64 resident_limit = 0;  // workgroups that the modelled device holds at a time

  std::atomic<u64> next{0};      // next workgroup to start
  std::atomic<u64> resident{0};  // started and not finished
  std::atomic<u64> done{0};
  std::atomic<u64> progress{0};  // changes of memory, ends of waves
  // What `progress` was when a slice ended last, and slices since then that did not change it.
  std::atomic<u64> progress_seen{0}, idle_slices{0};
  std::atomic<bool> faulted{false};

  std::mutex mutex;  // result, finished
  std::condition_variable condition;
  LaunchResult result;
  bool finished = false;

  LaunchState(const Launch& l, const DecodedCode& c, const Machine& m)
      : launch(l), code(c), machine(m) {}
  const Kernel& kernel() const { return *launch.kernel; }
  // Index of the workgroup that is started as number `position`: the order of the grid or, for
  // observed launches with a seed, shuffled among those that are resident together.
  u64 workgroup_at(u64 position) const;
  // Keeps the first fault only.
  void fault(FaultKind kind, std::string report);
};

// Writes the hidden arguments of the launch into its kernarg segment.
void fill_hidden_arguments(LaunchState& state);
// The buffer through which a launch calls the host, as printf of a kernel does; 0: it has none.
u64 hostcall_buffer(const LaunchState& state);
// Registers of a wave at its first instruction, by the kernel descriptor.
void initialise_wave(const LaunchState& state, const Workgroup& workgroup, Wave& wave);

}  // namespace vdev
