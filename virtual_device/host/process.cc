#include "host/process.h"

#include <dlfcn.h>

namespace vdev {
namespace {

constexpr u64 kMaxThreads = 1024, kMaxQuantum = 16;

bool set_reading(timing::Readings& readings, std::string_view key, u64 value) {
  for (const timing::ReadingOption& option : timing::kReadingOptions)
    if (key == option.key && value <= option.most) {
      readings.*option.value = static_cast<u32>(value);
      return true;
    }
  return false;
}

}  // namespace

Process& Process::get() {
  static Process& process = *new Process;
  return process;
}

void Process::add_drain(std::function<void()> drain) {
  std::lock_guard lock(mutex_);
  drains_.push_back(std::move(drain));
}

void Process::drain() const {
  std::vector<std::function<void()>> drains;
  {
    std::lock_guard lock(mutex_);
    drains = drains_;
  }
  for (const auto& drain : drains) drain();
}

bool Process::set_option(std::string_view key, u64 value) {
  DeviceOptions& options = device.options();
  if (key == "threads" && value <= kMaxThreads) {
    options.threads = static_cast<u32>(value);
  } else if (key == "quantum" && value >= 1 && value <= kMaxQuantum) {
    options.quantum = static_cast<u32>(value);
  } else if (key == "seed") {
    options.seed = value;
  } else if (key == "max_instructions" && value >= 1) {
    options.max_instructions = value;
  } else if (key == "max_total_instructions") {
    options.max_total_instructions = value;
  } else if (key == "resident_workgroups") {
    options.resident_workgroups = value;
  } else if (key == "check" && value <= 1) {
    set_checking(value == 1);
  } else if (key == "timing" && value <= 1) {
    set_timing(value == 1);
  } else if (key == "clock_mhz") {
    timing_options.clock_ghz = static_cast<double>(value) / 1000;
  } else if (key == "trace_events") {
    timing_options.max_events = value;
  } else if (key == "simulated_workgroups") {
    timing_options.max_workgroups = value;
  } else if (key == "simulated_xcd" && value < device.machine().num_xcds) {
    timing_options.xcd = static_cast<u32>(value);
  } else if (key == "complete" && value <= 1) {
    timing_options.complete = value == 1;
  } else if (key == "warm_code" && value <= 1) {
    timing_options.warm_code = value == 1;
  } else if (key == "max_errors" && value <= ~u32{0}) {
    check_options.max_errors = static_cast<u32>(value);
  } else if (key == "late_loads" && value <= 1) {
    check_options.late_loads = value == 1;
  } else if (key == "late_stores" && value <= 1) {
    check_options.late_stores = value == 1;
  } else {
    return set_reading(timing_options.readings, key, value);
  }
  return true;
}

void Process::set_checking(bool on) {
  if (on == checking) return;
  if (on) {
    checks.reset();  // before its successor watches the same memory
    checks = std::make_unique<CheckSession>(device.memory(), check_options);
  } else {
    checks->stop();
  }
  checking = on;
  device.set_observer(on ? &CheckSession::observe : nullptr, checks.get());
}

void Process::set_timing(bool on) {
  if (on == timing) return;
  if (on) timings = std::make_unique<timing::Session>(device.machine(), timing_options);
  timing = on;
  device.set_executor(on ? &timing::Session::execute : nullptr, timings.get());
}

void keep_library_loaded() {
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&Process::get), &self) != 0) {
    dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
  }
}

}  // namespace vdev
