// The device of this process, and what watches its launches: checked mode and the performance
// model. Both faces, the HIP runtime's ABI and the HSA runtime's, stand on it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "arch/played.h"
#include "check/session.h"
#include "core/device.h"
#include "timing/session.h"

namespace vdev {

class Process {
 public:
  // Created by the first call, never destroyed: threads of the application may still be inside a
  // call when the process ends.
  static Process& get();

  Device device{played_machine(), num_played_gpus()};

  // Who knows how to wait for all work of a face; both may be in use.
  void add_drain(std::function<void()> drain);
  void drain() const;

  // False: no such option, or a value out of range. Nothing may be running.
  bool set_option(std::string_view key, u64 value);

  void set_checking(bool on);
  CheckOptions check_options;
  // The present session, or the last one: its findings outlive it.
  std::unique_ptr<CheckSession> checks;
  std::atomic<bool> checking{false};

  void set_timing(bool on);
  timing::Options timing_options;
  std::unique_ptr<timing::Session> timings;
  std::atomic<bool> timing{false};

 private:
  Process() = default;

  mutable std::mutex mutex_;  // guards `drains_`
  std::vector<std::function<void()>> drains_;
};

// Keeps the library mapped, whose code detached threads run, when somebody closes it.
void keep_library_loaded();

}  // namespace vdev
