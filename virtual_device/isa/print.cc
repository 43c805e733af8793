// Inst to text: dispatch by format, registers and constants.
#include <cstdio>
#include <iterator>

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
    case 235:
      return "src_shared_base";
    case 236:
      return "src_shared_limit";
    case 237:
      return "src_private_base";
    case 238:
      return "src_private_limit";
    case 251:
      return "src_vccz";
    case 252:
      return "src_execz";
    default:
      return "src_scc";
  }
}

constexpr const char* kFloatNames[] = {"0.5",  "-0.5", "1.0",  "-1.0",      "2.0",
                                       "-2.0", "4.0",  "-4.0", "0.15915494"};
constexpr u32 kFloatBits32[] = {0x3f000000, 0xbf000000, 0x3f800000, 0xbf800000, 0x40000000,
                                0xc0000000, 0x40800000, 0xc0800000, 0x3e22f983};
constexpr u32 kFloatBits16[] = {0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000,
                                0xc000, 0x4400, 0xc400, 0x3118};
constexpr u32 kFloatBitsBf16[] = {0x3f00, 0xbf00, 0x3f80, 0xbf80, 0x4000,
                                  0xc000, 0x4080, 0xc080, 0x3e22};

bool is_inline_integer(i32 value) { return value >= -16 && value <= 64; }
template <size_t N>
bool is_one_of(u32 bits, const u32 (&set)[N]) {
  for (const u32 x : set)
    if (x == bits) return true;
  return false;
}

// A literal with the value of an inline constant must be marked, or its text would be assembled
// as that. (LLVM forgets it for f64, where its text assembles to something shorter.)
bool needs_mark(u32 literal, Type type) {
  const i32 value = static_cast<i32>(literal);
  switch (type) {
    case Type::kF64:
    case Type::kB64:
    case Type::kI64:
    case Type::kU64:
      return literal <= 64;  // not sign-extended before the comparison
    case Type::kF16:
      return is_inline_integer(static_cast<i16>(literal)) ||
             is_one_of(literal & 0xffff, kFloatBits16);
    case Type::kPkF16:
      return is_inline_integer(value) || is_one_of(literal, kFloatBits16);
    case Type::kBf16:
      return is_inline_integer(static_cast<i16>(literal)) ||
             is_one_of(literal & 0xffff, kFloatBitsBf16);
    case Type::kPkBf16:
      return is_inline_integer(value) || is_one_of(literal, kFloatBitsBf16);
    case Type::kImm:
      return false;
    default:
      return is_inline_integer(value) || is_one_of(literal, kFloatBits32);
  }
}
constexpr bool is_16bit(Type type) {
  return type == Type::kB16 || type == Type::kF16 || type == Type::kBf16 || type == Type::kI16 ||
         type == Type::kU16;
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
    case Format::kSopk:
      sopk();
      break;
    case Format::kSopc:
      sopc();
      break;
    case Format::kSopp:
      sopp();
      break;
    case Format::kSmem:
      smem();
      break;
    case Format::kVop1:
    case Format::kVop2:
    case Format::kVopc:
    case Format::kVop3:
      vop();
      break;
    case Format::kVop3p:
      is_matrix(row_.unit) ? mai() : vop3p();
      break;
    case Format::kDs:
      ds();
      break;
    case Format::kFlat:
    case Format::kScratch:
    case Format::kGlobal:
      flat();
      break;
    case Format::kMubuf:
    case Format::kMtbuf:
      buffer();
      break;
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
  if (needs_mark(value, type)) {
    append("lit(");
    hex(value);
    append(")");
  } else {
    hex(is_16bit(type) ? value & 0xffff : value);
  }
}

void Printer::operand(const Operand& o, Type type) {
  switch (o.kind) {
    case OperandKind::kNone:
      break;
    case OperandKind::kOff:
      append("off");
      break;
    case OperandKind::kVgpr:
      register_tuple("v", o.index, o.dwords);
      break;
    case OperandKind::kAgpr:
      register_tuple("a", o.index, o.dwords);
      break;
    case OperandKind::kSpecial:
      append(special_name(o.index));
      break;
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
