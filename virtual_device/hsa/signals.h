// Signals: words in memory that device and host change, and who waits for them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/memory.h"
#include "hsa/hsa_abi.h"

namespace vdev::hsa {

bool holds(Condition condition, SignalValue value, SignalValue compared);

class Signals {
 public:
  using Clock = std::chrono::steady_clock;
  using Handler = bool (*)(SignalValue value, void* argument);  // false: not again

  explicit Signals(Memory& memory) : memory_(memory) {}

  // Null where no memory is left.
  SignalBlock* create(SignalValue initial, int64_t kind = kUserSignal, u64 queue = 0);
  bool destroy(Signal signal);
  // Null where the handle is of no live signal.
  SignalBlock* find(Signal signal) const;

  static SignalValue load(const SignalBlock& signal) {
    return std::atomic_ref(const_cast<SignalValue&>(signal.value)).load();
  }
  void store(SignalBlock& signal, SignalValue value);
  void add(SignalBlock& signal, SignalValue value);
  // Wakes who waits: some signal has changed.
  void notify();

  // Blocks until `ready` says so, or until the deadline: whether it did. Kernels change signals
  // without telling, so it is asked now and then as well.
  bool wait(const std::function<bool()>& ready, std::optional<Clock::time_point> deadline = {});
  // Until the condition holds; the value that was seen last.
  SignalValue wait(const SignalBlock& signal, Condition condition, SignalValue compared,
                   std::optional<Clock::time_point> deadline = {});

  // Called on a thread of its own when the condition holds, again as long as it returns true.
  void on(Signal signal, Condition condition, SignalValue compared, Handler handler,
          void* argument);

 private:
  struct Watch {
    Signal signal;
    Condition condition;
    SignalValue compared;
    Handler handler;
    void* argument;
    u64 generation;         // of the signal: its place may be another's later
    SignalValue value = 0;  // that met the condition
  };

  void handle();  // the thread of the handlers
  std::optional<Watch> take_ready();

  Memory& memory_;
  mutable std::mutex mutex_;  // guards the following
  std::vector<SignalBlock*> free_;
  std::unordered_map<u64, u64> live_;  // handles, and their generations
  std::vector<Watch> watches_;
  std::condition_variable has_watches_;
  u64 next_generation_ = 0;
  std::mutex wait_mutex_;
  std::condition_variable changed_;
  std::atomic<u64> num_changes_{0};
  std::atomic<u32> num_waiting_{0};
  bool has_thread_ = false;  // under mutex_
};

}  // namespace vdev::hsa
