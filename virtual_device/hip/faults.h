// Faults of asynchronous work, and which threads have been told of them.
//
// A launch that faults ends; what is queued around it runs. Whoever waits for a stream may read
// what that launch should have written: every thread is told of every fault of what it waits for,
// once.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/types.h"
#include "hip/error_codes.h"

namespace vdev::hip {

// A number for the calling thread that no other one ever has.
u64 this_thread();

struct Fault {
  Fault(hipError_t code, std::string report, u64 submitter);

  const u64 id;
  const hipError_t code;
  const std::string report;
  const u64 submitter;                 // the thread that queued what faulted
  std::atomic<bool> open{true};        // that thread does not know yet
  std::atomic<bool> forgotten{false};  // by hipDeviceReset: nobody else needs to know any more
};
using FaultPtr = std::shared_ptr<Fault>;

// What one thread is told at a time: of every fault that is news to it.
class News {
 public:
  hipError_t code() const { return code_; }  // of the first one
  std::string report() const;                // reports that say the same, once

  void add(hipError_t code, std::string report);
  void add_unkept(hipError_t code, u64 count);

 private:
  hipError_t code_ = hipSuccess;
  std::vector<std::string> reports_;
  u64 untold_ = 0;
};

// The faults of a stream and of what it waited for. The latest are kept with their reports; of
// earlier ones that a thread was not told of, it is told that there were some.
class FaultLog {
 public:
  FaultLog();

  void add(FaultPtr fault);
  // Has those of a log whose work this one's waits for. `implicit`: by the rule of the null stream
  // alone, which orders everybody's work; then only faults that are still open.
  void take_over(const FaultLog& other, bool implicit);
  // The latest one that the thread that queued it does not know yet, null if there is none.
  FaultPtr latest_open() const;
  // Adds what the calling thread has not been told to `news`. `told`: from now on it has been.
  void tell(News& news, bool told) const;
  // The device begins anew for all but those who have not been told of their own launch.
  void forget();

 private:
  bool holds(const Fault& fault) const;

  const u64 id_;
  mutable std::mutex mutex_;
  std::deque<FaultPtr> kept_;
  std::atomic<u64> total_{0};  // faults ever added
  u64 evicted_ = 0;            // of those, no longer kept
  u64 forgotten_ = 0;          // of those, before the last reset
  hipError_t evicted_code_ = hipSuccess;
};

}  // namespace vdev::hip
