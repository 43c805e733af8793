#include "hsa/system.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "hsa/api.h"
#include "hsa/environment.h"
#include "hsa/queue.h"
#include "hsa/vmem.h"

namespace vdev::hsa {
namespace {

std::mutex start_mutex;
std::atomic<System*> started{nullptr};
std::atomic<bool> forked{false};  // threads do not survive one
u32 num_starts = 0;

constexpr u64 kTimestampHz = 1'000'000'000;

struct StatusText {
  Status status;
  const char* text;
};
constexpr StatusText kStatusTexts[] = {
    {kSuccess, "HSA_STATUS_SUCCESS: the call was executed"},
    {kInfoBreak, "HSA_STATUS_INFO_BREAK: the traversal was ended by the application"},
    {kError, "HSA_STATUS_ERROR: an error of no particular kind"},
    {kInvalidArgument, "HSA_STATUS_ERROR_INVALID_ARGUMENT: an argument has no valid value"},
    {kInvalidQueueCreation, "HSA_STATUS_ERROR_INVALID_QUEUE_CREATION: no such queue can be made"},
    {kInvalidAllocation, "HSA_STATUS_ERROR_INVALID_ALLOCATION: no such memory can be allocated"},
    {kInvalidAgent, "HSA_STATUS_ERROR_INVALID_AGENT: there is no such agent"},
    {kInvalidSignal, "HSA_STATUS_ERROR_INVALID_SIGNAL: there is no such signal"},
    {kInvalidQueue, "HSA_STATUS_ERROR_INVALID_QUEUE: there is no such queue"},
    {kOutOfResources, "HSA_STATUS_ERROR_OUT_OF_RESOURCES: memory is exhausted"},
    {kInvalidPacketFormat, "HSA_STATUS_ERROR_INVALID_PACKET_FORMAT: a packet is malformed"},
    {kResourceFree, "HSA_STATUS_ERROR_RESOURCE_FREE: it is in use"},
    {kNotInitialized, "HSA_STATUS_ERROR_NOT_INITIALIZED: hsa_init was not called"},
    {kInvalidIsa, "HSA_STATUS_ERROR_INVALID_ISA: there is no such instruction set"},
    {kInvalidCodeObject, "HSA_STATUS_ERROR_INVALID_CODE_OBJECT: the code object is refused"},
    {kInvalidExecutable, "HSA_STATUS_ERROR_INVALID_EXECUTABLE: there is no such executable"},
    {kFrozenExecutable, "HSA_STATUS_ERROR_FROZEN_EXECUTABLE: the executable is frozen"},
    {kInvalidSymbolName, "HSA_STATUS_ERROR_INVALID_SYMBOL_NAME: there is no such symbol"},
    {kVariableAlreadyDefined, "HSA_STATUS_ERROR_VARIABLE_ALREADY_DEFINED"},
    {kException, "HSA_STATUS_ERROR_EXCEPTION: a kernel ended with an exception"},
    {kInvalidExecutableSymbol, "HSA_STATUS_ERROR_INVALID_EXECUTABLE_SYMBOL"},
    {kInvalidCodeObjectReader, "HSA_STATUS_ERROR_INVALID_CODE_OBJECT_READER"},
    {kInvalidMemoryPool, "HSA_STATUS_ERROR_INVALID_MEMORY_POOL: there is no such pool"},
    {kMemoryApertureViolation, "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: a kernel left memory"},
    {kIllegalInstruction, "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION: a kernel has a wrong instruction"},
    {kMemoryFault, "HSA_STATUS_ERROR_MEMORY_FAULT: a kernel touched memory that is not its own"},
    {kNotSupported, "HSA_STATUS_ERROR_NOT_SUPPORTED"},
};

}  // namespace

Status refuse_call(const char* name) {
  static std::mutex mutex;
  static std::set<std::string> told;
  std::lock_guard lock(mutex);
  if (told.insert(name).second) {
    std::fprintf(stderr, "amdattn: %s is not supported by the virtual device\n", name);
  }
  return kNotSupported;
}

System::System() {
  process.add_drain([this] { drain(); });
}

System* System::get() { return started.load(std::memory_order_acquire); }

// The state outlives hsa_shut_down: threads may still be inside a call.
System& System::start() {
  static System* system = nullptr;
  std::lock_guard lock(start_mutex);
  if (forked.load()) throw std::runtime_error("a fork of a process that used the device");
  if (system == nullptr) {
    choose_device();
    choose_gpus();
    watch_by_environment(Process::get());
    keep_library_loaded();
    system = new System;
    pthread_atfork(nullptr, nullptr, [] {
      forked.store(true);
      started.store(nullptr);
    });
  }
  ++num_starts;
  started.store(system, std::memory_order_release);
  return *system;
}

bool System::stop() {
  std::lock_guard lock(start_mutex);
  if (num_starts == 0) return false;
  if (--num_starts == 0) started.store(nullptr);
  return true;
}

std::optional<u32> System::gpu_of(Agent agent) const {
  const u64 gpu = agent.handle - kFirstGpuAgent;
  return gpu < device.num_gpus() ? std::optional(static_cast<u32>(gpu)) : std::nullopt;
}

std::optional<u32> System::gpu_of(Pool pool) const {
  for (const u64 first : {kFirstGpuCoarse, kFirstGpuFine})
    if (pool.handle - first < device.num_gpus()) return static_cast<u32>(pool.handle - first);
  return std::nullopt;
}

u64 System::used_by(u32 gpu) const {
  if (device.num_gpus() == 1) return memory.used();
  u64 used = vmem_bytes_of(*this, gpu);
  for (const Allocation& one : memory.live()) {
    if (one.kind != MemoryKind::kDevice || one.mapped || owner_of(one) != gpu) continue;
    used += one.size;
  }
  return used;
}

u64 System::now_ns() const {
  if (process.timing) return static_cast<u64>(process.timings->now_ns());
  return static_cast<u64>(Signals::Clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

void System::drain() {
  while (!drain_for(std::chrono::hours(1))) {
  }
}

bool System::drain_for(std::chrono::nanoseconds patience) {
  const auto deadline = Signals::Clock::now() + patience;
  std::vector<std::shared_ptr<Queue>> all;
  {
    std::lock_guard lock(queues_mutex);
    for (const auto& [address, queue] : queues) all.push_back(queue);
  }
  for (const auto& queue : all)
    if (!queue->drain(deadline)) return false;
  return signals.wait([this] { return num_copies.load() == 0; }, deadline);
}

HSA_API hsa_init() {
  try {
    System::start();
    return kSuccess;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "amdattn: %s\n", error.what());
    return kOutOfResources;
  }
}

HSA_API hsa_shut_down() { return System::stop() ? kSuccess : kNotInitialized; }

HSA_API hsa_status_string(Status status, const char** text) {
  if (text == nullptr) return kInvalidArgument;
  for (const StatusText& one : kStatusTexts)
    if (one.status == status) {
      *text = one.text;
      return kSuccess;
    }
  return kInvalidArgument;
}

HSA_API hsa_system_get_info(u32 attribute, void* value) {
  using namespace system_info;
  return api([&](System& system) {
    switch (attribute) {
      case kVersionMajor:
        return answer(value, u16{1});
      case kVersionMinor:
        return answer(value, u16{18});
      case kTimestamp:
        return answer(value, system.now_ns());
      case kTimestampFrequency:
        return answer(value, kTimestampHz);
      case kSignalMaxWait:
        return answer(value, ~u64{0});
      case kEndianness:
        return answer(value, u32{0});
      case kMachineModel:
        return answer(value, u32{1});
      case kExtensions:
        require(value != nullptr);
        std::memset(value, 0, 128);
        return kSuccess;
      case kBuildVersion:
        return answer<const char*>(value, "amdattn virtual device");
      // No pageable memory.
      case kSvmSupported:
      case kSvmAccessibleByDefault:
      case kMwaitxEnabled:
      case kDmabufSupported:
      case kXnackEnabled:
        return answer(value, false);
      case kVirtualMemoryApi:
        return answer(value, true);
      case kExtVersionMajor:
        return answer(value, u16{1});
      case kExtVersionMinor:
        return answer(value, u16{14});
    }
    return kInvalidArgument;
  });
}

HSA_API hsa_system_extension_supported(u16, u16, u16, bool* supported) {
  return api([&](System&) { return answer(supported, false); });
}

HSA_API hsa_system_get_major_extension_table(u16, u16, size_t, void*) {
  return kNotSupported;  // no extension has a table here
}

HSA_API hsa_amd_register_system_event_handler(SystemEventHandler handler, void* data) {
  return api([&](System& system) {
    system.event_data = data;
    system.event_handler = handler;
    return kSuccess;
  });
}

HSA_API hsa_amd_enable_logging(u8*, void*) { return kSuccess; }

}  // namespace vdev::hsa
