#include "core/program.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <mutex>

#include "core/launch_state.h"
#include "core/wave.h"
#include "isa/decode.h"

namespace vdev {
namespace {

void exec_illegal(Wave& wave, const Inst& inst) {
  const InstructionSet& set = *wave.workgroup->launch->code.set;
  char text[96];
  std::snprintf(text, sizeof text, "illegal instruction 0x%08x 0x%08x on ", inst.words[0],
                inst.words[1]);
  raise(FaultKind::kIllegalInstruction,
        std::string(text).append(set.processor()) + ": " + decode(inst.words, set).why);
}

Inst illegal(std::span<const u32> words) {
  Inst inst;
  inst.exec = &exec_illegal;
  for (size_t i = 0; i < std::size(inst.words) && i < words.size(); ++i) inst.words[i] = words[i];
  return inst;
}

// Gives an AGPR its place in the unified file. False: the operand reaches beyond the kernel's
// allocation, into registers of another wave. accum_offset is no bound for VGPRs: there are kernels
// that use v160 and up with an accum_offset of 160.
bool place(Operand& operand, const Kernel& kernel) {
  if (!operand.is_vector()) return true;
  if (operand.kind == OperandKind::kAgpr) operand.base = static_cast<u16>(kernel.num_vgprs);
  return operand.reg() + operand.dwords <= kernel.num_vgprs + kernel.num_agprs;
}
// SGPRs of its own: VCC, M0, EXEC and the like exist in every wave.
bool allocated(const Operand& operand, const Kernel& kernel) {
  return operand.kind != OperandKind::kSgpr || operand.index >= kMaxSgprs ||
         operand.index + u32{operand.dwords} <= kernel.addressable_sgprs;
}

void exec_beyond_allocation(Wave& wave, const Inst& inst) {
  const auto beyond = [&](const Operand& operand) {
    return operand.is_vector() && operand.reg() + operand.dwords > wave.num_vector_registers;
  };
  const bool vector =
      beyond(inst.dst) || std::any_of(std::begin(inst.src), std::end(inst.src), beyond);
  raise(FaultKind::kIllegalInstruction, std::string("names a ") + (vector ? "vector" : "scalar") +
                                            " register beyond the kernel descriptor's allocation");
}

void place_registers(Inst& inst, const Kernel& kernel) {
  bool ok = place(inst.dst, kernel) && allocated(inst.dst, kernel) && allocated(inst.sdst, kernel);
  for (Operand& source : inst.src) ok &= place(source, kernel) && allocated(source, kernel);
  if (!ok) inst.exec = &exec_beyond_allocation;
}

}  // namespace

bool has_registers(const Inst& inst) { return inst.exec != &exec_beyond_allocation; }

const InstructionSet& CodeObject::instructions() const { return instruction_set(processor_); }

const DecodedCode& decoded(CodeObject& object, const Kernel& kernel) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  auto& slot = object.decoded[{kernel.num_vgprs, kernel.num_agprs, kernel.addressable_sgprs}];
  if (!slot) {
    auto code = std::make_shared<DecodedCode>();
    const std::span<const u32> text = object.text();
    code->address = object.text_address();
    code->set = &object.instructions();
    code->insts.reserve(text.size() + 4);
    for (size_t i = 0; i < text.size(); ++i) {
      Decoded result = decode(text.subspan(i), *code->set);
      code->insts.push_back(result.inst.row ? result.inst : illegal(text.subspan(i)));
      place_registers(code->insts.back(), kernel);
    }
    // Falling off the end traps as well; an instruction has at most three dwords.
    for (int i = 0; i < 4; ++i) code->insts.push_back(illegal({}));
    slot = std::move(code);
  }
  return *slot;
}

}  // namespace vdev
