// VOP1, VOP2, VOPC and their DPP and SDWA forms; VOP3, VOP3P and MAI.
#include <bit>
#include <initializer_list>

#include "isa/decoder.h"

namespace vdev {
namespace {

constexpr u32 kVccIndex = 106, kM0Index = 124;
constexpr u32 kSdwaCode = 249, kDppCode = 250, kLiteralCode = 255;

// Cross-lane patterns of DPP; row_newbcast is the only one for 64-bit data.
constexpr bool is_row_newbcast(u32 ctrl) { return ctrl >= 0x150 && ctrl <= 0x15f; }
constexpr bool is_dpp_ctrl(u32 ctrl) {
  if (ctrl <= 0xff || is_row_newbcast(ctrl)) return true;
  if (ctrl >= 0x101 && ctrl <= 0x12f) return (ctrl & 0xf) != 0;
  return ctrl == 0x130 || ctrl == 0x134 || ctrl == 0x138 || ctrl == 0x13c ||
         (ctrl >= 0x140 && ctrl <= 0x143);
}

bool has_64bit_operand(const Row& row) {
  const auto wide = [](const OperandSpec& s) { return s.dwords >= 2 && s.type != Type::kMask; };
  return wide(row.dst) || wide(row.src[0]) || wide(row.src[1]) || wide(row.src[2]);
}

bool is_cndmask(const Row& row) {
  return row.format == Format::kVop2 && row.opcode == kVop2Cndmask;
}

}  // namespace

int num_sources(const Row& row) {
  int n = 0;
  while (n < 3 && row.src[n].used()) ++n;
  return n;
}

// Only VOP3-only instructions have op_sel, and of these the ones with 16-bit data (without the
// _legacy_ names of gfx8, 0x1ea..0x1ef) and a few with byte data.
int op_sel_bits(const Row& row) {
  if (row.format != Format::kVop3) return 0;
  switch (row.opcode) {
    case 0x1ce: case 0x1cf:                                // v_alignbit_b32, v_alignbyte_b32
    case 0x2a4: case 0x2a5:                                // v_cvt_sr_fp8_f32, _bf8_
      return 4;
    case 0x299: case 0x29a: case 0x29e: case 0x29f:        // v_cvt_pknorm_*_f16, v_*_i16
    case 0x2a0: case 0x2a2: case 0x2a3:                    // v_pack_b32_f16, v_cvt_pk_fp8_f32
      return 3;
    default:
      return row.opcode == 0x1f1 || row.opcode == 0x1f2 ||        // v_mad_{u32_u16,i32_i16}
                     (row.opcode >= 0x1f4 && row.opcode <= 0x1fc) ||  // v_{min3,max3,med3}_*16
                     (row.opcode >= 0x203 && row.opcode <= 0x207)     // v_mad_*, v_fma_f16, ...
                 ? 4
                 : 0;
  }
}

bool has_integer_clamp(const Row& row) {
  const auto one_of = [&](std::initializer_list<u32> opcodes) {
    for (const u32 opcode : opcodes)
      if (opcode == row.opcode) return true;
    return false;
  };
  if (row.format == Format::kVop2)
    return one_of({0x06, 0x08,                                // v_mul_{i32_i24,u32_u24}
                   0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e,        // v_{add,sub,subrev,...}_co_u32
                   0x26, 0x27, 0x28, 0x34, 0x35, 0x36,        // v_{add,sub,subrev}_{u16,u32}
                   0x38, 0x39, 0x3a});                        // v_dot*c_i32_*
  if (row.format == Format::kVop3)
    return one_of({0x1c2, 0x1c3,                              // v_mad_{i32_i24,u32_u24}
                   0x1d9, 0x1da, 0x1db, 0x1dc, 0x1dd, 0x1e4,  // v_{sad,msad}_*, v_cvt_pk_u8_f32
                   0x1e5, 0x1e6, 0x1e7, 0x1e8, 0x1e9,         // v_{qsad,mqsad}_*, v_mad_*64_*32
                   0x1eb, 0x1ec, 0x1f1, 0x1f2,                // v_mad_legacy_*16, v_mad_*32_*16
                   0x1f5, 0x1f6, 0x1f8, 0x1f9, 0x1fb, 0x1fc,  // v_{min3,max3,med3}_*16
                   0x204, 0x205, 0x29c, 0x29d, 0x29e, 0x29f});
  return false;
}

void Decoder::lane_destination(u32 code) {
  need(code < 128 && code != kM0Index, "the destination is an SGPR other than M0");
  if (why_ == nullptr) inst_.dst = sgpr(code, 1);
}

void Decoder::vector_destination(u32 code) {
  if (row_->format == Format::kVop1 && row_->opcode == kVop1Readfirstlane) {
    lane_destination(code);
  } else if (row_->dst.used()) {
    const bool acc = row_->format == Format::kVop1 && row_->opcode == kVop1AccvgprMov;
    inst_.dst = vgpr(code, row_->dst.dwords, acc);
  } else {
    need(code == 0, "reserved bits are set");
  }
}

// The short forms take carry-in from VCC and write masks to it.
void Decoder::implicit_vcc() {
  if (row_->sdst.used()) inst_.sdst = mask(kVccIndex);
  if (row_->src[2].type == Type::kMask) inst_.src[2] = mask(kVccIndex);
}

void Decoder::short_source0(u32 code) {
  if (code == kDppCode) return dpp();
  if (code == kSdwaCode) return sdwa();
  if (!row_->src[0].used()) return need(code == 0, "reserved bits are set");
  if (row_->format == Format::kVop1 && row_->opcode == kVop1AccvgprMov) {
    need(code >= 256, "the source is an AGPR");
    inst_.src[0] = vgpr(code & 0xff, 1, true);
    return;
  }
  const bool vector_only = row_->format == Format::kVop1 && (row_->opcode == kVop1Readfirstlane ||
                                                             row_->opcode == kVop1Swap);
  need(!vector_only || code >= 256, "the source is a vector register");
  inst_.src[0] = any(code, row_->src[0]);
}

void Decoder::vop1() {
  vector_destination(field(17, 8));
  implicit_vcc();
  short_source0(field(0, 9));
  find_plain();
}

void Decoder::vop2() {
  vector_destination(field(17, 8));
  implicit_vcc();
  const u32 src1 = field(9, 8);
  const u32 code = field(0, 9);
  if (row_->src[1].type == Type::kImm || row_->src[2].type == Type::kImm) {
    // v_fmamk_f32 dst, src0, K, src1 and v_fmaak_f32 dst, src0, src1, K.
    need(code != kDppCode && code != kSdwaCode, "no DPP or SDWA form");
    const int k = row_->src[1].type == Type::kImm ? 1 : 2;
    inst_.src[k] = literal(row_->src[0]);
    need(row_->src[0].type != Type::kF16 || inst_.src[k].lo <= 0xffff,
         "a 16-bit literal has more bits");
    inst_.src[3 - k] = vgpr(src1, row_->src[3 - k].dwords);
  } else if (code != kSdwaCode) {
    inst_.src[1] = vgpr(src1, row_->src[1].dwords);
  }
  short_source0(code);
  check_constant_bus();
  find_plain();
}

void Decoder::vopc() {
  inst_.sdst = mask(kVccIndex);
  const u32 code = field(0, 9);
  need(code != kDppCode, "VOPC has no DPP form");
  if (code != kSdwaCode) inst_.src[1] = vgpr(field(9, 8), row_->src[1].dwords);
  short_source0(code);
  check_constant_bus();
  find_plain();
}

void Decoder::dpp() {
  const u32 w = extra_dword();
  inst_.suffix = Suffix::kDpp;
  need(!(row_->effects & kNoDpp) && row_->src[0].used(), "no DPP form");
  inst_.src[0] = vgpr(w & 0xff, row_->src[0].dwords);
  inst_.dpp_ctrl = static_cast<u16>(w >> 8 & 0x1ff);
  need(is_dpp_ctrl(inst_.dpp_ctrl), "unknown dpp_ctrl");
  need(!has_64bit_operand(*row_) || is_row_newbcast(inst_.dpp_ctrl),
       "DPP of 64-bit data knows only row_newbcast");
  need((w >> 17 & 3) == 0, "reserved bits are set");
  inst_.bound_ctrl = w >> 19 & 1;
  inst_.neg = static_cast<u8>((w >> 20 & 1) | (w >> 22 & 1) << 1);
  inst_.abs = static_cast<u8>((w >> 21 & 1) | (w >> 23 & 1) << 1);
  inst_.bank_mask = w >> 24 & 0xf;
  inst_.row_mask = static_cast<u8>(w >> 28);
  check_modifiers();
}

void Decoder::sdwa() {
  const u32 w = extra_dword();
  inst_.suffix = Suffix::kSdwa;
  const bool two = num_sources(*row_) > 1;
  need(!(row_->effects & (kNoSdwa | kReadsDst)) && row_->src[0].used(), "no SDWA form");
  if (row_->format == Format::kVopc) {
    if (w >> 15 & 1) {
      inst_.sdst = mask(w >> 8 & 0x7f);
    } else {
      need((w >> 8 & 0x7f) == 0, "reserved bits are set");
    }
  } else {
    inst_.dst_sel = w >> 8 & 7;
    inst_.dst_unused = w >> 11 & 3;
    inst_.clamp = w >> 13 & 1;
    inst_.omod = w >> 14 & 3;
    need(inst_.dst_sel < 7 && inst_.dst_unused < 3, "unknown SDWA select");
    need(!is_fp8_conversion(*row_) ||
             (inst_.dst_sel == 6 && inst_.dst_unused == 0 && (w >> 19 & 1) == 0),
         "a modifier that a conversion of 8-bit floats lacks");
  }
  need((w >> 22 & 1) == 0 && (w >> 30 & 1) == 0, "reserved bits are set");
  sdwa_source(0, w & 0xff, w >> 23 & 1, w >> 16 & 0x3f);
  if (two) {
    sdwa_source(1, field(9, 8), w >> 31, w >> 24 & 0x3f);
  } else {
    need(w >> 24 == 0, "reserved bits are set");
  }
  check_modifiers();
}

// `modifiers`: select in bits 0..2, sext 3, neg 4, abs 5.
void Decoder::sdwa_source(int i, u32 code, bool is_scalar, u32 modifiers) {
  need(!is_scalar || code != kLiteralCode, "SDWA takes no literal");
  if (why_ != nullptr) return;
  inst_.src[i] =
      is_scalar ? scalar(code, row_->src[i]) : vgpr(code, row_->src[i].dwords);
  inst_.src_sel[i] = modifiers & 7;
  need(inst_.src_sel[i] < 7, "unknown SDWA select");
  inst_.sext |= static_cast<u8>((modifiers >> 3 & 1) << i);
  inst_.neg |= static_cast<u8>((modifiers >> 4 & 1) << i);
  inst_.abs |= static_cast<u8>((modifiers >> 5 & 1) << i);
}

void Decoder::vop3() {
  inst_.encoding = Format::kVop3;
  const u32 opcode = row_->opcode;
  const bool vop3_only = row_->format == Format::kVop3;
  need(row_->format != Format::kVop1 ||
           (opcode != kVop1Readfirstlane && opcode != kVop1Swap && opcode != kVop1AccvgprMov),
       "no VOP3 form");
  need(row_->src[1].type != Type::kImm && row_->src[2].type != Type::kImm, "no VOP3 form");
  if (row_->format == Format::kVopc) {
    need(!bit(7), "the destination is an SGPR pair");
    inst_.sdst = mask(field(0, 7));
  } else if (vop3_only && opcode == kVop3Readlane) {
    lane_destination(field(0, 8));
  } else {
    vector_destination(field(0, 8));
  }
  if (row_->sdst.used() && row_->format != Format::kVopc) {
    inst_.sdst = mask(field(8, 7));
  } else {
    inst_.abs = static_cast<u8>(field(8, 3));
    inst_.op_sel = static_cast<u8>(field(11, 4));
  }
  for (int i = 0; i < 3; ++i) {
    const u32 code = field(32 + 9 * i, 9);
    const OperandSpec& spec = row_->src[i];
    need(code != kLiteralCode, "VOP3 takes no literal");
    if (why_ != nullptr) return;
    if (!spec.used()) {
      need(code == 0, "reserved bits are set");
    } else if (spec.type == Type::kMask) {
      need(code < 128, "the mask is an SGPR pair");
      inst_.src[i] = mask(code & 0x7f);
    } else if (vop3_only && ((opcode == kVop3Readlane && i == 1) || opcode == kVop3Writelane)) {
      inst_.src[i] = constant(code, spec);
    } else {
      need(!(vop3_only && opcode == kVop3Readlane) || code >= 256,
           "the source is a vector register");
      inst_.src[i] = any(code, spec);
    }
  }
  inst_.clamp = bit(15);
  inst_.omod = static_cast<u8>(field(59, 2));
  inst_.neg = static_cast<u8>(field(61, 3));
  check_modifiers();
  check_constant_bus();
  find_plain();
}

void Decoder::vop3p() {
  inst_.dst = vgpr(field(0, 8), row_->dst.dwords);
  const bool mix = row_->opcode >= kVop3pFmaMix && row_->opcode <= kVop3pFmaMixhi;
  const int n = num_sources(*row_);
  for (int i = 0; i < 3; ++i) {
    const u32 code = field(32 + 9 * i, 9);
    need(code != kLiteralCode, "VOP3P takes no literal");
    if (why_ != nullptr) return;
    if (i < n) {
      // Which float type a source of v_fma_mix has, op_sel_hi says; constants expand by that.
      const bool half = mix && (field(59, 2) | field(14, 1) << 2) >> i & 1;
      inst_.src[i] = any(code, half ? OperandSpec(Type::kF16) : row_->src[i]);
    } else {
      need(code == 0, "reserved bits are set");
    }
  }
  const u8 used = static_cast<u8>((1 << n) - 1);
  inst_.op_sel = static_cast<u8>(field(11, 3));
  inst_.op_sel_hi = static_cast<u8>((field(59, 2) | field(14, 1) << 2) & used);
  inst_.clamp = bit(15);
  inst_.neg = static_cast<u8>(field(61, 3));
  (mix ? inst_.abs : inst_.neg_hi) = static_cast<u8>(field(8, 3));
  const u8 modified = inst_.neg | inst_.abs | inst_.neg_hi;
  need(((inst_.op_sel | modified) & ~used) == 0,
       "a modifier of an operand that does not exist");
  for (int i = 0; i < n; ++i)
    need(mix || !(modified >> i & 1) || is_packed_float(row_->src[i].type),
         "neg of an operand that is no float");
  if (is_dot(row_->opcode)) {
    need(inst_.op_sel == 0, "op_sel of a dot product");
    if (is_byte_dot(row_->opcode)) inst_.op_sel_hi = used;  // not looked at
    need(inst_.op_sel_hi == used, "op_sel_hi of a dot product");
  }
  check_constant_bus();
  find_plain();
}

void Decoder::accvgpr() {
  const bool read = row_->opcode == kVop3pAccvgprRead;
  inst_.dst = vgpr(field(0, 8), 1, !read);
  const u32 code = field(32, 9);
  need(!read || code >= 256, "the source is an AGPR");
  need(code != kLiteralCode, "VOP3P takes no literal");
  reserved(8, 6);
  reserved(15, 1);
  reserved(41, 18);
  reserved(61, 3);
  if (why_ == nullptr) inst_.src[0] = read ? vgpr(code & 0xff, 1, true) : any(code, Type::kB32);
}

void Decoder::mai() {
  const bool acc_cd = bit(15);
  inst_.dst = vgpr(field(0, 8), row_->dst.dwords, acc_cd);
  for (int i = 0; i < 2; ++i) {
    const u32 code = field(32 + 9 * i, 9);
    need(code >= 256, "A and B are vector registers");
    inst_.src[i] = vgpr(code & 0xff, row_->src[i].dwords, bit(59 + i));
  }
  const u32 c = field(50, 9);
  if (is_smfmac(row_->opcode)) {
    need(c >= 256, "the sparsity index is a VGPR");
    inst_.src[2] = vgpr(c & 0xff, 1);
    reserved(61, 3);
  } else if (c >= 256) {
    inst_.src[2] = vgpr(c & 0xff, row_->src[2].dwords, acc_cd);
  } else {
    // One element's constant, which every element of C then has.
    need(c >= 128 && c != kLiteralCode, "C is a vector register or an inline constant");
    const Type element = is_f64_mfma(row_->opcode) ? Type::kF64 : Type::kF32;
    if (why_ == nullptr) inst_.src[2] = scalar(c, element);
    need(inst_.src[2].kind == OperandKind::kConst, "C is a vector register or an inline constant");
  }
  const bool partial_overlap =
      inst_.dst.dwords > 4 && inst_.src[2].kind == inst_.dst.kind &&
      inst_.src[2].index != inst_.dst.index &&
      inst_.src[2].index < inst_.dst.index + inst_.dst.dwords &&
      inst_.dst.index < inst_.src[2].index + inst_.src[2].dwords;
  need(!partial_overlap || is_smfmac(row_->opcode), "C overlaps a part of D");
  inst_.cbsz = static_cast<u8>(field(8, 3));
  inst_.abid = static_cast<u8>(field(11, 4));
  // The f64 forms negate A, B, C with the bits that elsewhere permute B.
  (is_f64_mfma(row_->opcode) ? inst_.neg : inst_.blgp) = static_cast<u8>(field(61, 3));
  find_plain();
}

// Modifiers that mean nothing for the operand's type; the assembler refuses them too.
void Decoder::check_modifiers() {
  const int n = num_sources(*row_);
  for (int i = 0; i < 3; ++i) {
    const bool modified = ((inst_.neg | inst_.abs) >> i & 1) != 0;
    const bool floating = i < n && is_float(row_->src[i].type);
    need(!modified || floating, "neg or abs of an operand that is no float");
    need(!(inst_.sext >> i & 1) || !floating, "sext of a float");
  }
  const bool float_result = !is_cndmask(*row_) &&
                            (is_float(row_->dst.type) || row_->dst.type == Type::kPkF16);
  const bool float_compare = row_->format == Format::kVopc && is_float(row_->src[0].type);
  need(inst_.omod == 0 || float_result, "omod of an integer");
  need(!inst_.clamp || float_result || float_compare || has_integer_clamp(*row_) ||
           inst_.suffix == Suffix::kSdwa,
       "clamp of an instruction that does not saturate");
  const int halves = op_sel_bits(*row_);  // three: two sources, and the result in bit 3
  need((inst_.op_sel & ~(halves == 4 ? 0xf : halves == 3 ? 0xb : 0)) == 0,
       "op_sel of an operand that has no halves");
}

// A VALU instruction reads one SGPR (or pair, VCC among them) or one literal.
void Decoder::check_constant_bus() {
  u32 seen[4];
  int n = 0;
  const auto count = [&](u32 key) {
    for (int i = 0; i < n; ++i)
      if (seen[i] == key) return;
    seen[n++] = key;
  };
  const bool writelane = row_->format == Format::kVop3 && row_->opcode == kVop3Writelane;
  if (row_->effects & kReadsVcc) count(kVccIndex | 2u << 16);
  for (int i = 0; i < 3; ++i) {
    const Operand& s = inst_.src[i];
    if (writelane && i == 1 && s.index == kM0Index) continue;  // the lane select has its own path
    if (s.kind == OperandKind::kSgpr) count(s.index | static_cast<u32>(s.dwords) << 16);
    if (s.kind == OperandKind::kSpecial) count(s.code);
    if (s.kind == OperandKind::kConst && s.code == kLiteralCode) count(kLiteralCode);
  }
  need(n <= 1, "more than one SGPR or literal is read");
}

void Decoder::find_plain() {
  const bool packed = inst_.encoding == Format::kVop3p && !is_mai(row_->opcode) &&
                      !(row_->opcode >= kVop3pFmaMix && row_->opcode <= kVop3pFmaMixhi);
  const u8 default_op_sel_hi = packed ? static_cast<u8>((1 << num_sources(*row_)) - 1) : 0;
  inst_.plain = inst_.suffix == Suffix::kPlain && !inst_.clamp &&
                (inst_.neg | inst_.abs | inst_.op_sel | inst_.neg_hi | inst_.omod | inst_.cbsz |
                 inst_.abid | inst_.blgp) == 0 &&
                inst_.op_sel_hi == default_op_sel_hi;
}

}  // namespace vdev
