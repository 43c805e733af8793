// Entry points for signals. A doorbell is a signal that rings its queue.
#include "hsa/api.h"
#include "hsa/queue.h"

namespace vdev::hsa {
namespace {

// Signals are looked up in no table here, as in AMD's runtime: a handle is an address.
SignalBlock* block_at(Signal signal) { return reinterpret_cast<SignalBlock*>(signal.handle); }

void store_signal(Signal signal, SignalValue value) {
  System* const system = System::get();
  SignalBlock* const block = block_at(signal);
  if (system == nullptr || block == nullptr) return;
  // Read before: who waits for the value may destroy the signal.
  const bool is_doorbell = block->kind == kDoorbell;
  const u64 queue_address = block->queue_ptr;
  system->signals.store(*block, value);
  if (!is_doorbell) return;
  std::shared_ptr<Queue> queue;
  {
    std::lock_guard lock(system->queues_mutex);
    const auto it = system->queues.find(queue_address);
    if (it != system->queues.end()) queue = it->second;
  }
  if (queue) queue->ring();
}

}  // namespace

HSA_API hsa_signal_create(SignalValue initial, u32, const Agent*, Signal* signal) {
  return api([&](System& system) {
    require(signal != nullptr);
    SignalBlock* const block = system.signals.create(initial);
    require(block != nullptr, kOutOfResources);
    *signal = {reinterpret_cast<u64>(block)};
    return kSuccess;
  });
}

HSA_API hsa_amd_signal_create(SignalValue initial, u32, const Agent*, u64, Signal* signal) {
  return hsa_signal_create(initial, 0, nullptr, signal);
}

HSA_API hsa_signal_destroy(Signal signal) {
  return api([&](System& system) {
    require(system.signals.destroy(signal), kInvalidSignal);
    return kSuccess;
  });
}

HSA_EXPORT SignalValue hsa_signal_load_relaxed(Signal signal) {
  const SignalBlock* const block = block_at(signal);
  return block != nullptr ? Signals::load(*block) : 0;
}

HSA_EXPORT void hsa_signal_store_relaxed(Signal signal, SignalValue value) {
  store_signal(signal, value);
}

HSA_EXPORT void hsa_signal_store_screlease(Signal signal, SignalValue value) {
  store_signal(signal, value);
}

// Nobody waits for the new value.
HSA_EXPORT void hsa_signal_silent_store_relaxed(Signal signal, SignalValue value) {
  if (SignalBlock* const block = block_at(signal)) std::atomic_ref(block->value).store(value);
}

HSA_EXPORT void hsa_signal_add_relaxed(Signal signal, SignalValue value) {
  System* const system = System::get();
  if (system != nullptr && signal.handle != 0) system->signals.add(*block_at(signal), value);
}

HSA_EXPORT void hsa_signal_subtract_relaxed(Signal signal, SignalValue value) {
  hsa_signal_add_relaxed(signal, -value);
}

// `timeout` is in ticks of the system's clock, which are ns.
HSA_EXPORT SignalValue hsa_signal_wait_scacquire(Signal signal, Condition condition,
                                                 SignalValue compared, u64 timeout, u32) {
  System* const system = System::get();
  SignalBlock* const block = block_at(signal);
  if (system == nullptr || block == nullptr) return 0;
  constexpr u64 kForever = u64{1} << 60;
  std::optional<Signals::Clock::time_point> deadline;
  if (timeout < kForever) deadline = Signals::Clock::now() + std::chrono::nanoseconds(timeout);
  return system->signals.wait(*block, condition, compared, deadline);
}

HSA_API hsa_amd_signal_async_handler(Signal signal, Condition condition, SignalValue compared,
                                     Signals::Handler handler, void* argument) {
  return api([&](System& system) {
    require(handler != nullptr);
    require(system.signals.find(signal) != nullptr, kInvalidSignal);
    system.signals.on(signal, condition, compared, handler, argument);
    return kSuccess;
  });
}

HSA_API hsa_amd_signal_value_pointer(Signal signal, volatile SignalValue** pointer) {
  return api([&](System& system) {
    require(pointer != nullptr);
    SignalBlock* const block = system.signals.find(signal);
    require(block != nullptr, kInvalidSignal);
    *pointer = &block->value;
    return kSuccess;
  });
}

HSA_API hsa_amd_profiling_get_dispatch_time(Agent, Signal signal, CopyTime* time) {
  return api([&](System& system) {
    const SignalBlock* const block = system.signals.find(signal);
    require(block != nullptr, kInvalidSignal);
    return answer(time, CopyTime{block->start_ts, block->end_ts});
  });
}

HSA_API hsa_amd_profiling_get_async_copy_time(Signal signal, CopyTime* time) {
  return hsa_amd_profiling_get_dispatch_time({}, signal, time);
}

}  // namespace vdev::hsa
