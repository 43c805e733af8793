// The loader: code objects become executables, whose symbols are kernels and variables.
#include <cstdio>
#include <cstring>
#include <span>

#include "hsa/api.h"

namespace vdev::hsa {

struct ReaderState {
  std::vector<u8> image;
};

struct SymbolState {
  std::string name;
  Agent agent;
  const Kernel* kernel = nullptr;
  const GlobalVariable* variable = nullptr;
};

struct Program {
  std::shared_ptr<CodeObject> code;
  Agent agent;  // that it was loaded for
  bool frozen = false;
  std::vector<std::unique_ptr<SymbolState>> symbols;
};

namespace {

// Handles of readers, executables and symbols are addresses of what they stand for.
std::mutex programs_mutex;  // guards the following three
std::set<ReaderState*> readers;
std::set<Program*> programs;
std::set<const SymbolState*> symbols;

Program& program_of(Executable executable) {
  std::lock_guard lock(programs_mutex);
  auto* const program = reinterpret_cast<Program*>(executable.handle);
  require(programs.contains(program), kInvalidExecutable);
  return *program;
}

void add_symbols(Program& program) {
  const auto add = [&](SymbolState state) {
    program.symbols.push_back(std::make_unique<SymbolState>(std::move(state)));
    std::lock_guard lock(programs_mutex);
    symbols.insert(program.symbols.back().get());
  };
  const Agent agent = program.agent;
  for (const Kernel& kernel : program.code->kernels())
    add({kernel.name + ".kd", agent, &kernel, nullptr});
  for (const GlobalVariable& global : program.code->globals())
    add({global.name, agent, nullptr, &global});
}

Status kernel_info(const SymbolState& symbol, u32 attribute, void* value) {
  using namespace symbol_info;
  const Kernel& kernel = *symbol.kernel;
  switch (attribute) {
    case kType:
      return answer(value, u32{1});
    case kKernelObject:
      return answer(value, kernel.descriptor_address);
    case kKernargSize:
      return answer(value, kernel.kernarg_bytes);
    case kKernargAlignment:
      return answer(value, std::max(16u, kernel.kernarg_align));
    case kGroupSegmentSize:
      return answer(value, kernel.lds_bytes);
    case kPrivateSegmentSize:
      return answer(value, kernel.scratch_bytes);
    case kDynamicCallstack:
      return answer(value, kernel.dynamic_stack);
  }
  return kInvalidArgument;
}

Status variable_info(const SymbolState& symbol, u32 attribute, void* value) {
  using namespace symbol_info;
  switch (attribute) {
    case kType:
    case kVariableAllocation:
    case kVariableSegment:
      return answer(value, u32{0});
    case kVariableAddress:
      return answer(value, symbol.variable->address);
    case kVariableSize:
      return answer(value, static_cast<u32>(symbol.variable->size));
    case kVariableAlignment:
      return answer(value, u32{16});
    case kVariableIsConst:
      return answer(value, false);
  }
  return kInvalidArgument;
}

}  // namespace

HSA_API hsa_code_object_reader_create_from_memory(const void* image, size_t bytes, Reader* reader) {
  return api([&](System&) {
    require(image != nullptr && bytes != 0 && reader != nullptr);
    const auto* first = static_cast<const u8*>(image);
    auto state = std::make_unique<ReaderState>(ReaderState{{first, first + bytes}});
    std::lock_guard lock(programs_mutex);
    readers.insert(state.get());
    *reader = {reinterpret_cast<u64>(state.release())};
    return kSuccess;
  });
}

HSA_API hsa_code_object_reader_destroy(Reader reader) {
  return api([&](System&) {
    auto* const state = reinterpret_cast<ReaderState*>(reader.handle);
    std::lock_guard lock(programs_mutex);
    require(readers.erase(state) == 1, kInvalidCodeObjectReader);
    delete state;
    return kSuccess;
  });
}

HSA_API hsa_executable_create_alt(u32, u32, const char*, Executable* executable) {
  return api([&](System&) {
    require(executable != nullptr);
    auto program = std::make_unique<Program>();
    std::lock_guard lock(programs_mutex);
    programs.insert(program.get());
    *executable = {reinterpret_cast<u64>(program.release())};
    return kSuccess;
  });
}

HSA_API hsa_executable_load_agent_code_object(Executable executable, Agent agent, Reader reader,
                                              const char*, LoadedCodeObject* loaded) {
  return api([&](System& system) {
    Program& program = program_of(executable);
    require(system.gpu_of(agent).has_value(), kInvalidAgent);
    require(!program.frozen, kFrozenExecutable);
    require(program.code == nullptr, kInvalidCodeObject);
    std::vector<u8> image;
    {
      std::lock_guard lock(programs_mutex);
      auto* const state = reinterpret_cast<ReaderState*>(reader.handle);
      require(readers.contains(state), kInvalidCodeObjectReader);
      image = state->image;
    }
    auto code = CodeObject::load(image, system.device.arch().processor, system.memory);
    if (const auto* error = std::get_if<LoadError>(&code)) {
      std::fprintf(stderr, "amdattn: code object refused: %s\n", error->message.c_str());
      return kInvalidCodeObject;
    }
    program.code = std::get<std::shared_ptr<CodeObject>>(std::move(code));
    program.agent = agent;
    add_symbols(program);
    std::lock_guard lock(system.code_mutex);
    for (const Kernel& kernel : program.code->kernels()) {
      system.dispatchable[kernel.descriptor_address] = {program.code, &kernel, {}};
    }
    if (loaded != nullptr) *loaded = {executable.handle};
    return kSuccess;
  });
}

HSA_API hsa_executable_freeze(Executable executable, const char*) {
  return api([&](System&) {
    program_of(executable).frozen = true;
    return kSuccess;
  });
}

HSA_API hsa_executable_destroy(Executable executable) {
  return api([&](System& system) {
    Program& program = program_of(executable);
    if (program.code) {
      std::lock_guard lock(system.code_mutex);
      for (const Kernel& kernel : program.code->kernels()) {
        system.dispatchable.erase(kernel.descriptor_address);
      }
    }
    std::lock_guard lock(programs_mutex);
    for (const auto& symbol : program.symbols) symbols.erase(symbol.get());
    programs.erase(&program);
    delete &program;
    return kSuccess;
  });
}

HSA_API hsa_executable_get_symbol_by_name(Executable executable, const char* name, const Agent*,
                                          Symbol* symbol) {
  return api([&](System&) {
    require(name != nullptr && symbol != nullptr);
    for (const auto& one : program_of(executable).symbols)
      if (one->name == name) {
        *symbol = {reinterpret_cast<u64>(one.get())};
        return kSuccess;
      }
    return kInvalidSymbolName;
  });
}

HSA_API hsa_executable_iterate_symbols(Executable executable,
                                       Status (*visit)(Executable executable, Symbol symbol,
                                                       void* data),
                                       void* data) {
  return api([&](System&) {
    require(visit != nullptr);
    for (const auto& one : program_of(executable).symbols) {
      const Status status = visit(executable, {reinterpret_cast<u64>(one.get())}, data);
      if (status != kSuccess) return status;
    }
    return kSuccess;
  });
}

HSA_API hsa_executable_symbol_get_info(Symbol handle, u32 attribute, void* value) {
  using namespace symbol_info;
  return api([&](System&) {
    const auto* const symbol = reinterpret_cast<const SymbolState*>(handle.handle);
    {
      std::lock_guard lock(programs_mutex);
      require(symbols.contains(symbol), kInvalidExecutableSymbol);
    }
    require(value != nullptr);
    switch (attribute) {
      case kNameLength:
        return answer(value, static_cast<u32>(symbol->name.size()));
      case kName:
        std::memcpy(value, symbol->name.data(), symbol->name.size());
        return kSuccess;
      case kModuleNameLength:
        return answer(value, u32{0});
      case kAgent:
        return answer(value, symbol->agent);
      case kLinkage:
        return answer(value, u32{1});
      case kIsDefinition:
        return answer(value, true);
    }
    return symbol->kernel ? kernel_info(*symbol, attribute, value)
                          : variable_info(*symbol, attribute, value);
  });
}

}  // namespace vdev::hsa
