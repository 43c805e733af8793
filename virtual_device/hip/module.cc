#include "hip/module.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "hip/api.h"
#include "hip/transfer.h"

namespace vdev::hip {
namespace {

constexpr char kBundleMagic[] = "__CLANG_OFFLOAD_BUNDLE__";  // 24 bytes, then u64 count
constexpr u64 kLargestImage = u64{4} << 30;
constexpr u32 kFatBinaryMagic = 0x48495046;  // hipModuleLoadFatBinary's wrapper: "HIPF"

struct FatBinary {
  u32 magic, version;
  const void* binary;
  void* unused;
};

// A struct from memory that may end anywhere; zeros where it does.
template <class T>
T peek(const void* base, u64 offset) {
  T value{};
  read_safely(&value, static_cast<const u8*>(base) + offset, sizeof value);
  return value;
}

// An ELF image has no size of its own: it ends where its last part ends.
u64 elf_bytes(const void* image) {
  struct Header {
    u8 ident[16];
    u16 type, machine;
    u32 version;
    u64 entry, phoff, shoff;
    u32 flags;
    u16 ehsize, phentsize, phnum, shentsize, shnum, shstrndx;
  };
  struct Segment {
    u32 type, flags;
    u64 offset, vaddr, paddr, filesz, memsz, align;
  };
  struct Section {
    u32 name, type;
    u64 flags, addr, offset, size;
    u32 link, info;
    u64 addralign, entsize;
  };
  constexpr u32 kNoBits = 8;
  const auto header = peek<Header>(image, 0);
  u64 end = sizeof(Header);
  const auto extend = [&](u64 offset, u64 bytes) {
    if (offset < kLargestImage && bytes < kLargestImage) end = std::max(end, offset + bytes);
  };
  extend(header.phoff, u64{header.phnum} * sizeof(Segment));
  extend(header.shoff, u64{header.shnum} * sizeof(Section));
  for (u32 i = 0; i < header.phnum; ++i) {
    const auto segment = peek<Segment>(image, header.phoff + i * sizeof(Segment));
    extend(segment.offset, segment.filesz);
  }
  for (u32 i = 0; i < header.shnum; ++i) {
    const auto section = peek<Section>(image, header.shoff + i * sizeof(Section));
    if (section.type != kNoBits) extend(section.offset, section.size);
  }
  return end;
}

u64 bundle_bytes(const void* image) {
  u64 position = sizeof kBundleMagic - 1, end = position + 8;
  const u64 count = std::min<u64>(peek<u64>(image, position), 4096);
  position += 8;
  for (u64 i = 0; i < count; ++i) {
    const u64 offset = peek<u64>(image, position), size = peek<u64>(image, position + 8),
              id_bytes = peek<u64>(image, position + 16);
    if (id_bytes > 4096 || offset > kLargestImage || size > kLargestImage) break;
    position += 24 + id_bytes;
    end = std::max({end, position, offset + size});
  }
  return end;
}

u64 image_bytes(const void* image) {
  char start[sizeof kBundleMagic - 1] = {};
  const u64 readable = read_safely(start, image, sizeof start);
  if (readable == sizeof start && std::memcmp(start, kBundleMagic, sizeof start) == 0) {
    return bundle_bytes(image);
  }
  if (std::memcmp(start, "\177ELF\2\1", 6) == 0) return elf_bytes(image);
  return readable;  // whatever else it is, the loader needs only its beginning to say so
}

hipError_t load(hipModule_t* module, const void* image) {
  return api([&](Runtime& runtime) {
    require(module != nullptr && image != nullptr);
    *module = nullptr;
    *module = runtime.modules.add(load_module(runtime, copy_image(image)));
    return hipSuccess;
  });
}

}  // namespace

std::vector<u8> copy_image(const void* image) {
  std::vector<u8> bytes(std::min(image_bytes(image), kLargestImage));
  bytes.resize(read_safely(bytes.data(), image, bytes.size()));
  return bytes;
}

std::vector<u8> read_file(const char* path) {
  std::vector<u8> bytes;
  std::FILE* file = std::fopen(path, "rb");
  if (file == nullptr) refuse(hipErrorFileNotFound, std::string("cannot open ") + path);
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
  auto loaded = CodeObject::load(image, device.limits().arch, device.memory());
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
  require(name != nullptr);
  const Kernel* kernel = module.code->find_kernel(name);
  if (kernel == nullptr) {
    std::string known;
    for (const Kernel& other : module.code->kernels()) known += " " + other.name;
    refuse(hipErrorNotFound, std::string("no kernel ") + name + "; the code object has:" + known);
  }
  return get_function(runtime, module, kernel);
}

const GlobalVariable& get_global(const Module& module, const char* name) {
  require(name != nullptr);
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
    require(module != nullptr && path != nullptr);
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
    const auto wrapper = peek<FatBinary>(fat_binary, 0);
    if (wrapper.magic == kFatBinaryMagic) return load(module, wrapper.binary);
  }
  return load(module, fat_binary);
}

HIP_API hipModuleUnload(hipModule_t module) {
  return api([&](Runtime& runtime) {
    const auto removed = runtime.modules.remove(module);
    require(removed != nullptr, hipErrorInvalidHandle);
    unload_module(runtime, *removed);
    return hipSuccess;
  });
}

HIP_API hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
  return api([&](Runtime& runtime) {
    require(function != nullptr);
    const auto m = runtime.modules.get(module);
    *function = get_function(runtime, *m, name)->handle;
    return hipSuccess;
  });
}

HIP_API hipModuleGetFunctionCount(unsigned* count, hipModule_t module) {
  return api([&](Runtime& runtime) {
    require(count != nullptr);
    *count = static_cast<unsigned>(runtime.modules.get(module)->code->kernels().size());
    return hipSuccess;
  });
}

HIP_API hipModuleGetGlobal(hipDeviceptr_t* address, size_t* bytes, hipModule_t module,
                           const char* name) {
  return api([&](Runtime& runtime) {
    const auto m = runtime.modules.get(module);
    const GlobalVariable& global = get_global(*m, name);
    if (address != nullptr) *address = reinterpret_cast<void*>(global.address);
    if (bytes != nullptr) *bytes = global.size;
    return hipSuccess;
  });
}

}  // namespace vdev::hip
