// The device: memory, and the execution of launches on a pool of worker threads.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "arch/arch.h"
#include "core/code_object.h"
#include "core/memory.h"
#include "core/observer.h"
#include "core/types.h"

namespace vdev {

struct Dim3 {
  u32 x = 1, y = 1, z = 1;
  u64 count() const { return u64{x} * y * z; }
};

// How many workgroups a grid has; its last one along an axis may be a partial one.
Dim3 workgroups_of(const Dim3& grid_lanes, const Dim3& workgroup_size);

// Where a dispatch that comes from a queue has its packet, arguments and queue: in memory that the
// device sees.
struct QueuedDispatch {
  u64 packet_address = 0, kernarg_address = 0, queue_address = 0;
};

// One kernel dispatch, complete: hidden arguments are filled in by Device::execute, unless whoever
// wrote a packet has done so.
struct Launch {
  std::shared_ptr<CodeObject> code;
  const Kernel* kernel = nullptr;
  Dim3 num_workgroups;
  Dim3 workgroup_size;
  Dim3 remainder{0, 0, 0};  // lanes of the last workgroup along an axis if it is partial, else 0
  u32 gpu = 0;              // which GPU runs it: what it reaches is Allocation::gpus
  u32 dynamic_lds_bytes = 0;
  std::vector<u8> kernarg;  // explicit arguments at their metadata offsets; kernarg_bytes long
  std::optional<QueuedDispatch> queued;

  Dim3 size_of(const Dim3& workgroup_id) const;
  Dim3 grid_lanes() const;
};

enum class FaultKind : u8 {
  kNone,
  kIllegalAddress,
  kIllegalInstruction,
  kMisaligned,
  kDeadlock,
  kRunaway,
  kTrap,
  kResources,
  kAborted,
  // Bounds of the private segment, of LDS, of the code.
  kScratchBounds,
  kLdsBounds,
  kOutsideCode,
};

// `report` names kernel, pc, instruction, workgroup, wave, lane and address.
struct LaunchResult {
  FaultKind fault = FaultKind::kNone;
  std::string report;
};

struct DeviceOptions {
  u32 threads = 0;                      // workers; 0 = one per core
  u32 quantum = 8;                      // instructions of a wave before the next one runs, <= 16
  u64 seed = 0;                         // order of waves and workgroups, register poison
  u64 max_instructions = u64{1} << 30;  // per workgroup without progress, then kRunaway
  u64 max_total_instructions = 0;       // per workgroup, then kRunaway; 0: no limit
  u64 resident_workgroups = 0;          // at a time; 0: as many as the modelled device holds
};

struct Counters {
  std::atomic<u64> instructions{0}, mfma{0}, workgroups{0}, launches{0};
};

class Device {
 public:
  // `num_gpus` alike, each with as much memory, which are one for workers and counters.
  explicit Device(const Machine& machine, u32 num_gpus = 1);
  ~Device();

  Memory& memory() { return memory_; }
  const Machine& machine() const { return machine_; }
  const Arch& arch() const { return *machine_.arch; }
  const Limits& limits() const { return machine_.arch->limits; }
  u32 num_gpus() const { return num_gpus_; }
  DeviceOptions& options() { return options_; }  // read at the start of every launch
  Counters& counters() { return counters_; }
  // Who watches the launches that start from now on; null: nobody.
  void set_observer(ObserverFactory factory, void* context) {
    observer_factory_ = factory;
    observer_context_ = context;
  }

  // Who executes launches instead of the workers, from now on; null: the workers do.
  using Executor = void (*)(const std::shared_ptr<LaunchState>& launch, Device& device,
                            void* context);
  void set_executor(Executor executor, void* context) {
    executor_ = executor;
    executor_context_ = context;
  }

  // Ends every launch that is running, or those of one queue: they fault with kAborted and this
  // text.
  void abort(const std::string& why, u64 queue_address = 0);

  // Runs a launch to its end. Blocking; callable from several threads at once: workgroups of
  // concurrent launches share the workers. Never throws, never takes the process down.
  LaunchResult execute(const Launch& launch);
  // Why no launch of this kernel can run, whatever its shape; "" if some can.
  std::string unsupported(const Kernel& kernel) const;
  // Workgroups of this kernel that fit on one CU at a time (0: it can never run).
  u32 resident_workgroups_per_cu(const Kernel& kernel, u32 workgroup_lanes, u32 dynamic_lds) const;
  // ... on the device, where the scratch of all of them has to exist.
  u64 resident_workgroups(const Kernel& kernel, u32 workgroup_lanes, u32 dynamic_lds) const;

 private:
  LaunchResult run(const Launch& launch);

  const Machine machine_;
  const u32 num_gpus_;
  DeviceOptions options_;
  Counters counters_;
  Memory memory_;
  ObserverFactory observer_factory_ = nullptr;
  void* observer_context_ = nullptr;
  Executor executor_ = nullptr;
  void* executor_context_ = nullptr;
  class Running;
  std::mutex running_mutex_;
  std::vector<LaunchState*> running_;  // under running_mutex_
  class Workers;
  std::unique_ptr<Workers> workers_;
};

}  // namespace vdev
