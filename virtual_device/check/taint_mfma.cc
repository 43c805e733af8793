// Matrix instructions that touch uninitialised bits: an element of D is uninitialised when its row
// of A, its column of B, its addend or a scale of the two has an uninitialised element.
#include "check/taint.h"
#include "isa/operand.h"
#include "numerics/mfma_layout.h"

namespace vdev {
namespace {

bool element_tainted(const Reg* first, mfma::ElementPlace place, int bits) {
  if (bits < 64) return mfma::element_bits(first, place, bits) != 0;
  const Reg* pair = first + 2 * place.index;
  return (pair[0].lane[place.lane] | pair[1].lane[place.lane]) != 0;
}

constexpr int kMaxBlocks = 16, kMaxRows = 32, kMaxRegs = 32;

}  // namespace

void Taint::mfma(const Step& step) {
  const Inst& inst = step.inst;
  const MfmaShape& shape = *inst.row->matrix;
  MfmaControl control;
  control.cbsz = inst.cbsz;
  control.abid = inst.abid;
  control.blgp = inst.blgp;
  const MfmaGeometry g =
      shape.chooses_formats ? mfma::of_formats(shape.geometry, control) : shape.geometry;
  const auto tainted = [&](const Operand& o) {
    return o.is_vector() && any_vector(o.reg(), o.dwords);
  };
  const bool a_tainted = tainted(inst.src[0]), b_tainted = tainted(inst.src[1]);
  // Sparse: the third operand chooses columns of A, and D is its own addend.
  const bool index_tainted = g.sparse && tainted(inst.src[2]);
  const Operand& addend = g.sparse ? inst.dst : inst.src[2];
  const bool c_tainted = tainted(addend);
  const bool scale_tainted[] = {tainted(inst.src[3]), tainted(inst.src[4])};
  if (!a_tainted && !b_tainted && !c_tainted && !index_tainted && !scale_tainted[0] &&
      !scale_tainted[1])
    return clear_writes(step.use);
  const Inst* const origin = origin_of(step);

  bool rows[kMaxBlocks][kMaxRows] = {}, columns[kMaxBlocks][kMaxRows] = {};
  const Reg* const a = vdev::vector(shadow_, inst.src[0]);
  const Reg* const b = vdev::vector(shadow_, inst.src[1]);
  for (int block = 0; block < g.blocks; ++block) {
    if (a_tainted) {
      const bool shared = mfma::has_cbsz_abid(g) && !g.sparse;
      const int from = shared ? mfma::broadcast_block(g, block, control) : block;
      for (int i = 0; i < g.m; ++i)
        for (int k = 0; k < mfma::stored_k(g); ++k)
          rows[block][i] |= element_tainted(a, mfma::a_place(g, from, i, k), mfma::bits_of(g.a));
    }
    if (b_tainted) {
      for (int j = 0; j < g.n; ++j)
        for (int k = 0; k < g.k; ++k) {
          mfma::ElementPlace place = mfma::b_place(g, block, k, j);
          if (mfma::permutes_b(g)) place.lane = mfma::permuted_lane(place.lane, control.blgp);
          columns[block][j] |= element_tainted(b, place, mfma::bits_of(g.b));
        }
    }
  }
  for (int side = 0; side < 2; ++side) {
    if (!scale_tainted[side]) continue;
    const u32 byte = (inst.op_sel >> side & 1u) | (inst.op_sel_hi >> side & 1u) << 1;
    const Reg* const scale = vdev::vector(shadow_, inst.src[3 + side]);
    for (int i = 0; i < g.m; ++i)
      for (int k = 0; k < g.k; k += 32)
        (side == 0 ? rows : columns)[0][i] |=
            (scale->lane[mfma::scale_lane(g.m, i, k)] >> 8 * byte & 0xff) != 0;
  }
  const int width = g.d == MfmaDst::kF64 ? 2 : 1;
  const Reg* const c = c_tainted ? vdev::vector(shadow_, addend) : nullptr;
  Reg out[kMaxRegs];
  for (int block = 0; block < g.blocks; ++block)
    for (int i = 0; i < g.m; ++i)
      for (int j = 0; j < g.n; ++j) {
        const mfma::ElementPlace place = mfma::d_place(g, block, i, j);
        const int reg = place.index * width;
        u32 bits = rows[block][i] || columns[block][j] || index_tainted ? ~0u : 0;
        for (int d = 0; c && d < width; ++d) bits |= c[reg + d].lane[place.lane];
        for (int d = 0; d < width; ++d) out[reg + d].lane[place.lane] = bits ? ~0u : 0;
      }
  std::memcpy(vdev::vector(shadow_, inst.dst), out, sizeof(Reg) * shape.d_regs);
  settle_writes(step, origin);
}

}  // namespace vdev
