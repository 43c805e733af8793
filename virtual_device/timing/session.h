// The performance model, from the moment it is switched on: options, and the profiles of the
// launches in between.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "timing/simulator.h"

namespace vdev::timing {

class Session {
 public:
  Session(const Machine& machine, const Options& options);
  // Device::Executor: simulates the launch, then, if `complete`, runs what was not simulated.
  static void execute(const std::shared_ptr<LaunchState>& launch, Device& device, void* session);
  // The device's time: that of every launch so far, with the marginal cost of launching it.
  i64 now_ns() const { return now_ns_; }
  // Every launch since the last call, as JSON, and forgets it.
  std::string take_json();

 private:
  const Options& options_;
  std::atomic<i64> now_ns_{0};
  std::mutex simulating_;  // one launch after the other: what one leaves in the caches, others find
  Caches caches_;
  std::mutex mutex_;
  std::vector<std::string> launches_;
};

}  // namespace vdev::timing
