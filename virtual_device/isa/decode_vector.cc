// VOP1, VOP2, VOPC and their DPP and SDWA forms.
#include "core/wave.h"
#include "isa/decoder.h"

namespace vdev {
namespace {

constexpr u32 kSdwaCode = 249, kDppCode = 250;

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

}  // namespace

void Decoder::lane_destination(u32 code) {
  need(code < 128 && code != kM0, "the destination is an SGPR other than M0");
  if (why_ == nullptr) inst_.dst = sgpr(code, 1);
}

void Decoder::vector_destination(u32 code) {
  if (row_->is(Trait::kReadsLane)) {
    lane_destination(code);
  } else if (row_->dst.used()) {
    inst_.dst = vgpr(code, row_->dst.dwords, row_->is(Trait::kAgprResult));
  } else {
    need(code == 0, "reserved bits are set");
  }
}

// The short forms take carry-in from VCC and write masks to it.
void Decoder::implicit_vcc() {
  if (row_->sdst.used()) inst_.sdst = mask(kVcc);
  if (row_->src[2].type == Type::kMask) inst_.src[2] = mask(kVcc);
}

void Decoder::short_source0(u32 code) {
  if (code == kDppCode) return dpp();
  if (code == kSdwaCode) return sdwa();
  if (!row_->src[0].used()) return need(code == 0, "reserved bits are set");
  if (row_->is(Trait::kAgprSource)) {
    need(code >= 256, "the source is an AGPR");
    inst_.src[0] = vgpr(code & 0xff, 1, true);
    return;
  }
  need(!row_->is(Trait::kVectorSource) || code >= 256, "the source is a vector register");
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
  inst_.sdst = mask(kVcc);
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
    need(!row_->is(Trait::kSelectsByte) ||
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
  inst_.src[i] = is_scalar ? scalar(code, row_->src[i]) : vgpr(code, row_->src[i].dwords);
  inst_.src_sel[i] = modifiers & 7;
  need(inst_.src_sel[i] < 7, "unknown SDWA select");
  inst_.sext |= static_cast<u8>((modifiers >> 3 & 1) << i);
  inst_.neg |= static_cast<u8>((modifiers >> 4 & 1) << i);
  inst_.abs |= static_cast<u8>((modifiers >> 5 & 1) << i);
}

}  // namespace vdev
