// VOP3, VOP3P and MAI.
#include <algorithm>
#include <iterator>

#include "isa/decoder.h"
#include "numerics/mfma.h"

namespace vdev {

void Decoder::vop3() {
  inst_.encoding = Format::kVop3;
  const bool selects_lane = row_->is(Trait::kSelectsLane);
  need(!row_->is(Trait::kShortOnly), "no VOP3 form");
  need(row_->src[1].type != Type::kImm && row_->src[2].type != Type::kImm, "no VOP3 form");
  if (row_->format == Format::kVopc) {
    need(!bit(7), "the destination is an SGPR pair");
    inst_.sdst = mask(field(0, 7));
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
    } else if (selects_lane && (i == 1 || !row_->is(Trait::kReadsLane))) {
      inst_.src[i] = constant(code, spec);
    } else {
      need(!row_->is(Trait::kVectorSource) || code >= 256, "the source is a vector register");
      inst_.src[i] = any(code, spec);
    }
  }
  inst_.clamp = bit(15);
  inst_.omod = static_cast<u8>(field(59, 2));
  inst_.neg = static_cast<u8>(field(61, 3));
  if (row_->is(Trait::kTruthTable)) {
    inst_.imm = inst_.omod << 6 | inst_.abs << 3 | inst_.neg;
    inst_.omod = inst_.abs = inst_.neg = 0;
  }
  check_modifiers();
  check_constant_bus();
  find_plain();
}

void Decoder::vop3p() {
  if (is_matrix(row_->unit)) return mai();
  if (row_->is(Trait::kAgprSource | Trait::kAgprResult)) return accvgpr();
  inst_.dst = vgpr(field(0, 8), row_->dst.dwords);
  const bool mix = row_->is(Trait::kMix);
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
  need(((inst_.op_sel | modified) & ~used) == 0, "a modifier of an operand that does not exist");
  for (int i = 0; i < n; ++i)
    need(mix || !(modified >> i & 1) || is_packed_float(row_->src[i].type),
         "neg of an operand that is no float");
  if (row_->unit == Unit::kValuDot) {
    need(inst_.op_sel == 0, "op_sel of a dot product");
    if (row_->is(Trait::kWholeSources)) inst_.op_sel_hi = used;  // not looked at
    need(inst_.op_sel_hi == used, "op_sel_hi of a dot product");
  }
  check_constant_bus();
  find_plain();
}

void Decoder::accvgpr() {
  const bool read = row_->is(Trait::kAgprSource);
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

// Two dwords with the scales, and the matrix instruction; the row has both.
void Decoder::scaled_mai() {
  if (words_.size() < 4) return need(false, "the code ends inside an instruction");
  const u32 opcode = kScaledMatrix | (words_[2] >> 16 & 0x7f);
  row_ = words_[2] >> 23 == words_[0] >> 23 ? set_.find(Format::kVop3p, opcode) : nullptr;
  if (row_ == nullptr) return need(false, "no matrix instruction behind its scales");
  inst_.row = row_;
  inst_.encoding = Format::kVop3p;
  inst_.size = 4;
  for (int i = 1; i < 4; ++i) inst_.words[i] = words_[static_cast<size_t>(i)];
  code_ |= u64{words_[1]} << 32;
  reserved(0, 11);
  reserved(15, 1);
  reserved(50, 9);
  reserved(61, 3);
  inst_.op_sel = static_cast<u8>(field(11, 2));
  inst_.op_sel_hi = static_cast<u8>(field(59, 2));
  for (int i = 0; i < 2; ++i) {
    const u32 code = field(32 + 9 * i, 9);
    need(code >= 256, "a scale is a VGPR");
    inst_.src[3 + i] = vgpr(code & 0xff, 1);
  }
  code_ = words_[2] | u64{words_[3]} << 32;
  mai();
}

void Decoder::mai() {
  const bool acc_cd = bit(15);
  inst_.cbsz = static_cast<u8>(field(8, 3));
  inst_.abid = static_cast<u8>(field(11, 4));
  u8 dwords[] = {row_->src[0].dwords, row_->src[1].dwords};
  inst_.passes = row_->passes;
  if (const MfmaShape& shape = *row_->matrix; shape.chooses_formats) {
    const u32 formats[] = {inst_.cbsz, field(61, 3)};
    for (int i = 0; i < 2; ++i) {
      need(formats[i] < std::size(kF8f6f4), "no such format of a matrix");
      if (why_ != nullptr) return;
      dwords[i] = f8f6f4_regs(formats[i]);
    }
    if (std::max(dwords[0], dwords[1]) < f8f6f4_regs(0)) inst_.passes = row_->narrow_passes;
    // One bit says again whether there are scales.
    need(inst_.abid == (row_->src[3].used() ? 1 : 0),
         "scales without abid, or abid without scales");
    inst_.abid = 0;
  }
  inst_.dst = vgpr(field(0, 8), row_->dst.dwords, acc_cd);
  for (int i = 0; i < 2; ++i) {
    const u32 code = field(32 + 9 * i, 9);
    need(code >= 256, "A and B are vector registers");
    inst_.src[i] = vgpr(code & 0xff, dwords[i], bit(59 + i));
  }
  const u32 c = field(50, 9);
  const bool sparse = row_->effects & kReadsDst, f64 = row_->dst.type == Type::kF64;
  if (sparse) {
    need(c >= 256, "the sparsity index is a VGPR");
    inst_.src[2] = vgpr(c & 0xff, 1);
    reserved(61, 3);
  } else if (c >= 256) {
    inst_.src[2] = vgpr(c & 0xff, row_->src[2].dwords, acc_cd);
  } else {
    // One element's constant, which every element of C then has.
    need(c >= 128 && c != kLiteralCode, "C is a vector register or an inline constant");
    if (why_ == nullptr) inst_.src[2] = scalar(c, f64 ? Type::kF64 : Type::kF32);
    need(inst_.src[2].kind == OperandKind::kConst, "C is a vector register or an inline constant");
  }
  const bool partial_overlap = inst_.dst.dwords > 4 && inst_.src[2].kind == inst_.dst.kind &&
                               inst_.src[2].index != inst_.dst.index &&
                               inst_.src[2].index < inst_.dst.index + inst_.dst.dwords &&
                               inst_.dst.index < inst_.src[2].index + inst_.src[2].dwords;
  need(!partial_overlap || sparse, "C overlaps a part of D");
  // The f64 forms negate A, B, C with the bits that elsewhere permute B.
  (f64 ? inst_.neg : inst_.blgp) = static_cast<u8>(field(61, 3));
  find_plain();
}

}  // namespace vdev
