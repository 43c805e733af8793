// What the print_*.cc files share: the text of one instruction as it grows.
#pragma once

#include <string>
#include <string_view>

#include "isa/inst.h"

namespace vdev {

class Printer {
 public:
  explicit Printer(const Inst& inst) : inst_(inst), row_(*inst.row) {}
  std::string run();

 private:
  // print_scalar.cc
  void sopk();
  void sopc();
  void sopp();
  void smem();
  void hwreg(u32 simm16);
  void sendmsg(u32 simm16);
  void waitcnt(u32 simm16);
  void gpr_idx(u32 bits);
  // print_vector.cc
  void vop();
  void vop3p();
  void mai();
  void vector_operands();
  void source(int i);
  void dpp();
  void sdwa();
  void output_modifiers();
  void bit_list(std::string_view name, u32 bits, int count);
  // print_memory.cc
  void ds();
  void swizzle();
  void flat();
  void buffer();
  void buffer_format();
  void cache_policy();

  // print.cc
  void operand(const Operand& operand, Type type);
  void register_tuple(std::string_view prefix, u32 first, u32 count);
  void literal(u32 value, Type type);
  void branch_target() { number(inst_.imm); }
  // Begins an operand: a space after the mnemonic, else a comma.
  void next() { append(operands_++ == 0 ? " " : ", "); }
  void listed(const Operand& o, Type type) {
    next();
    operand(o, type);
  }
  void append(std::string_view text) { text_ += text; }
  void number(i64 value) { text_ += std::to_string(value); }
  void hex(u64 value);
  // The range of inline constants goes without 0x.
  void short_hex(u64 value) { value <= 64 ? number(static_cast<i64>(value)) : hex(value); }
  void flag(bool on, std::string_view name) {
    if (on) append(" "), append(name);
  }

  const Inst& inst_;
  const Row& row_;
  std::string text_;
  int operands_ = 0;
};

}  // namespace vdev
