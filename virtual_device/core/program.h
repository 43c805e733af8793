// The decoded text of a code object: one Inst for every dword offset, so that a program counter
// is a pointer and branches are pointer arithmetic. Offsets inside an instruction hold whatever
// decodes there and are never reached; what does not decode holds a trap.
#pragma once

#include <string>
#include <vector>

#include "core/code_object.h"
#include "isa/tables.h"

namespace vdev {

// Operands carry their place in the register file, so kernels of other allocations have their own.
struct DecodedCode {
  std::vector<Inst> insts;
  u64 address = 0;  // device address of insts[0]
  const InstructionSet* set = nullptr;

  u64 pc(const Inst* inst) const { return address + 4 * static_cast<u64>(inst - insts.data()); }
  // Null when `pc` is not the address of an instruction in this code.
  const Inst* at(u64 pc) const {
    const u64 index = (pc - address) / 4;
    return pc % 4 == 0 && pc >= address && index < insts.size() ? &insts[index] : nullptr;
  }
};

// Whether the registers that an instruction names are the wave's. Others fault when they are
// executed; until then nobody may look at what they hold.
bool has_registers(const Inst& inst);

// The object's text, for a kernel. Decodes on first use; thread-safe.
const DecodedCode& decoded(CodeObject& object, const Kernel& kernel);

}  // namespace vdev
