// Inst to text: dispatch by format, registers and constants.
#include <cstdio>

#include "isa/decode.h"
#include "isa/decoder.h"
#include "isa/printer.h"

namespace vdev {
namespace {

struct NamedPair {
  u16 index;
  const char* name;
};
constexpr NamedPair kNamedPairs[] = {
    {102, "flat_scratch"}, {104, "xnack_mask"}, {106, "vcc"}, {126, "exec"}};

const char* special_name(u32 code) {
  switch (code) {
    case 235: return "src_shared_base";
    case 236: return "src_shared_limit";
    case 237: return "src_private_base";
    case 238: return "src_private_limit";
    case 251: return "src_vccz";
    case 252: return "src_execz";
    default: return "src_scc";
  }
}

constexpr const char* kFloatNames[] = {"0.5", "-0.5", "1.0",  "-1.0",      "2.0",
                                       "-2.0", "4.0",  "-4.0", "0.15915494"};
constexpr u32 kFloatBits32[] = {0x3f000000, 0xbf000000, 0x3f800000, 0xbf800000, 0x40000000,
                                0xc0000000, 0x40800000, 0xc0800000, 0x3e22f983};
constexpr u32 kFloatBits16[] = {0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400,
                                0x3118};

// A literal with the value of an inline constant must be marked, or it would be assembled as one.
bool is_inline_value(u32 literal, Type type) {
  i32 integer = static_cast<i32>(literal);
  bool match = false;
  switch (type) {
    case Type::kF16:
      integer = static_cast<i16>(literal);
      for (const u32 bits : kFloatBits16) match |= bits == literal;
      break;
    case Type::kB16: case Type::kI16: case Type::kU16:
      integer = static_cast<i16>(literal);
      break;
    case Type::kF64:
      // 1/(2*pi) is no candidate: its low dword is not zero.
      match = literal == 0;
      for (const u32 high : {0x3fe00000u, 0x3ff00000u, 0x40000000u, 0x40100000u})
        match |= (literal & 0x7fffffff) == high;
      return match;
    default:
      for (const u32 bits : kFloatBits32) match |= bits == literal;
  }
  return match || (integer >= -16 && integer <= 64);
}

}  // namespace

std::string disassemble(const Inst& inst) { return Printer(inst).run(); }

std::string Printer::run() {
  append(row_.name);
  switch (row_.format) {
    case Format::kSop2:
    case Format::kSop1:
      if (inst_.dst.kind != OperandKind::kNone) listed(inst_.dst, row_.dst.type);
      for (int i = 0; i < 2; ++i)
        if (inst_.src[i].kind != OperandKind::kNone) listed(inst_.src[i], row_.src[i].type);
      break;
    case Format::kSopk: sopk(); break;
    case Format::kSopc: sopc(); break;
    case Format::kSopp: sopp(); break;
    case Format::kSmem: smem(); break;
    case Format::kVop1:
    case Format::kVop2:
    case Format::kVopc:
    case Format::kVop3: vop(); break;
    case Format::kVop3p: is_mai(row_.opcode) ? mai() : vop3p(); break;
    case Format::kDs: ds(); break;
    case Format::kFlat:
    case Format::kScratch:
    case Format::kGlobal: flat(); break;
    case Format::kMubuf:
    case Format::kMtbuf: buffer(); break;
  }
  return std::move(text_);
}

void Printer::hex(u64 value) {
  char buffer[24];
  std::snprintf(buffer, sizeof buffer, "0x%llx", static_cast<unsigned long long>(value));
  append(buffer);
}

void Printer::register_tuple(std::string_view prefix, u32 first, u32 count) {
  append(prefix);
  if (count == 1) return number(first);
  append("[");
  number(first);
  append(":");
  number(first + count - 1);
  append("]");
}

void Printer::literal(u32 value, Type type) {
  const bool marked = is_inline_value(value, type);
  if (marked) append("lit(");
  hex(value);
  if (marked) append(")");
}

void Printer::operand(const Operand& o, Type type) {
  switch (o.kind) {
    case OperandKind::kNone: break;
    case OperandKind::kOff: append("off"); break;
    case OperandKind::kVgpr: register_tuple("v", o.index, o.dwords); break;
    case OperandKind::kAgpr: register_tuple("a", o.index, o.dwords); break;
    case OperandKind::kSpecial: append(special_name(o.index)); break;
    case OperandKind::kSgpr:
      if (o.index == 124) return append("m0");
      if (o.index >= 108 && o.index < 124) return register_tuple("ttmp", o.index - 108, o.dwords);
      if (o.index < 102) return register_tuple("s", o.index, o.dwords);
      for (const NamedPair& pair : kNamedPairs)
        if (o.index >> 1 == pair.index >> 1) {
          append(pair.name);
          if (o.dwords == 1) append(o.index & 1 ? "_hi" : "_lo");
        }
      break;
    case OperandKind::kConst:
      if (o.code == 255) {
        literal(type == Type::kF64 ? o.hi : o.lo, type);
      } else if (o.code >= 240) {
        append(kFloatNames[o.code - 240]);
        if (o.code == 248 && o.dwords == 2 && type != Type::kPkF32) append("309189532");
      } else {
        number(static_cast<i32>(o.lo));
      }
      break;
  }
}

}  // namespace vdev
