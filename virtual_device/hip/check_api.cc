// The library's entry points for checked mode; see docs/checked-mode.md for the JSON.
#include <cstdio>
#include <cstring>
#include <string_view>

#include "hip/api.h"
#include "isa/decode.h"

namespace vdev::hip {
namespace {

// One line per instruction of the function that begins at a kernel's entry.
std::string listing(const CodeObject& code, const Kernel& kernel) {
  const auto [first, last] = code.function_around(kernel.entry_address);
  const std::span<const u32> text = code.text();
  std::string out;
  for (u64 pc = first; pc < last;) {
    const size_t index = (pc - code.text_address()) / 4;
    const Decoded decoded = decode(text.subspan(index), code.instructions());
    const u32 size = decoded.inst.row ? decoded.inst.size : 1;
    char field[32];
    std::snprintf(field, sizeof field, "%llu\t",
                  static_cast<unsigned long long>(pc - code.load_base()));
    out += field;
    for (u32 i = 0; i < size; ++i) {
      std::snprintf(field, sizeof field, "%08x", text[index + i]);
      out += field;
    }
    out += '\t' + (decoded.inst.row ? disassemble(decoded.inst) : std::string("(not decodable)"));
    out += '\n';
    pc += 4 * u64{size};
  }
  return out;
}

template <class Make>
const char* text_of_session(Make make) {
  static thread_local std::string text;
  text.clear();
  bool made = false;
  api([&](Runtime& runtime) {
    runtime.process.drain();
    if (runtime.process.checks) made = make(*runtime.process.checks, text);
    return hipSuccess;
  });
  return made ? text.c_str() : nullptr;
}

}  // namespace

// The findings of every launch and host call since the last call, as JSON, and forgets them; null
// when checked mode was never on. Valid until the same thread calls again.
VDEV_EXPORT const char* amdattn_vdev_take_findings() {
  return text_of_session([](CheckSession& session, std::string& text) {
    text = session.take_json();
    return true;
  });
}

// Says that [address, address + bytes) is "read_only" for kernels, or "zero_at_end" of each launch,
// until checked mode is switched off. 1: noted; 0: unknown kind, or checked mode is off.
VDEV_EXPORT int amdattn_vdev_declare(const char* kind, uint64_t address, uint64_t bytes,
                                     const char* name) {
  if (kind == nullptr || name == nullptr || bytes == 0) return 0;
  Contract contract{Contract::Kind::kReadOnly, address, bytes, name};
  if (std::strcmp(kind, "zero_at_end") == 0)
    contract.kind = Contract::Kind::kZeroAtEnd;
  else if (std::strcmp(kind, "read_only") != 0)
    return 0;
  bool noted = false;
  api([&](Runtime& runtime) {
    runtime.process.drain();
    if (runtime.process.checks && runtime.process.checking) {
      runtime.process.checks->declare(std::move(contract));
      noted = true;
    }
    return hipSuccess;
  });
  return noted ? 1 : 0;
}

// The ELF image of a code object that a finding names; null when unknown.
VDEV_EXPORT const uint8_t* amdattn_vdev_code_object(uint64_t id, uint64_t* bytes) {
  const uint8_t* image = nullptr;
  if (bytes == nullptr) return nullptr;
  *bytes = 0;
  api([&](Runtime& runtime) {
    const auto code = runtime.process.checks ? runtime.process.checks->code_object(id) : nullptr;
    if (code) {
      image = code->image().data();
      *bytes = code->image().size();
    }
    return hipSuccess;
  });
  return image;
}

// A kernel's instructions, "pc, bytes, text" to a line, tab-separated: pc is the decimal address in
// the ELF image, bytes are the dwords in hexadecimal. Null when unknown.
VDEV_EXPORT const char* amdattn_vdev_listing(uint64_t id, const char* kernel) {
  if (kernel == nullptr) return nullptr;
  return text_of_session([&](CheckSession& session, std::string& text) {
    const auto code = session.code_object(id);
    const Kernel* found = code ? code->find_kernel(kernel) : nullptr;
    if (found) text = listing(*code, *found);
    return found != nullptr;
  });
}

}  // namespace vdev::hip
