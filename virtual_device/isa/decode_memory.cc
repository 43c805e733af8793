// SMEM, DS, FLAT with its segments, MUBUF and MTBUF.
#include "isa/decoder.h"

namespace vdev {
namespace {

constexpr u32 kSaddrOff = 0x7f;

constexpr i32 sign_extend(u32 value, int width) {
  return static_cast<i32>(value << (32 - width)) >> (32 - width);
}

Operand off() {
  Operand operand;
  operand.kind = OperandKind::kOff;
  return operand;
}

}  // namespace

// A register field at bit `low`. The data of loads, stores and atomics lies in VGPRs or AGPRs, as
// the acc bit says.
void Decoder::vgpr_field(Operand& out, int low, const OperandSpec& spec, bool acc) {
  if (spec.used()) {
    out = vgpr(field(low, 8), spec.dwords, acc);
  } else {
    reserved(low, 8);
  }
}

void Decoder::smem() {
  const OperandSpec& base = row_->src[0];
  const bool imm = bit(17), soffset = bit(14);
  inst_.sc0 = bit(16);
  reserved(13, 1);
  reserved(15, 1);  // nv
  const u32 sdata = field(6, 7);
  if (row_->src[2].type == Type::kImm) {  // s_atc_probe
    inst_.imm = static_cast<i32>(sdata);
    reserved(16, 1);
  } else if (row_->dst.used() || row_->src[2].used()) {
    need(sdata < 124, "M0 and EXEC do not hold data of scalar memory instructions");
    if (row_->dst.used()) inst_.dst = sgpr(sdata, row_->dst.dwords);
    if (row_->src[2].used()) inst_.src[2] = sgpr(sdata, row_->src[2].dwords);
  } else {
    reserved(6, 7);
    reserved(16, 1);
  }
  if (!base.used()) {  // s_memtime, s_dcache_*
    reserved(0, 6);
    reserved(14, 4);
    reserved(32, 32);
    return;
  }
  inst_.src[0] = sgpr(field(0, 6) * 2, base.dwords);
  if (imm) inst_.offset = sign_extend(field(32, 21), 21);
  need(inst_.offset >= 0 || base.dwords == 2, "a negative offset into a buffer");
  if (soffset) {
    inst_.src[1] = sgpr(field(57, 7), 1);
  } else if (!imm) {
    inst_.src[1] = sgpr(field(32, 7), 1);
  }
  if (!imm) reserved(soffset ? 32 : 39, soffset ? 21 : 14);
  reserved(53, 4);
  if (!soffset) reserved(57, 7);
}

void Decoder::ds() {
  const bool acc = bit(25);
  const bool gws = row_->is(Trait::kGws);
  inst_.gds = bit(16);
  need(inst_.gds == gws, "no GDS");
  vgpr_field(inst_.src[0], 32, row_->src[0], acc && gws);  // data there, else an address
  need(!gws || inst_.src[0].index % 2 == 0, "ds_gws_* data in an odd register");
  vgpr_field(inst_.src[1], 40, row_->src[1], acc);
  vgpr_field(inst_.src[2], 48, row_->src[2], acc);
  vgpr_field(inst_.dst, 56, row_->dst, acc);
  if (row_->is(Trait::kNoOffset)) reserved(0, 16);
  if (!row_->src[1].used() && !row_->dst.used() && !(gws && row_->src[0].used())) reserved(25, 1);
  if (row_->is(Trait::kTwoOffsets)) {
    inst_.offset0 = static_cast<u8>(field(0, 8));
    inst_.offset1 = static_cast<u8>(field(8, 8));
  } else {
    inst_.offset = static_cast<i32>(field(0, 16));
  }
}

void Decoder::flat() {
  const bool acc = bit(55);
  const bool scratch = row_->format == Format::kScratch;
  const u32 saddr = field(48, 7);
  const bool has_saddr = row_->format != Format::kFlat && saddr != kSaddrOff;
  inst_.sc0 = bit(16);
  inst_.nt = bit(17);
  inst_.sc1 = bit(25);
  inst_.offset = sign_extend(field(0, 13), 13);
  if (row_->format == Format::kFlat) {
    need(inst_.offset >= 0, "a negative offset of a FLAT instruction");
    reserved(48, 7);
  }
  const bool has_vaddr = !scratch || bit(13);
  if (!scratch) reserved(13, 1);
  if (has_vaddr) {
    inst_.src[0] = vgpr(field(32, 8), scratch || has_saddr ? 1 : 2);
  } else {
    inst_.src[0] = off();
    reserved(32, 8);
  }
  if (has_saddr) {
    need(scratch || saddr < 124, "EXEC is no base address");
    inst_.src[2] = sgpr(saddr, scratch ? 1 : 2);
  } else if (row_->format != Format::kFlat) {
    inst_.src[2] = off();
  }
  const bool returns = !(row_->effects & kAtomic) || inst_.sc0;
  vgpr_field(inst_.src[1], 40, row_->src[1], acc);
  vgpr_field(inst_.dst, 56, returns ? row_->dst : OperandSpec{}, acc);
  if (!row_->src[1].used() && !row_->dst.used()) reserved(55, 1);
}

void Decoder::buffer() {
  const bool typed = row_->format == Format::kMtbuf;
  const bool acc = bit(55);
  inst_.offset = static_cast<i32>(field(0, 12));
  inst_.offen = bit(12);
  inst_.idxen = bit(13);
  inst_.sc0 = bit(14);
  if (typed) {
    inst_.dfmt = static_cast<u8>(field(19, 4));
    inst_.nfmt = static_cast<u8>(field(23, 3));
    inst_.sc1 = bit(53);
    inst_.nt = bit(54);
  } else {
    inst_.sc1 = bit(15);
    inst_.lds = bit(16);
    inst_.nt = bit(17);
    reserved(25, 1);
    reserved(53, 2);
  }
  const bool has_data = row_->dst.used() || row_->src[1].used();
  if (!has_data && !row_->src[2].used()) {  // buffer_wbl2, buffer_inv
    reserved(0, 14);
    reserved(16, 2);
    reserved(32, 32);
    return;
  }
  const u32 address_dwords = inst_.offen + inst_.idxen;
  if (address_dwords > 0) {
    inst_.src[0] = vgpr(field(32, 8), address_dwords);
  } else {
    inst_.src[0] = off();
    reserved(32, 8);
  }
  inst_.src[2] = sgpr(field(48, 5) * 4, 4);
  inst_.src[3] = constant(field(56, 8), Type::kU32);
  if (inst_.lds) {
    need(row_->is(Trait::kHasLdsForm), "not a load that can go to LDS");
    reserved(40, 8);
    reserved(55, 1);
    return;
  }
  const bool returns = row_->dst.used() && (!(row_->effects & kAtomic) || inst_.sc0);
  if (row_->src[1].used()) vgpr_field(inst_.src[1], 40, row_->src[1], acc);
  if (returns) vgpr_field(inst_.dst, 40, row_->dst, acc);
}

}  // namespace vdev
