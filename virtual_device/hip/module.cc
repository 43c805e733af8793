#include "hip/module.h"

#include <sys/stat.h>

#include <cstdio>

#include "core/offload_bundle.h"
#include "core/safe_read.h"
#include "hip/api.h"

namespace vdev::hip {
namespace {

constexpr u32 kFatBinaryMagic = 0x48495046;  // hipModuleLoadFatBinary's wrapper: "HIPF"

struct FatBinary {
  u32 magic, version;
  const void* binary;
  void* unused;
};

hipError_t load(hipModule_t* module, const void* image) {
  return api([&](Runtime& runtime) {
    require(writable(module) && image != nullptr);
    *module = nullptr;
    *module = runtime.modules.add(load_module(runtime, copy_image(image)));
    return hipSuccess;
  });
}

}  // namespace

std::vector<u8> read_file(const char* path) {
  std::vector<u8> bytes;
  std::FILE* file = std::fopen(path, "rb");
  if (file == nullptr) refuse(hipErrorFileNotFound, std::string("cannot open ") + path);
  struct stat facts{};
  if (fstat(fileno(file), &facts) != 0 || !S_ISREG(facts.st_mode)) {
    std::fclose(file);
    refuse(hipErrorFileNotFound, std::string("no regular file: ") + path);
  }
  u8 part[1 << 16];
  size_t got = 0;
  while ((got = std::fread(part, 1, sizeof part, file)) > 0) {
    bytes.insert(bytes.end(), part, part + got);
  }
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (failed) refuse(hipErrorFileNotFound, std::string("cannot read ") + path);
  return bytes;
}

std::shared_ptr<Module> load_module(Runtime& runtime, std::span<const u8> image) {
  Device& device = runtime.device;
  auto loaded = CodeObject::load(image, device.arch().processor, device.memory());
  if (const auto* error = std::get_if<LoadError>(&loaded)) {
    refuse(error->invalid_image ? hipErrorInvalidImage : hipErrorNoBinaryForGpu,
           "code object refused: " + error->message);
  }
  auto module = std::make_shared<Module>();
  module->code = std::get<std::shared_ptr<CodeObject>>(std::move(loaded));
  return module;
}

// Launches in flight hold the code object itself.
void unload_module(Runtime& runtime, Module& module) {
  std::unique_lock lock(module.mutex);
  for (const auto& [kernel, function] : module.functions) {
    runtime.functions.remove(function->handle);
  }
}

std::shared_ptr<Function> get_function(Runtime& runtime, Module& module, const Kernel* kernel) {
  std::unique_lock lock(module.mutex);
  std::shared_ptr<Function>& function = module.functions[kernel];
  if (function == nullptr) {
    function = std::make_shared<Function>();
    function->code = module.code;
    function->kernel = kernel;
    function->library = module.library;
    runtime.functions.add(function);
  }
  return function;
}

std::shared_ptr<Function> get_function(Runtime& runtime, Module& module, const char* name) {
  require(is_text(name));
  const Kernel* kernel = module.code->find_kernel(name);
  if (kernel == nullptr) {
    std::string known;
    for (const Kernel& other : module.code->kernels()) known += " " + other.name;
    refuse(hipErrorNotFound, std::string("no kernel ") + name + "; the code object has:" + known);
  }
  return get_function(runtime, module, kernel);
}

const GlobalVariable& get_global(const Module& module, const char* name) {
  require(is_text(name));
  for (const GlobalVariable& global : module.code->globals()) {
    if (global.name == name) return global;
  }
  refuse(hipErrorNotFound, std::string("no global variable ") + name);
}

std::optional<GlobalVariable> find_global(Runtime& runtime, const void* address) {
  const auto search = [&](const Module& module) -> std::optional<GlobalVariable> {
    for (const GlobalVariable& global : module.code->globals()) {
      if (global.address == reinterpret_cast<u64>(address)) return global;
    }
    return std::nullopt;
  };
  for (const auto& module : runtime.modules.all()) {
    if (auto global = search(*module)) return global;
  }
  for (const auto& library : runtime.libraries.all()) {
    if (auto global = search(*library->module)) return global;
  }
  return std::nullopt;
}

HIP_API hipModuleLoad(hipModule_t* module, const char* path) {
  return api([&](Runtime& runtime) {
    require(writable(module) && is_text(path));
    *module = nullptr;
    *module = runtime.modules.add(load_module(runtime, read_file(path)));
    return hipSuccess;
  });
}

HIP_API hipModuleLoadData(hipModule_t* module, const void* image) { return load(module, image); }

// JIT options have no meaning for finished code.
HIP_API hipModuleLoadDataEx(hipModule_t* module, const void* image, unsigned, hipJitOption*,
                            void**) {
  return load(module, image);
}

HIP_API hipModuleLoadFatBinary(hipModule_t* module, const void* fat_binary) {
  if (fat_binary != nullptr) {
    FatBinary wrapper{};
    read_safely(&wrapper, fat_binary, sizeof wrapper);
    if (wrapper.magic == kFatBinaryMagic) return load(module, wrapper.binary);
  }
  return load(module, fat_binary);
}

HIP_API hipModuleUnload(hipModule_t module) {
  return api([&](Runtime& runtime) {
    const auto removed = runtime.modules.remove(module);
    require(removed != nullptr, hipErrorNotFound);
    unload_module(runtime, *removed);
    return hipSuccess;
  });
}

HIP_API hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
  return api([&](Runtime& runtime) {
    require(writable(function));
    const auto m = runtime.modules.get(module, hipErrorNotFound);
    *function = get_function(runtime, *m, name)->handle;
    return hipSuccess;
  });
}

HIP_API hipModuleGetFunctionCount(unsigned* count, hipModule_t module) {
  return api([&](Runtime& runtime) {
    require(writable(count));
    *count = static_cast<unsigned>(
        runtime.modules.get(module, hipErrorNotFound)->code->kernels().size());
    return hipSuccess;
  });
}

HIP_API hipModuleGetGlobal(hipDeviceptr_t* address, size_t* bytes, hipModule_t module,
                           const char* name) {
  return api([&](Runtime& runtime) {
    const auto m = runtime.modules.get(module, hipErrorNotFound);
    const GlobalVariable& global = get_global(*m, name);
    if (wanted(address)) *address = reinterpret_cast<void*>(global.address);
    if (wanted(bytes)) *bytes = global.size;
    return hipSuccess;
  });
}

}  // namespace vdev::hip
