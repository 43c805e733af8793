// The state behind the HSA runtime's ABI: a CPU agent, GPU agents, and all that lives.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "host/process.h"
#include "hsa/hsa_abi.h"
#include "hsa/signals.h"

namespace vdev::hsa {

// Agents, and pools of memory, by their handles.
inline constexpr u64 kCpuAgent = 0x1001, kFirstGpuAgent = 0x1002, kGpuIsa = 0x2001;
inline constexpr u64 kCpuFine = 0x3001, kCpuKernarg = 0x3002, kCpuCoarse = 0x3003,
                     kFirstGpuCoarse = 0x4001, kFirstGpuFine = 0x5001, kFirstGpuGroup = 0x6001;
inline Agent gpu_agent(u32 gpu) { return {kFirstGpuAgent + gpu}; }

class Queue;

// A kernel that packets name by the address of its descriptor.
struct Dispatchable {
  std::shared_ptr<CodeObject> code;
  const Kernel* kernel = nullptr;
  // The kernel with more scratch than its descriptor says, by bytes, as packets asked for it.
  std::map<u32, std::shared_ptr<const Kernel>> with_scratch;
};

using SystemEventHandler = Status (*)(const MemoryFaultEvent* event, void* data);

class System {
 public:
  // Null before hsa_init.
  static System* get();
  static System& start();  // counts
  static bool stop();      // false: it was not started

  Process& process = Process::get();
  Device& device = process.device;
  Memory& memory = device.memory();
  Signals signals{memory};

  // ---- queues (queue.cc) ----------------------------------------------------------------------
  std::mutex queues_mutex;
  std::map<u64, std::shared_ptr<Queue>> queues;  // by the address of the QueueBlock

  // ---- code (executable.cc) -------------------------------------------------------------------
  std::mutex code_mutex;                     // guards `dispatchable`
  std::map<u64, Dispatchable> dispatchable;  // by the address of the descriptor

  // ---- memory (memory.cc) ---------------------------------------------------------------------
  std::mutex locks_mutex;
  std::multimap<u64, u64> locks;  // host memory that the device sees: address, bytes

  // The number of a GPU agent; nothing if the agent is none.
  std::optional<u32> gpu_of(Agent agent) const;
  // The same of a pool of device memory.
  std::optional<u32> gpu_of(Pool pool) const;
  // Device memory belongs to a GPU; what the loader allocates, to the first.
  static u32 owner_of(const Allocation& allocation) { return allocation.flags; }
  u64 capacity_of_gpu() const { return memory.capacity() / device.num_gpus(); }
  u64 used_by(u32 gpu) const;

  std::atomic<bool> ends{false};   // the process: handlers of faults are not called
  std::atomic<u64> num_copies{0};  // that were asked for and are not done (copy.cc)

  std::atomic<SystemEventHandler> event_handler{nullptr};
  std::atomic<void*> event_data{nullptr};

  // Of events' times: modelled where the model runs, else the host's. ns.
  u64 now_ns() const;
  // Waits until all work that was given to queues and copies is done.
  void drain();
  // The same for so long at most: whether it is done.
  bool drain_for(std::chrono::nanoseconds patience);

 private:
  System();
};

}  // namespace vdev::hsa
