// Loading of code objects.
#pragma once

#include <optional>
#include <span>

#include "hip/runtime.h"

namespace vdev::hip {

std::vector<u8> read_file(const char* path);
// Not in a table yet. Refuses images that do not fit the device.
std::shared_ptr<Module> load_module(Runtime& runtime, std::span<const u8> image);
void unload_module(Runtime& runtime, Module& module);
// The same handle at every call. Refuses an unknown name with hipErrorNotFound.
std::shared_ptr<Function> get_function(Runtime& runtime, Module& module, const Kernel* kernel);
std::shared_ptr<Function> get_function(Runtime& runtime, Module& module, const char* name);
// The variable of any loaded module that begins at `address`.
std::optional<GlobalVariable> find_global(Runtime& runtime, const void* address);
const GlobalVariable& get_global(const Module& module, const char* name);

}  // namespace vdev::hip
