// Machine code to Inst, and Inst to the assembler's text.
#pragma once

#include <span>
#include <string>

#include "isa/tables.h"

namespace vdev {

// Decodes the instruction at words[0] as a processor with `set` does. `words` reaches to the end of
// the code. On failure the
// result has exec == nullptr, row == nullptr, and `why` says what was not understood.
struct Decoded {
  Inst inst;
  const char* why = "";
};
Decoded decode(std::span<const u32> words, const InstructionSet& set);

// Text exactly as LLVM 22 prints it; branches as a signed dword offset.
std::string disassemble(const Inst& inst);

}  // namespace vdev
