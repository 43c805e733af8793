#include "core/program.h"

#include <cstdio>
#include <mutex>

#include "core/wave.h"
#include "isa/decode.h"

namespace vdev {
namespace {

void exec_illegal(Wave&, const Inst& inst) {
  char text[96];
  std::snprintf(text, sizeof text, "illegal instruction 0x%08x 0x%08x: ", inst.words[0],
                inst.words[1]);
  raise(FaultKind::kIllegalInstruction,
        text + std::string(decode({inst.words, 3}).why));
}

Inst illegal(std::span<const u32> words) {
  Inst inst;
  inst.exec = &exec_illegal;
  for (size_t i = 0; i < 3 && i < words.size(); ++i) inst.words[i] = words[i];
  return inst;
}

// Registers beyond the kernel's allocation belong to another wave.
bool within(const Operand& operand, const Kernel& kernel) {
  const u32 end = operand.index + operand.dwords;
  if (operand.kind == OperandKind::kVgpr) return end <= kernel.num_vgprs;
  if (operand.kind == OperandKind::kAgpr) return end <= kernel.num_agprs;
  return true;
}

void exec_beyond_allocation(Wave&, const Inst&) {
  raise(FaultKind::kIllegalInstruction,
        "names a vector register beyond the kernel descriptor's allocation");
}

void check_registers(DecodedCode& code, const CodeObject& object) {
  for (const Kernel& kernel : object.kernels()) {
    const u64 first = (kernel.entry_address - code.address) / 4;
    u64 last = code.insts.size();
    for (const Kernel& other : object.kernels())
      if (other.entry_address > kernel.entry_address)
        last = std::min(last, (other.entry_address - code.address) / 4);
    for (u64 i = first; i < last; ++i) {
      Inst& inst = code.insts[i];
      bool ok = within(inst.dst, kernel);
      for (const Operand& source : inst.src) ok = ok && within(source, kernel);
      if (!ok && inst.row) inst.exec = &exec_beyond_allocation;
    }
  }
}

}  // namespace

const DecodedCode& decoded(CodeObject& object) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (!object.decoded) {
    auto code = std::make_shared<DecodedCode>();
    const std::span<const u32> text = object.text();
    code->address = object.text_address();
    code->insts.reserve(text.size() + 4);
    for (size_t i = 0; i < text.size(); ++i) {
      Decoded result = decode(text.subspan(i));
      code->insts.push_back(result.inst.row ? result.inst : illegal(text.subspan(i)));
    }
    // Falling off the end traps as well; an instruction has at most three dwords.
    for (int i = 0; i < 4; ++i) code->insts.push_back(illegal({}));
    check_registers(*code, object);
    object.decoded = std::move(code);
  }
  return *object.decoded;
}

}  // namespace vdev
