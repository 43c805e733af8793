// Finds the format and the row; decodes the scalar formats. Memory formats are in
// decode_memory.cc, vector formats in decode_vector.cc.
#include "isa/decode.h"

#include "isa/decoder.h"

namespace vdev {

Decoded decode(std::span<const u32> words, const InstructionSet& set) {
  return Decoder(words, set).run();
}

Decoded Decoder::run() {
  if (words_.empty()) return {Inst{}, "no code"};
  inst_.words[0] = words_[0];
  code_ = words_[0];
  dispatch();
  Decoded result;
  if (why_ != nullptr) {
    result.why = why_;
    return result;
  }
  result.inst = inst_;
  result.inst.row = row_;
  result.inst.exec = inst_.plain && row_->exec_plain != nullptr ? row_->exec_plain : row_->exec;
  return result;
}

// The encoding is found by its leading bits, from the shortest formats' fixed prefixes on.
void Decoder::dispatch() {
  const u32 w = words_[0];
  if (w >> 31 == 0) {
    const u32 opcode = field(25, 6);
    if (opcode == 0x3f) return select(Format::kVop1, field(9, 8), 1, &Decoder::vop1);
    if (opcode == 0x3e) return select(Format::kVopc, field(17, 8), 1, &Decoder::vopc);
    return select(Format::kVop2, opcode, 1, &Decoder::vop2);
  }
  if (w >> 30 == 2) {
    if (w >> 23 == 0x17d) return select(Format::kSop1, field(8, 8), 1, &Decoder::sop1);
    if (w >> 23 == 0x17e) return select(Format::kSopc, field(16, 7), 1, &Decoder::sopc);
    if (w >> 23 == 0x17f) return select(Format::kSopp, field(16, 7), 1, &Decoder::sopp);
    if (w >> 28 == 0xb) return select(Format::kSopk, field(23, 5), 1, &Decoder::sopk);
    return select(Format::kSop2, field(23, 7), 1, &Decoder::sop2);
  }
  switch (w >> 26) {
    case 0x30:
      return select(Format::kSmem, field(18, 8), 2, &Decoder::smem);
    case 0x34: {
      if (w >> 23 == 0x1a7) {
        if (field(16, 7) == kLoadScale) return scaled_mai();
        return select(Format::kVop3p, field(16, 7), 2, &Decoder::vop3p);
      }
      const u32 opcode = field(16, 10);
      if (opcode >= kVop3Only) return select(Format::kVop3, opcode, 2, &Decoder::vop3);
      if (opcode >= kVop3Vop1) return select(Format::kVop1, opcode - kVop3Vop1, 2, &Decoder::vop3);
      if (opcode >= kVop3Vop2) return select(Format::kVop2, opcode - kVop3Vop2, 2, &Decoder::vop3);
      return select(Format::kVopc, opcode, 2, &Decoder::vop3);
    }
    case 0x36:
      return select(Format::kDs, field(17, 8), 2, &Decoder::ds);
    case 0x37: {
      constexpr Format kSegment[] = {Format::kFlat, Format::kScratch, Format::kGlobal};
      if (field(14, 2) == 3) return need(false, "FLAT segment 3 does not exist");
      return select(kSegment[field(14, 2)], field(18, 7), 2, &Decoder::flat);
    }
    case 0x38:
      return select(Format::kMubuf, field(18, 7), 2, &Decoder::buffer);
    case 0x3a:
      return select(Format::kMtbuf, field(15, 4), 2, &Decoder::buffer);
    default:
      return need(false, "unknown encoding");
  }
}

void Decoder::select(Format format, u32 opcode, int dwords, Step step) {
  row_ = set_.find(format, opcode);
  if (row_ == nullptr) return need(false, "no such opcode");
  inst_.row = row_;
  inst_.encoding = format;
  if (dwords == 2) {
    if (words_.size() < 2) return need(false, "the code ends inside an instruction");
    inst_.size = 2;
    inst_.words[1] = words_[1];
    code_ |= u64{words_[1]} << 32;
  }
  (this->*step)();
}

void Decoder::sop2() {
  if (row_->dst.used()) {
    inst_.dst = sgpr(field(16, 7), row_->dst.dwords);
  } else {
    reserved(16, 7);
  }
  inst_.src[0] = scalar(field(0, 8), row_->src[0]);
  inst_.src[1] = scalar(field(8, 8), row_->src[1]);
}

// SIMM16 is an operand of every row. The register field is the dst also where it is only read
// (compares, s_setreg); s_setreg_imm32 has a dword behind SIMM16 instead.
void Decoder::sopk() {
  inst_.imm = static_cast<i16>(field(0, 16));
  if (row_->is(Trait::kLiteralSource)) {
    reserved(16, 7);
    inst_.src[1] = literal(Type::kB32);
  } else if (row_->dst.used()) {
    inst_.dst = sgpr(field(16, 7), row_->dst.dwords);
  } else {  // s_cbranch_i_fork
    inst_.src[0] = sgpr(field(16, 7), row_->src[0].dwords);
  }
}

void Decoder::sop1() {
  if (row_->dst.used()) {
    inst_.dst = sgpr(field(16, 7), row_->dst.dwords);
  } else {
    reserved(16, 7);
  }
  if (row_->src[0].used()) {
    inst_.src[0] = scalar(field(0, 8), row_->src[0]);
  } else {
    reserved(0, 8);
  }
  need(!row_->is(Trait::kScalarSource) || field(0, 8) < 128, "the source is an SGPR");
}

void Decoder::sopc() {
  inst_.src[0] = scalar(field(0, 8), row_->src[0]);
  if (row_->is(Trait::kIndexMask)) {
    inst_.imm = static_cast<i32>(field(8, 4));
    reserved(12, 4);
  } else {
    inst_.src[1] = scalar(field(8, 8), row_->src[1]);
  }
}

void Decoder::sopp() {
  if (!row_->src[0].used()) reserved(0, 16);
  if (row_->is(Trait::kIndexMask)) reserved(4, 12);
  inst_.imm = static_cast<i16>(field(0, 16));
}

}  // namespace vdev
