#include "hsa/environment.h"

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
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
constexpr auto kExitPatience = std::chrono::seconds(10);

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

void write_at_exit() {
  System* const system = System::get();
  if (system == nullptr) return;  // in a fork, whose parent writes them
  if (!system->drain_for(kExitPatience)) {
    std::fprintf(stderr, "amdattn: the process ends while launches run; they are left out\n");
    return;
  }
  write_files(system->process);
}

// What begins a session comes last: it takes the options as they are.
bool begins_session(std::string_view key) { return key == "check" || key == "timing"; }

void set_options(Process& process, std::string_view options, bool of_sessions) {
  while (!options.empty()) {
    const std::string_view one = options.substr(0, options.find(','));
    options.remove_prefix(std::min(options.size(), one.size() + 1));
    const size_t equal = one.find('=');
    u64 value = 0;
    const char* const end = one.data() + one.size();
    bool known = equal != one.npos;
    if (known) {
      if (begins_session(one.substr(0, equal)) != of_sessions) continue;
      const auto parsed = std::from_chars(one.data() + equal + 1, end, value);
      known = parsed.ec == std::errc{} && parsed.ptr == end &&
              process.set_option(one.substr(0, equal), value);
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

void write_results_of_fault(Process& process) {
  if (!findings_file.empty() || !profiles_file.empty()) write_files(process);
}

void watch_by_environment(Process& process) {
  findings_file = variable("AMDATTN_FINDINGS");
  profiles_file = variable("AMDATTN_PROFILES");
  code_objects_folder = variable("AMDATTN_CODE_OBJECTS");
  // A program goes on with what its kernels computed, of which the model executes a part.
  if (!profiles_file.empty()) process.timing_options.complete = true;
  const std::string options = variable("AMDATTN_OPTIONS");
  for (const bool of_sessions : {false, true}) set_options(process, options, of_sessions);
  if (!findings_file.empty()) process.set_checking(true);
  if (!profiles_file.empty()) process.set_timing(true);
  if (!findings_file.empty() || !profiles_file.empty()) std::atexit(write_at_exit);
}

}  // namespace vdev::hsa
