// What holds across the vector formats: which modifiers an instruction has, and how many scalars it
// may read.
#include <initializer_list>

#include "core/wave.h"
#include "isa/decoder.h"

namespace vdev {
namespace {

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
    case 0x1ce:
    case 0x1cf:  // v_alignbit_b32, v_alignbyte_b32
    case 0x2a4:
    case 0x2a5:  // v_cvt_sr_fp8_f32, _bf8_
      return 4;
    case 0x299:
    case 0x29a:
    case 0x29e:
    case 0x29f:  // v_cvt_pknorm_*_f16, v_*_i16
    case 0x2a0:
    case 0x2a2:
    case 0x2a3:  // v_pack_b32_f16, v_cvt_pk_fp8_f32
      return 3;
    default:
      return row.opcode == 0x1f1 || row.opcode == 0x1f2 ||            // v_mad_{u32_u16,i32_i16}
                     (row.opcode >= 0x1f4 && row.opcode <= 0x1fc) ||  // v_{min3,max3,med3}_*16
                     (row.opcode >= 0x203 && row.opcode <= 0x207)     // v_mad_*, v_fma_f16, ...
                 ? 4
                 : 0;
  }
}

// Clamp of a float result is the business of all; integers saturate where the row computes it.
bool has_integer_clamp(const Row& row) {
  const auto one_of = [&](std::initializer_list<u32> opcodes) {
    for (const u32 opcode : opcodes)
      if (opcode == row.opcode) return true;
    return false;
  };
  if (row.format == Format::kVop2)
    return one_of({0x06, 0x08,                          // v_mul_{i32_i24,u32_u24}
                   0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e,  // v_{add,sub,subrev,...}_co_u32
                   0x26, 0x27, 0x28, 0x34, 0x35, 0x36,  // v_{add,sub,subrev}_{u16,u32}
                   0x38, 0x39, 0x3a});                  // v_dot*c_i32_*
  if (row.format == Format::kVop3)
    return one_of({0x1c2, 0x1c3,                              // v_mad_{i32_i24,u32_u24}
                   0x1d9, 0x1da, 0x1db, 0x1dc, 0x1dd, 0x1e4,  // v_{sad,msad}_*, v_cvt_pk_u8_f32
                   0x1e5, 0x1e6, 0x1e7, 0x1e8, 0x1e9,         // v_{qsad,mqsad}_*, v_mad_*64_*32
                   0x1eb, 0x1ec, 0x1f1, 0x1f2,                // v_mad_legacy_*16, v_mad_*32_*16
                   0x1f5, 0x1f6, 0x1f8, 0x1f9, 0x1fb, 0x1fc,  // v_{min3,max3,med3}_*16
                   0x204, 0x205, 0x29c, 0x29d, 0x29e, 0x29f});
  return false;
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
  const bool float_result =
      !is_cndmask(*row_) && (is_float(row_->dst.type) || row_->dst.type == Type::kPkF16);
  const bool float_compare = row_->format == Format::kVopc && is_float(row_->src[0].type) &&
                             is_float(row_->src[1].type);  // not v_cmp_class
  need(inst_.omod == 0 || float_result, "omod of an integer");
  need(!inst_.clamp || float_result || float_compare || has_integer_clamp(*row_),
       "clamp of an instruction that does not saturate");
  const int halves = op_sel_bits(*row_);  // three: two sources, and the result in bit 3
  need((inst_.op_sel & ~(halves == 4   ? 0xf
                         : halves == 3 ? 0xb
                                       : 0)) == 0,
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
  if (row_->effects & kReadsVcc) count(kVcc | 2u << 16);
  for (int i = 0; i < 3; ++i) {
    const Operand& s = inst_.src[i];
    if (writelane && i == 1 && s.index == kM0) continue;  // the lane select has its own path
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
