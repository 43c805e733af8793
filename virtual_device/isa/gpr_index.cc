#include "isa/gpr_index.h"

namespace vdev {

std::string index_registers(const Wave& wave, Inst& inst) {
  const u32 offset = wave.s[kM0] & 0xff, select = wave.s[kM0] >> 12 & 0xf;
  Operand* const operands[] = {&inst.src[0], &inst.src[1], &inst.src[2], &inst.dst};
  for (u32 i = 0; i < 4; ++i) {
    Operand& operand = *operands[i];
    if (!(select >> i & 1) || !operand.is_vector()) continue;
    if (operand.kind == OperandKind::kAgpr)
      return "GPR index selects an AGPR operand, which no manual describes";
    const u32 last = operand.index + offset + operand.dwords - 1;
    if (last >= wave.num_vector_registers)
      return "GPR index " + std::to_string(offset) + " moves an operand to v" +
             std::to_string(last) + ", beyond the " + std::to_string(wave.num_vector_registers) +
             " registers that the wave has";
    if (last > 255) return "GPR index moves an operand beyond v255";
    operand.index = static_cast<u16>(operand.index + offset);
  }
  return {};
}

}  // namespace vdev
