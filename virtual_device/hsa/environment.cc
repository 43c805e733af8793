#include "hsa/environment.h"

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "arch/played.h"
#include "hsa/system.h"

namespace vdev::hsa {
namespace {

constexpr std::string_view kVirtual = "virtual:";

// Files that are written when the process ends; "" for none.
std::string findings_file, profiles_file;
std::string code_objects_folder;  // where the code objects that findings name are put; "" for none
std::atomic<bool> written{false};
constexpr auto kExitPatience = std::chrono::seconds(10), kAbortPatience = std::chrono::seconds(5);

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::optional<Machine> machine_of(std::string_view name) {
  for (const Arch* arch : architectures())
    if (arch->name() == name)
      return Machine{arch, &arch->products.front(), arch->products.front().num_xcds};
  return find_machine(name);
}

void write_file(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  const bool opened = file != nullptr;
  bool written = opened && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (opened) written = std::fclose(file) == 0 && written;
  if (!written) std::fprintf(stderr, "amdattn: cannot write %s\n", path.c_str());
}

void write_code_objects(const CheckSession& checks) {
  for (u64 id = 0;; ++id) {
    const auto code = checks.code_object(id);
    if (code == nullptr) return;
    const auto image = code->image();
    write_file(code_objects_folder + '/' + std::to_string(id),
               {reinterpret_cast<const char*>(image.data()), image.size()});
  }
}

void write_files(Process& process) {
  if (written.exchange(true)) return;
  if (!findings_file.empty() && process.checks) {
    write_file(findings_file, process.checks->take_json());
    if (!code_objects_folder.empty()) write_code_objects(*process.checks);
  }
  if (!profiles_file.empty() && process.timings) {
    write_file(profiles_file, process.timings->take_json());
  }
}

// A launch that still runs would keep those from ending who wait for it when they are destroyed.
bool end_work(System& system) {
  system.ends = true;
  if (system.drain_for(kExitPatience)) return true;
  std::fprintf(stderr, "amdattn: the process ends while launches or copies are under way\n");
  system.device.abort("the process ends");
  return system.drain_for(kAbortPatience);
}

void end_process() {
  System* const system = System::get();
  // Null after the last hsa_shut_down, and in a fork, whose parent writes them.
  if (system != nullptr && end_work(*system)) write_files(system->process);
}

// In the order in which they are set: what the device is before it exists, and what begins a
// session last, since it takes the options as they are.
enum class Stage { kDevice, kPlain, kSession };

Stage stage_of(std::string_view key) {
  if (key == "gpus") return Stage::kDevice;
  return key == "check" || key == "timing" ? Stage::kSession : Stage::kPlain;
}

void set_options(Stage stage, const std::function<bool(std::string_view key, u64 value)>& set) {
  const std::string all = variable("AMDATTN_OPTIONS");
  for (std::string_view options = all; !options.empty();) {
    const std::string_view one = options.substr(0, options.find(','));
    options.remove_prefix(std::min(options.size(), one.size() + 1));
    const std::string_view key = one.substr(0, one.find('='));
    if (stage_of(key) != stage) continue;
    u64 value = 0;
    const char* const end = one.data() + one.size();
    bool known = key.size() < one.size();
    if (known) {
      const auto parsed = std::from_chars(key.data() + key.size() + 1, end, value);
      known = parsed.ec == std::errc{} && parsed.ptr == end && set(key, value);
    }
    if (!known) {
      throw std::runtime_error("AMDATTN_OPTIONS: no such option or value: " + std::string(one));
    }
  }
}

}  // namespace

void choose_device() {
  if (is_machine_decided()) return;
  const std::string request = variable("AMDATTN_DEVICE");
  if (request.empty() || request == "auto") return;
  std::string_view name = request;
  if (name.starts_with(kVirtual)) name.remove_prefix(kVirtual.size());
  const auto machine = machine_of(name);
  if (!machine) throw std::runtime_error("AMDATTN_DEVICE=" + request + ": no such device");
  play(*machine);
}

void choose_gpus() {
  set_options(Stage::kDevice, [](std::string_view, u64 count) {
    return count <= kMaxGpus && (play_gpus(static_cast<u32>(count)) || count == num_played_gpus());
  });
}

void write_results_of_fault(Process& process) {
  if (!findings_file.empty() || !profiles_file.empty()) write_files(process);
}

void watch_by_environment(Process& process) {
  findings_file = variable("AMDATTN_FINDINGS");
  profiles_file = variable("AMDATTN_PROFILES");
  code_objects_folder = variable("AMDATTN_CODE_OBJECTS");
  // A program goes on with what its kernels computed, of which the model executes a part.
  if (!profiles_file.empty()) process.timing_options.complete = true;
  const auto set = [&](std::string_view key, u64 value) { return process.set_option(key, value); };
  for (const Stage stage : {Stage::kPlain, Stage::kSession}) set_options(stage, set);
  if (!findings_file.empty()) process.set_checking(true);
  if (!profiles_file.empty()) process.set_timing(true);
  std::atexit(end_process);
}

}  // namespace vdev::hsa
