// Operand fields: registers, inline constants and literals.
#include "isa/decoder.h"

namespace vdev {
namespace {

constexpr u32 kFirstVgprCode = 256;
constexpr u16 kFirstAgpr = 256;  // until the kernel's descriptor says which
constexpr u32 kNumUserSgprs = 102;

constexpr bool is_special(u32 code) {
  // Apertures 235..238, vccz, execz, scc. 239 (POPS) is for graphics, 254 (LDS direct) is gone.
  return (code >= 235 && code <= 238) || (code >= 251 && code <= 253);
}
constexpr bool is_inline_integer(u32 code) { return code >= 128 && code <= 208; }
constexpr bool is_inline_float(u32 code) { return code >= 240 && code <= 248; }

// 0.5 -0.5 1 -1 2 -2 4 -4 1/(2*pi), the last as the manual gives it (not rounded in f32 and f64).
constexpr u16 kFloat16[] = {0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118};
constexpr u16 kBfloat16[] = {0x3f00, 0xbf00, 0x3f80, 0xbf80, 0x4000,
                             0xc000, 0x4080, 0xc080, 0x3e22};
constexpr u32 kFloat32[] = {0x3f000000, 0xbf000000, 0x3f800000, 0xbf800000, 0x40000000,
                            0xc0000000, 0x40800000, 0xc0800000, 0x3e22f983};
constexpr u64 kFloat64[] = {0x3fe0000000000000, 0xbfe0000000000000, 0x3ff0000000000000,
                            0xbff0000000000000, 0x4000000000000000, 0xc000000000000000,
                            0x4010000000000000, 0xc010000000000000, 0x3fc45f306dc9c882};

bool is_64bit(const OperandSpec& spec) { return spec.dwords == 2 && spec.type != Type::kPkF32; }

// Integers are sign-extended to all dwords. An f16 or bf16 constant sits in the low half, also for
// packed operands (op_sel_hi = 0 is how code reads it twice); packed integers see f32 bits. A
// packed-f32 operand has its constant in the low dword only, which op_sel_hi = 0 selects for both
// halves.
void expand_inline(Operand& operand, const OperandSpec& spec) {
  const u32 code = operand.code;
  if (is_inline_integer(code)) {
    const i32 value = code <= 192 ? static_cast<i32>(code) - 128 : 192 - static_cast<i32>(code);
    operand.lo = static_cast<u32>(value);
    operand.hi = is_64bit(spec) && value < 0 ? ~0u : 0;
    return;
  }
  const u32 i = code - 240;
  if (spec.type == Type::kF16 || spec.type == Type::kPkF16) {
    operand.lo = kFloat16[i];
  } else if (spec.type == Type::kBf16 || spec.type == Type::kPkBf16) {
    operand.lo = kBfloat16[i];
  } else if (is_64bit(spec)) {
    operand.lo = static_cast<u32>(kFloat64[i]);
    operand.hi = static_cast<u32>(kFloat64[i] >> 32);
  } else {
    operand.lo = kFloat32[i];
  }
}

}  // namespace

Operand Decoder::vgpr(u32 index, u32 dwords, bool acc) {
  need(index + dwords <= 256, "vector registers beyond v255");
  need(dwords < 2 || index % 2 == 0 || row_->is(Trait::kOddResult),
       "a tuple of vector registers starts at an odd register");
  Operand operand;
  operand.kind = acc ? OperandKind::kAgpr : OperandKind::kVgpr;
  operand.base = acc ? kFirstAgpr : 0;
  operand.dwords = static_cast<u8>(dwords);
  operand.index = static_cast<u16>(index);
  operand.code = static_cast<u16>(kFirstVgprCode + index);
  return operand;
}

Operand Decoder::sgpr(u32 index, u32 dwords) {
  const u32 alignment = dwords >= 4 ? 4 : dwords == 2 ? 2 : 1;
  if (index < kNumUserSgprs) {
    need(index % alignment == 0, "a tuple of SGPRs is not aligned");
    need(index + dwords <= kNumUserSgprs, "SGPRs beyond s101");
  } else if (index >= 108 && index < 124) {
    need((index - 108) % alignment == 0, "a tuple of trap temporaries is not aligned");
    need(index + dwords <= 124, "trap temporaries beyond ttmp15");
  } else if (index == 124) {
    need(dwords == 1, "M0 holds 32 bits");
  } else {
    need(index != 125, "register 125 does not exist");
    need(dwords <= 2 && index % alignment == 0, "a special register pair is not aligned");
  }
  Operand operand;
  operand.kind = OperandKind::kSgpr;
  operand.dwords = static_cast<u8>(dwords);
  operand.index = static_cast<u16>(index);
  operand.code = static_cast<u16>(index);
  return operand;
}

Operand Decoder::scalar(u32 code, OperandSpec spec) {
  if (code < 128) return sgpr(code, spec.dwords);
  if (code == kLiteralCode) return literal(spec);
  Operand operand;
  operand.dwords = spec.dwords;
  operand.code = static_cast<u16>(code);
  if (is_special(code)) {
    operand.kind = OperandKind::kSpecial;
    operand.index = static_cast<u16>(code);
    return operand;
  }
  operand.kind = OperandKind::kConst;
  need(is_inline_integer(code) || is_inline_float(code), "unknown source code");
  need(spec.dwords <= 2, "a constant where a register tuple is needed");
  // The assembler writes no such constant: what the hardware reads is not known.
  need(!is_inline_float(code) || !is_integer16(spec.type),
       "a float constant for a 16-bit integer operand");
  if (why_ == nullptr) expand_inline(operand, spec);
  return operand;
}

Operand Decoder::constant(u32 code, OperandSpec spec) {
  need(code < kFirstVgprCode && code != kLiteralCode, "an SGPR or an inline constant is needed");
  return why_ == nullptr ? scalar(code, spec) : Operand{};
}

Operand Decoder::any(u32 code, OperandSpec spec) {
  if (code >= kFirstVgprCode) return vgpr(code - kFirstVgprCode, spec.dwords);
  need(spec.dwords <= 2, "a scalar where a tuple of vector registers is needed");
  return scalar(code, spec);
}

Operand Decoder::literal(OperandSpec spec) {
  if (!literal_used_) literal_ = extra_dword();
  literal_used_ = true;
  Operand operand;
  operand.kind = OperandKind::kConst;
  operand.dwords = spec.dwords;
  operand.code = kLiteralCode;
  operand.lo = literal_;
  need(spec.dwords <= 2, "a literal where a register tuple is needed");
  switch (spec.type) {
    case Type::kF64:
      operand.lo = 0;
      operand.hi = literal_;
      break;
    case Type::kI64:
      operand.hi = static_cast<i32>(literal_) < 0 ? ~0u : 0;
      break;
    case Type::kB16:
    case Type::kF16:
    case Type::kBf16:
    case Type::kI16:
    case Type::kU16:
      // Compilers sign-extend; -16..-1 are inline constants.
      need(literal_ <= 0xffff || (literal_ >= 0xffff8000 && literal_ < 0xfffffff0),
           "a 16-bit literal has more bits");
      break;
    default:
      break;
  }
  return operand;
}

// A dword beyond the instruction's own: literal, DPP or SDWA word.
u32 Decoder::extra_dword() {
  const size_t at = inst_.size;
  if (at >= words_.size()) {
    need(false, "the code ends inside an instruction");
    return 0;
  }
  inst_.words[at] = words_[at];
  ++inst_.size;
  return words_[at];
}

}  // namespace vdev
