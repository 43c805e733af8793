// Asynchronous copies: each waits for signals, then counts its own one down.
#include <deque>
#include <thread>

#include "core/transfer.h"
#include "hsa/api.h"

namespace vdev::hsa {
namespace {

constexpr u32 kEngines = 1;  // of each direction

struct PendingCopy {
  Copy copy;
  std::vector<Signal> after;
  Signal completion;
};

// One thread takes those whose signals are zero, the oldest first.
class CopyEngine {
 public:
  explicit CopyEngine(System& system) : system_(system) {}

  void submit(PendingCopy copy) {
    {
      std::lock_guard lock(mutex_);
      if (!has_thread_) {
        std::thread([this] { main(); }).detach();
        has_thread_ = true;
      }
      pending_.push_back(std::move(copy));
      system_.num_copies.fetch_add(1);
    }
    has_copies_.notify_one();
    system_.signals.notify();
  }

 private:
  std::optional<PendingCopy> take() {
    std::lock_guard lock(mutex_);
    for (auto it = pending_.begin(); it != pending_.end(); ++it) {
      bool ready = true;
      for (const Signal signal : it->after) {
        const SignalBlock* block = system_.signals.find(signal);
        ready &= block == nullptr || Signals::load(*block) == 0;
      }
      if (!ready) continue;
      PendingCopy found = std::move(*it);
      pending_.erase(it);
      return found;
    }
    return std::nullopt;
  }

  LaunchResult run(const Copy& copy) {
    try {
      return run_copy(system_.memory, copy);
    } catch (const std::exception& error) {  // of who observes memory, mostly
      return {FaultKind::kResources, std::string("a copy failed: ") + error.what()};
    }
  }

  void main() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        has_copies_.wait(lock, [&] { return !pending_.empty(); });
      }
      std::optional<PendingCopy> found;
      system_.signals.wait([&] { return (found = take()).has_value(); });
      const u64 start = system_.now_ns();
      const LaunchResult result = run(found->copy);
      SignalBlock* const done = system_.signals.find(found->completion);
      if (result.fault != FaultKind::kNone) {
        std::fprintf(stderr, "amdattn: %s\n", result.report.c_str());
        if (done != nullptr) system_.signals.store(*done, -1);  // as the specification has it
      } else if (done != nullptr) {
        done->start_ts = start;
        done->end_ts = std::max(start + 1, system_.now_ns());
        system_.signals.add(*done, -1);
      }
      system_.num_copies.fetch_sub(1);
      system_.signals.notify();
    }
  }

  System& system_;
  std::mutex mutex_;
  std::deque<PendingCopy> pending_;
  std::condition_variable has_copies_;
  bool has_thread_ = false;
};

CopyEngine& copy_engine(System& system) {
  static CopyEngine& engine = *new CopyEngine(system);
  return engine;
}

Side side_of(const System& system, const void* pointer, u64 pitch = 0, u64 slice = 0) {
  const u64 address = reinterpret_cast<u64>(pointer);
  return {address, pitch, slice, system.memory.find(address).has_value()};
}

Status submit_copy(System& system, const Copy& copy, u32 count, const Signal* after,
                   Signal completion) {
  require(count == 0 || after != nullptr);
  require(system.signals.find(completion) != nullptr, kInvalidSignal);
  PendingCopy pending{copy, {}, completion};
  if (count != 0) pending.after.assign(after, after + count);
  copy_engine(system).submit(std::move(pending));
  return kSuccess;
}

}  // namespace

HSA_API hsa_amd_memory_async_copy(void* to, Agent, const void* from, Agent, size_t bytes, u32 count,
                                  const Signal* after, Signal completion) {
  return api([&](System& system) {
    require(to != nullptr && from != nullptr);
    const Copy copy{side_of(system, to), side_of(system, from), bytes};
    return submit_copy(system, copy, count, after, completion);
  });
}

HSA_API hsa_amd_memory_async_copy_on_engine(void* to, Agent to_agent, const void* from,
                                            Agent from_agent, size_t bytes, u32 count,
                                            const Signal* after, Signal completion, u32, bool) {
  return hsa_amd_memory_async_copy(to, to_agent, from, from_agent, bytes, count, after, completion);
}

HSA_API hsa_amd_memory_async_copy_rect(const PitchedPointer* to, const Dim3Of* to_offset,
                                       const PitchedPointer* from, const Dim3Of* from_offset,
                                       const Dim3Of* range, Agent, u32, u32 count,
                                       const Signal* after, Signal completion) {
  return api([&](System& system) {
    require(to && to_offset && from && from_offset && range);
    const auto side = [&](const PitchedPointer& one, const Dim3Of& offset) {
      const auto* first = static_cast<const std::byte*>(one.base) + offset.x +
                          offset.y * one.pitch + offset.z * one.slice;
      return side_of(system, first, one.pitch, one.slice);
    };
    const Copy copy{side(*to, *to_offset), side(*from, *from_offset), range->x, range->y, range->z};
    return submit_copy(system, copy, count, after, completion);
  });
}

HSA_API hsa_amd_memory_copy_engine_status(Agent, Agent, u32* free_engines) {
  return api([&](System&) { return answer(free_engines, (1u << kEngines) - 1); });
}

HSA_API hsa_amd_memory_get_preferred_copy_engine(Agent, Agent, u32* engines) {
  return api([&](System&) { return answer(engines, (1u << kEngines) - 1); });
}

HSA_API hsa_amd_profiling_async_copy_enable(bool) { return kSuccess; }

}  // namespace vdev::hsa
