// VOP3P-MAI: matrix instructions. Their arithmetic and shapes are in numerics/mfma.h; the rows are
// derived from the shapes.
#include "numerics/mfma.h"

#include <vector>

#include "isa/operand.h"
#include "isa/tables.h"

namespace vdev {
namespace {

constexpr int kMaxRegs = 32;

// C as an inline constant: every element has its value.
const Reg* broadcast_c(const Operand& c, const MfmaShape& shape, Reg* out) {
  const bool wide = shape.geometry.d == MfmaDst::kF64;
  for (int r = 0; r < shape.c_regs; ++r)
    for (u32& word : out[r].lane) word = wide && (r & 1) ? c.hi : c.lo;
  return out;
}

void exec_mfma(Wave& w, const Inst& in) {
  const MfmaShape& shape = *in.row->matrix;
  MfmaControl control;
  control.cbsz = in.cbsz;
  control.abid = in.abid;
  control.blgp = shape.geometry.d == MfmaDst::kF64 ? in.neg : in.blgp;
  control.flush_f32_ab = !(w.fp.denorm32 & FpMode::kKeepIn);
  for (int i = 0; in.row->src[3].used() && i < 2; ++i) {
    control.scale[i] = vector(w, in.src[3 + i]);
    control.scale_byte[i] = static_cast<u8>((in.op_sel >> i & 1) | (in.op_sel_hi >> i & 1) << 1);
  }
  if (control.cbsz | control.abid | control.blgp)
    if (const char* why = mfma_control_error(shape, control))
      raise(FaultKind::kIllegalInstruction, why);
  const Reg* c;
  Reg constant[kMaxRegs];
  if (in.src[2].is_vector()) [[likely]]
    c = vector(w, in.src[2]);
  else
    c = broadcast_c(in.src[2], shape, constant);
  shape.fn(vector(w, in.src[0]), vector(w, in.src[1]), c, vector(w, in.dst), control);
  ++w.mfmas;
}

Type type_of(MfmaDst d) {
  return d == MfmaDst::kF64 ? Type::kF64 : d == MfmaDst::kF32 ? Type::kF32 : Type::kI32;
}

struct Claim {
  Fidelity fidelity;
  const char* note;
};

// What is known of a shape's arithmetic on one architecture.
Claim claim(const MfmaShape& shape, bool published) {
  const MfmaGeometry& g = shape.geometry;
  if (g.d == MfmaDst::kI32 && !g.sparse) return {Fidelity::kExact, "integers wrap"};
  if (shape.chooses_formats)
    return {Fidelity::kUnverified,
            shape.opcode & kScaledMatrix
                ? "behind opcode 0x2c; CDNA3's rule of fp8, 16 k a step; scales are exact"
                : "CDNA3's rule of fp8, 16 k a step; fp6 and fp4 are fp8 numbers"};
  if (g.sparse)
    return {published || g.d == MfmaDst::kI32 ? Fidelity::kModelled : Fidelity::kUnverified,
            "the dense rule on the selected elements"};
  if (!published) return {Fidelity::kUnverified, "summed as CDNA3 does"};
  return {Fidelity::kExact, "MMA-Sim, arXiv 2511.10909; NaN payload not published"};
}

Row make_row(const MfmaShape& shape, InstructionSets set) {
  Row row;
  row.name = shape.name;
  row.format = Format::kVop3p;
  row.opcode = shape.opcode;
  row.sets = set;
  row.matrix = &shape;
  const MfmaSrc a = shape.geometry.a;
  row.unit = a == MfmaSrc::kF32 || a == MfmaSrc::kF64 ? Unit::kMfmaAlone : Unit::kMfma;
  row.dst = {type_of(shape.geometry.d), shape.d_regs};
  row.src[0] = {Type::kRaw, shape.a_regs};
  row.src[1] = {Type::kRaw, shape.b_regs};
  row.src[2] = {shape.geometry.sparse ? Type::kB32 : type_of(shape.geometry.d), shape.c_regs};
  if (shape.opcode & kScaledMatrix) row.src[3] = row.src[4] = {Type::kRaw, 1};
  row.effects = kIgnoresExec | (shape.geometry.sparse ? kReadsDst : 0u) |
                (a == MfmaSrc::kF32 ? kReadsMode : 0u);
  row.exec = exec_mfma;
  const Claim known = claim(shape, set & kCdna3);
  row.fidelity = known.fidelity;
  row.note = known.note;
  return row;
}

// A row for each architecture: what is known of its sums is not the same.
std::vector<Row> make_rows() {
  std::vector<Row> rows;
  for (const InstructionSets set : {kCdna3, kCdna4})
    for (const MfmaShape& shape : mfma_shapes())
      if (shape.sets & set) rows.push_back(make_row(shape, set));
  return rows;
}

}  // namespace

std::span<const Row> mfma_rows() {
  static const std::vector<Row> rows = make_rows();
  return rows;
}

}  // namespace vdev
