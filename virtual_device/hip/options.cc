// The library's own entry points: version, options, counters and the last report.
#include <charconv>
#include <cstring>
#include <string_view>

#include "hip/api.h"

namespace vdev::hip {
namespace {

constexpr uint32_t kAbiVersion = 3;
constexpr u64 kMaxThreads = 1024, kMaxQuantum = 16;

bool set_reading(timing::Readings& readings, std::string_view key, u64 value) {
  for (const timing::ReadingOption& option : timing::kReadingOptions)
    if (key == option.key && value <= option.most) {
      readings.*option.value = static_cast<u32>(value);
      return true;
    }
  return false;
}

bool set_option(Runtime& runtime, std::string_view key, u64 value) {
  DeviceOptions& options = runtime.device.options();
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
  } else if (key == "null" && value <= 2) {
    runtime.null_launches = static_cast<Runtime::NullLaunches>(value);
  } else if (key == "check" && value <= 1) {
    runtime.set_checking(value == 1);
  } else if (key == "timing" && value <= 1) {
    runtime.set_timing(value == 1);
  } else if (key == "clock_mhz") {
    runtime.timing_options.clock_ghz = static_cast<double>(value) / 1000;
  } else if (key == "trace_events") {
    runtime.timing_options.max_events = value;
  } else if (key == "simulated_workgroups") {
    runtime.timing_options.max_workgroups = value;
  } else if (key == "simulated_xcd" && value < runtime.device.machine().num_xcds) {
    runtime.timing_options.xcd = static_cast<u32>(value);
  } else if (key == "warm_code" && value <= 1) {
    runtime.timing_options.warm_code = value == 1;
  } else if (key == "max_errors" && value <= ~u32{0}) {
    runtime.check_options.max_errors = static_cast<u32>(value);
  } else if (key == "late_loads" && value <= 1) {
    runtime.check_options.late_loads = value == 1;
  } else if (key == "late_stores" && value <= 1) {
    runtime.check_options.late_stores = value == 1;
  } else {
    return set_reading(runtime.timing_options.readings, key, value);
  }
  return true;
}

bool get_counter(Runtime& runtime, std::string_view name, u64& value) {
  const Counters& counters = runtime.device.counters();
  if (name == "instructions") {
    value = counters.instructions;
  } else if (name == "mfma") {
    value = counters.mfma;
  } else if (name == "workgroups") {
    value = counters.workgroups;
  } else if (name == "launches") {
    value = counters.launches;
  } else if (name == "bytes_allocated") {
    value = runtime.device.memory().used();
  } else {
    return false;
  }
  return true;
}

}  // namespace

void Runtime::set_checking(bool on) {
  if (on == checking) return;
  checking = on;
  if (on) {
    checks.reset();  // before its successor watches the same memory
    checks = std::make_unique<CheckSession>(device.memory(), check_options);
  } else {
    checks->stop();
  }
  device.set_observer(on ? &CheckSession::observe : nullptr, checks.get());
}

void Runtime::set_timing(bool on) {
  if (on == timing) return;
  timing = on;
  if (on) timings = std::make_unique<timing::Session>(device.machine(), timing_options);
  device.set_executor(on ? &timing::Session::execute : nullptr, timings.get());
}

// The profiles of every launch since the last call, as JSON, and forgets them; null when the model
// was never on. Valid until the same thread calls again.
VDEV_EXPORT const char* amdattn_vdev_take_profiles() {
  static thread_local std::string text;
  bool made = false;
  api([&](Runtime& runtime) {
    runtime.drain();
    made = runtime.timings != nullptr;
    if (made) text = runtime.timings->take_json();
    return hipSuccess;
  });
  return made ? text.c_str() : nullptr;
}

// Which device the process has: a product such as "MI300X", or a partition such as "MI300X:CPX".
// 0 if there is no such name, or if the device exists already: some call of the API was before.
VDEV_EXPORT int amdattn_vdev_play(const char* name) {
  if (name == nullptr) return 0;
  const auto machine = find_machine(name);
  return machine && play(*machine);
}

// Grows when one of the functions here changes its meaning.
VDEV_EXPORT uint32_t amdattn_vdev_abi() { return kAbiVersion; }

// What is known of the error that the thread's last call returned: a fault, a refused launch or
// code object; else of the last such error of any thread. Valid until the same thread asks again.
VDEV_EXPORT const char* amdattn_vdev_last_report() {
  static thread_local std::string text;
  const hipError_t code = guarded([&](Runtime& runtime) {
    text = runtime.report();
    return hipSuccess;
  });
  return code == hipSuccess ? text.c_str() : "";
}

// Decimal values. 1: set, and used from the next launch on; 0: unknown key or value out of range.
VDEV_EXPORT int amdattn_vdev_set_option(const char* key, const char* value) {
  if (key == nullptr || value == nullptr) return 0;
  u64 number = 0;
  const char* end = value + std::strlen(value);
  const auto parsed = std::from_chars(value, end, number);
  if (parsed.ec != std::errc{} || parsed.ptr != end || value == end) return 0;
  bool known = false;
  const hipError_t code = api([&](Runtime& runtime) {
    runtime.drain();  // no launch reads the options while they change
    known = set_option(runtime, key, number);
    return hipSuccess;
  });
  return code == hipSuccess && known ? 1 : 0;
}

// 0 for an unknown name.
VDEV_EXPORT uint64_t amdattn_vdev_counter(const char* name) {
  u64 value = 0;
  if (name == nullptr) return 0;
  api([&](Runtime& runtime) {
    get_counter(runtime, name, value);
    return hipSuccess;
  });
  return value;
}

}  // namespace vdev::hip
