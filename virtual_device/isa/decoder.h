// What the decode_*.cc files share: one instruction on its way from words to Inst.
#pragma once

#include <span>

#include "isa/decode.h"

namespace vdev {

// Opcodes whose operands or modifiers the rows' types do not settle.
enum Vop1Opcode : u32 { kVop1Readfirstlane = 0x02, kVop1Swap = 0x51, kVop1AccvgprMov = 0x52 };
enum Vop2Opcode : u32 { kVop2Cndmask = 0x00 };
enum Vop3Opcode : u32 { kVop3Readlane = 0x289, kVop3Writelane = 0x28a };
enum Vop3pOpcode : u32 {
  kVop3pFmaMix = 0x20,
  kVop3pFmaMixhi = 0x22,
  kVop3pAccvgprRead = 0x58,
  kVop3pAccvgprWrite = 0x59,
};
enum DsOpcode : u32 { kDsNop = 0x14, kDsSwizzle = 0x3d };
enum SopkOpcode : u32 { kSopkGetreg = 0x11, kSopkSetreg = 0x12, kSopkSetregImm32 = 0x14 };
enum Sop1Opcode : u32 {
  kSop1Setpc = 0x1d,
  kSop1Rfe = 0x1f,
  kSop1Movrels32 = 0x2a,
  kSop1Movrels64 = 0x2b,
  kSop1CbranchJoin = 0x2e,
};
enum SoppOpcode : u32 {
  kSoppEndpgm = 0x01,
  kSoppWaitcnt = 0x0c,
  kSoppSendmsg = 0x10,
  kSoppSendmsghalt = 0x11,
  kSoppSetGprIdxMode = 0x1d,
};
enum SopcOpcode : u32 { kSopcSetGprIdxOn = 0x11 };

// Source code of a literal; the dword follows the instruction.
inline constexpr u32 kLiteralCode = 255;

// Where VOP1, VOP2 and VOPC begin among the VOP3 opcodes.
inline constexpr u32 kVop3Vop1 = 0x140, kVop3Vop2 = 0x100, kVop3Only = 0x1c0;

constexpr bool is_float(Type type) {
  return type == Type::kF16 || type == Type::kF32 || type == Type::kF64;
}
constexpr bool is_packed_float(Type type) {
  return type == Type::kPkF16 || type == Type::kPkF32 || is_float(type);
}
constexpr bool is_integer16(Type type) {
  return type == Type::kB16 || type == Type::kI16 || type == Type::kU16;
}
// MFMA and SMFMAC: VOP3P with the MAI fields (acc, acc_cd, cbsz, abid, blgp).
constexpr bool is_mai(u32 vop3p_opcode) {
  return vop3p_opcode >= 0x3e && vop3p_opcode != kVop3pAccvgprRead &&
         vop3p_opcode != kVop3pAccvgprWrite;
}
constexpr bool is_smfmac(u32 vop3p_opcode) {
  return (vop3p_opcode >= 0x62 && vop3p_opcode <= 0x6d) || vop3p_opcode >= 0x78;
}
constexpr bool is_f64_mfma(u32 vop3p_opcode) {
  return vop3p_opcode == 0x6e || vop3p_opcode == 0x6f;
}
// Dot products of VOP3P: of halves, and of bytes and nibbles.
constexpr bool is_dot(u32 vop3p_opcode) { return vop3p_opcode >= 0x23 && vop3p_opcode <= 0x2b; }
constexpr bool is_byte_dot(u32 vop3p_opcode) {
  return vop3p_opcode >= 0x28 && vop3p_opcode <= 0x2b;
}
// DS instructions with two 8-bit offsets.
constexpr bool has_two_offsets(u32 ds_opcode) {
  const u32 low = ds_opcode & 0x3f;
  return ds_opcode < 0x80 &&
         (low == 0x0e || low == 0x0f || low == 0x2e || low == 0x2f || low == 0x37 || low == 0x38);
}
// Number of op_sel bits that a VOP3 (not VOP3P) instruction has, destination included; 0: none.
int op_sel_bits(const Row& row);
// Whether the clamp bit means saturation for an instruction with an integer result.
bool has_integer_clamp(const Row& row);
// v_cvt_{f32,pk_f32}_{fp8,bf8}: SDWA selects the byte or half to convert, not a destination.
inline bool is_fp8_conversion(const Row& row) {
  return row.format == Format::kVop1 && row.opcode >= 0x54 && row.opcode <= 0x57;
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
