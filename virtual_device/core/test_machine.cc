#include "core/test_machine.h"

#include <map>
#include <memory>
#include <string>

namespace vdev {
namespace {

std::string& chosen() {
  static std::string name;  // "": the default machine
  return name;
}

}  // namespace

Device& test_device() {
  static auto& devices = *new std::map<std::string, std::unique_ptr<Device>>;
  auto& device = devices[chosen()];
  if (!device)
    device = std::make_unique<Device>(find_machine(chosen()).value_or(default_machine()));
  return *device;
}

}  // namespace vdev

// From now on, tests' entry points are for this machine, e.g. of "MI300X"; null: the default one.
// 0: there is none of that name.
extern "C" __attribute__((visibility("default"))) int vdev_test_choose_machine(const char* name) {
  if (name && !vdev::find_machine(name)) return 0;
  vdev::chosen() = name ? name : "";
  return 1;
}
