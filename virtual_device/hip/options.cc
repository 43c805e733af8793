// The library's own entry points: version, options, counters and the last report.
#include <charconv>
#include <cstring>
#include <string_view>

#include "hip/api.h"

namespace vdev::hip {
namespace {

constexpr uint32_t kAbiVersion = 3;
bool set_option(Runtime& runtime, std::string_view key, u64 value) {
  if (key != "null") return runtime.process.set_option(key, value);
  if (value > 2) return false;
  runtime.null_launches = static_cast<Runtime::NullLaunches>(value);
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

// The profiles of every launch since the last call, as JSON, and forgets them; null when the model
// was never on. Valid until the same thread calls again.
VDEV_EXPORT const char* amdattn_vdev_take_profiles() {
  static thread_local std::string text;
  bool made = false;
  api([&](Runtime& runtime) {
    runtime.process.drain();
    const auto& timings = runtime.process.timings;
    made = timings != nullptr;
    if (made) text = timings->take_json();
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
    runtime.process.drain();  // no launch reads the options while they change
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
