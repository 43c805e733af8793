// Text of the vector ALU formats.
#include "isa/decoder.h"
#include "isa/printer.h"

namespace vdev {
namespace {

constexpr const char* kSelectNames[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3",
                                        "WORD_0", "WORD_1", "DWORD"};
constexpr const char* kUnusedNames[] = {"UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"};

// Without a second form there is nothing for a suffix to tell apart.
bool has_one_form(const Row& row) {
  if (row.format == Format::kVop1) return row.is(Trait::kShortOnly) || !row.src[0].used();
  return row.format == Format::kVop3 || row.src[1].type == Type::kImm ||
         row.src[2].type == Type::kImm;
}

}  // namespace

void Printer::bit_list(std::string_view name, u32 bits, int count) {
  append(" ");
  append(name);
  append(":[");
  for (int i = 0; i < count; ++i) {
    if (i) append(",");
    number(bits >> i & 1);
  }
  append("]");
}

void Printer::source(int i) {
  const Operand& o = inst_.src[i];
  const bool negated = inst_.neg >> i & 1, absolute = inst_.abs >> i & 1;
  const bool extended = inst_.sext >> i & 1;
  // -1 is another number than neg(1).
  const bool call = negated && o.kind == OperandKind::kConst && !absolute;
  next();
  if (negated) append(call ? "neg(" : "-");
  if (absolute) append("|");
  if (extended) append("sext(");
  operand(o, row_.src[i].type);
  if (extended) append(")");
  if (absolute) append("|");
  if (call) append(")");
}

void Printer::vector_operands() {
  if (inst_.dst.kind != OperandKind::kNone) listed(inst_.dst, row_.dst.type);
  if (inst_.sdst.kind != OperandKind::kNone) listed(inst_.sdst, Type::kMask);
  for (int i = 0; i < num_sources(row_); ++i) source(i);
}

void Printer::output_modifiers() {
  constexpr const char* kOmod[] = {"", " mul:2", " mul:4", " div:2"};
  flag(inst_.clamp, "clamp");
  append(kOmod[inst_.omod]);
}

void Printer::vop() {
  if (inst_.suffix == Suffix::kDpp)
    append("_dpp");
  else if (inst_.suffix == Suffix::kSdwa)
    append("_sdwa");
  else if (!has_one_form(row_))
    append(inst_.encoding == Format::kVop3 ? "_e64" : "_e32");
  vector_operands();
  if (inst_.suffix == Suffix::kDpp) return dpp();
  if (row_.is(Trait::kTruthTable) && inst_.imm != 0) {
    append(" bitop3:");
    hex(static_cast<u32>(inst_.imm));
  }
  if (row_.is(Trait::kSwapsRows)) {
    flag(inst_.op_sel >> 1 & 1, "bound_ctrl:1");
    flag(inst_.op_sel & 1, "fi:1");
    return;
  }
  if (const int n = row_.op_sel_bits; n != 0 && inst_.op_sel != 0)
    bit_list("op_sel", n == 3 ? (inst_.op_sel & 3u) | (inst_.op_sel >> 3) << 2 : inst_.op_sel, n);
  output_modifiers();
  if (inst_.suffix == Suffix::kSdwa) sdwa();
}

void Printer::dpp() {
  const u32 ctrl = inst_.dpp_ctrl;
  const auto with_number = [&](const char* name, u32 value) {
    append(" ");
    append(name);
    append(":");
    number(value);
  };
  if (ctrl <= 0xff) {
    append(" quad_perm:[");
    for (int i = 0; i < 4; ++i) {
      if (i) append(",");
      number(ctrl >> (2 * i) & 3);
    }
    append("]");
  } else if (ctrl <= 0x10f) {
    with_number("row_shl", ctrl & 0xf);
  } else if (ctrl <= 0x11f) {
    with_number("row_shr", ctrl & 0xf);
  } else if (ctrl <= 0x12f) {
    with_number("row_ror", ctrl & 0xf);
  } else if (ctrl >= 0x150) {
    with_number("row_newbcast", ctrl & 0xf);
  } else {
    switch (ctrl) {
      case 0x130:
        append(" wave_shl:1");
        break;
      case 0x134:
        append(" wave_rol:1");
        break;
      case 0x138:
        append(" wave_shr:1");
        break;
      case 0x13c:
        append(" wave_ror:1");
        break;
      case 0x140:
        append(" row_mirror");
        break;
      case 0x141:
        append(" row_half_mirror");
        break;
      case 0x142:
        append(" row_bcast:15");
        break;
      default:
        append(" row_bcast:31");
        break;
    }
  }
  append(" row_mask:");
  hex(inst_.row_mask);
  append(" bank_mask:");
  hex(inst_.bank_mask);
  flag(inst_.bound_ctrl, "bound_ctrl:1");
}

void Printer::sdwa() {
  const auto select = [&](const char* name, u8 value) {
    append(name);
    append(kSelectNames[value]);
  };
  if (row_.format != Format::kVopc && !row_.is(Trait::kSelectsByte)) {
    select(" dst_sel:", inst_.dst_sel);
    append(" dst_unused:");
    append(kUnusedNames[inst_.dst_unused]);
  }
  select(" src0_sel:", inst_.src_sel[0]);
  if (num_sources(row_) > 1) select(" src1_sel:", inst_.src_sel[1]);
}

void Printer::vop3p() {
  const bool mix = row_.is(Trait::kMix);
  const int n = num_sources(row_);
  const u32 all = (1u << n) - 1;
  if (inst_.dst.kind != OperandKind::kNone) listed(inst_.dst, row_.dst.type);
  for (int i = 0; i < n; ++i) mix ? source(i) : listed(inst_.src[i], row_.src[i].type);
  if (row_.is(Trait::kAgprSource | Trait::kAgprResult)) return;
  if (inst_.op_sel != 0) bit_list("op_sel", inst_.op_sel, n);
  if (inst_.op_sel_hi != (mix ? 0 : all)) bit_list("op_sel_hi", inst_.op_sel_hi, n);
  if (!mix && inst_.neg != 0) bit_list("neg_lo", inst_.neg, n);
  if (inst_.neg_hi != 0) bit_list("neg_hi", inst_.neg_hi, n);
  flag(inst_.clamp, "clamp");
}

void Printer::mai() {
  listed(inst_.dst, row_.dst.type);
  for (int i = 0; i < 5 && row_.src[i].used(); ++i) listed(inst_.src[i], row_.src[i].type);
  if (row_.src[3].used()) {  // bits of the scales' bytes; the list has an element for C
    if (inst_.op_sel != 0) bit_list("op_sel", inst_.op_sel, 3);
    bit_list("op_sel_hi", inst_.op_sel_hi, 3);
  }
  const auto field = [&](const char* name, u32 value) {
    if (value == 0) return;
    append(name);
    number(value);
  };
  field(" cbsz:", inst_.cbsz);
  field(" abid:", inst_.abid);
  field(" blgp:", inst_.blgp);
  if (inst_.neg != 0) bit_list("neg", inst_.neg, 3);
}

}  // namespace vdev
