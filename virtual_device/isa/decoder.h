// What the decode_*.cc files share: one instruction on its way from words to Inst.
#pragma once

#include <span>

#include "isa/decode.h"

namespace vdev {

// Source code of a literal; the dword follows the instruction.
inline constexpr u32 kLiteralCode = 255;

// Where VOP1, VOP2 and VOPC begin among the VOP3 opcodes.
inline constexpr u32 kVop3Vop1 = 0x140, kVop3Vop2 = 0x100, kVop3Only = 0x1c0;

// v_mfma_ld_scale_b32, the first half of block-scaled matrix instructions.
inline constexpr u32 kLoadScale = 0x2c;

constexpr bool is_float(Type type) {
  return type == Type::kF16 || type == Type::kBf16 || type == Type::kF32 || type == Type::kF64;
}
constexpr bool is_packed_float(Type type) {
  return type == Type::kPkF16 || type == Type::kPkBf16 || type == Type::kPkF32 || is_float(type);
}
constexpr bool is_integer16(Type type) {
  return type == Type::kB16 || type == Type::kI16 || type == Type::kU16;
}
int num_sources(const Row& row);

// One instruction. Refused is what the assembler cannot write: reserved bits, tuples off their
// alignment, more scalars than the constant bus carries, modifiers that mean nothing for the type.
// Beyond the conventions of Inst: s_setreg_imm32 has its dword in src[1]; v_fma_mix has abs where
// packed instructions have neg_hi; f64 MFMA has neg where others have blgp.
class Decoder {
 public:
  Decoder(std::span<const u32> words, const InstructionSet& set) : words_(words), set_(set) {}
  Decoded run();

 private:
  using Step = void (Decoder::*)();

  // decode.cc
  void select(Format format, u32 opcode, int dwords, Step step);
  void dispatch();
  void sop2();
  void sopk();
  void sop1();
  void sopc();
  void sopp();
  // decode_vector.cc, decode_vop3.cc, decode_modifiers.cc
  void vop1();
  void vop2();
  void vopc();
  void vop3();
  void vop3p();
  void mai();
  void scaled_mai();
  void accvgpr();
  void vector_destination(u32 code);
  void lane_destination(u32 code);
  void short_source0(u32 code);
  void implicit_vcc();
  void dpp();
  void sdwa();
  void sdwa_source(int i, u32 code, bool scalar, u32 modifiers);
  void vop3_modifiers();
  void check_modifiers();
  void check_constant_bus();
  void find_plain();
  // decode_memory.cc
  void smem();
  void ds();
  void flat();
  void buffer();
  void vgpr_field(Operand& out, int low, const OperandSpec& spec, bool acc);

  // decode_operand.cc
  Operand vgpr(u32 index, u32 dwords, bool acc = false);
  Operand sgpr(u32 index, u32 dwords);
  Operand mask(u32 index) { return sgpr(index, 2); }
  // An 8-bit scalar source, and a 9-bit one that may be a VGPR.
  Operand scalar(u32 code, OperandSpec spec);
  Operand any(u32 code, OperandSpec spec);
  // SGPR, M0, VCC, EXEC or an integer constant: lane selects, SMEM offsets.
  Operand constant(u32 code, OperandSpec spec);
  Operand literal(OperandSpec spec);

  // Bits [low, low + width) of the first two dwords.
  u32 field(int low, int width) const {
    return static_cast<u32>(code_ >> low) & static_cast<u32>((u64{1} << width) - 1);
  }
  bool bit(int position) const { return field(position, 1) != 0; }
  // The first unmet need is the reported one; decoding goes on, harmlessly.
  void need(bool ok, const char* why) {
    if (!ok && why_ == nullptr) why_ = why;
  }
  void reserved(int low, int width) { need(field(low, width) == 0, "reserved bits are set"); }
  u32 extra_dword();

  std::span<const u32> words_;
  const InstructionSet& set_;
  u64 code_ = 0;
  Inst inst_;
  const Row* row_ = nullptr;
  const char* why_ = nullptr;
  bool literal_used_ = false;
  u32 literal_ = 0;
};

}  // namespace vdev
