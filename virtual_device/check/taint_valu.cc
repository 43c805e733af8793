// Vector ALU instructions that touch uninitialised bits.
#include <memory>

#include "check/taint.h"
#include "check/taint_compute.h"
#include "isa/lane.h"
#include "isa/scaled.h"

namespace vdev {
namespace {

// Conversions with a scale: an element is unknown if the one that it comes from is in part, or the
// scale's exponent or the seed.
void scaled_elements(Wave& shadow, u64 exec, const Inst& inst) {
  const ScaledShape& shape = *inst.row->scaled;
  const Reg* source[3] = {};
  for (int i = 0; i <= shape.scale_operand(); ++i)
    source[i] = lanes(shadow, inst.src[i], inst.row->src[i].dwords, 2 * i);
  const u32 from = shape.source_at(inst.op_sel), to = shape.result_at(inst.op_sel);
  Reg* const dst = vdev::vector(shadow, inst.dst);
  for_lanes(exec, [&](int lane) {
    const bool all = source[shape.scale_operand()]->lane[lane] & F32::kInf ||
                     (shape.stochastic && source[1]->lane[lane]);
    u32 out[kMaxScaledDwords] = {shape.keeps_rest() ? dst->lane[lane] : 0};
    for (u32 i = 0; i < shape.count; ++i) {
      const auto [operand, place] = shape.place(i);
      const u32 at = from + place * shape.source_bits;
      const bool unknown = all || element(source[operand], lane, at, shape.source_bits);
      put_element(out, to + i * shape.result_bits, shape.result_bits,
                  unknown ? static_cast<u32>((u64{1} << shape.result_bits) - 1) : 0);
    }
    for (int d = 0; d < shape.result_dwords(); ++d) dst[d].lane[lane] = out[d];
  });
}

}  // namespace

void Taint::vector(const Step& step) {
  const Row& row = *step.inst.row;
  if (!row.dst.used() && !row.sdst.used()) return;
  const Inst* const origin = origin_of(step);
  Inst masked = step.inst;
  masked.neg = masked.abs = masked.neg_hi = masked.omod = 0;  // move no bit; clamp neither
  masked.clamp = false;
  for (Operand& o : masked.src)
    if (!o.is_vector() && o.kind != OperandKind::kNone)
      o = taint::constant(scalar_operand(step.wave, o));
  shadow_.set_pair(kExec, step.wave.exec());
  shadow_.set_pair(kVcc, pair(kVcc));
  if (row.compute) {
    taint::ShadowInst in;
    taint::describe(step.inst, in);
    Row changed = row;
    if (taint::needs_values(in.flow)) {
      changed.dst = changed.sdst = {};  // nothing is written
      changed.compute = taint::capture;
      static_cast<Inst&>(in) = step.inst;
      in.row = &changed;
      exec_modified(step.wave, in);
      changed = row;
    }
    changed.compute = taint::compute_of(in.flow);
    static_cast<Inst&>(in) = masked;
    in.row = &changed;
    exec_modified(shadow_, in);
  } else {
    vector_rest(step, masked);
  }
  const u64 lanes = unsure(step);
  if (row.sdst.used()) {
    const u64 bits = shadow_.pair(step.inst.sdst.index) | lanes;
    set_scalars(step.inst.sdst, bits, origin);
    if (row.effects & kWritesExec)
      for (u32 i = 0; i < 2; ++i) set_scalar(kExec + i, static_cast<u32>(bits >> 32 * i), origin);
  }
  if (step.inst.dst.kind == OperandKind::kSgpr)  // v_readlane_b32, v_readfirstlane_b32
    set_scalars(step.inst.dst, shadow_.s[step.inst.dst.index] | (lanes ? ~0u : 0), origin);
  settle_writes(step, origin);
}

// Rows that compute nothing lane by lane, or have operands of their own kind.
void Taint::vector_rest(const Step& step, const Inst& inst) {
  const Row& row = *inst.row;
  const Flow& flow = row.flow;
  const u64 exec = step.wave.exec();
  if (flow.kind == FlowKind::kMoveWhole) return row.exec(shadow_, inst);
  if (flow.kind == FlowKind::kScaled) return scaled_elements(shadow_, exec, inst);
  if (flow.kind == FlowKind::kLane) {
    Inst in = inst;
    in.src[1] = taint::constant(read_scalar(step.wave, step.inst.src[1]));
    row.exec(shadow_, in);
    if (!(inst.src[1].lo & 63)) return;
    if (inst.dst.is_vector())
      std::memset(&shadow_.v[inst.dst.reg()], 0xff, sizeof(Reg));
    else
      shadow_.s[inst.dst.index] = ~0u;
    return;
  }
  const Reg* source[3] = {};
  int n = 0;
  for (; n < 3 && row.src[n].used(); ++n)
    source[n] = lanes(shadow_, inst.src[n], row.src[n].dwords, 2 * n);
  Reg out[4];
  Reg* const dst = vdev::vector(shadow_, inst.dst);
  std::memcpy(out, dst, sizeof(Reg) * row.dst.dwords);
  for_lanes(exec, [&](int lane) {
    u32& d = out[0].lane[lane];
    const auto t = [&](int i) { return source[i]->lane[lane]; };
    switch (flow.kind) {
      case FlowKind::kPacked16: {
        bool half[2] = {};
        for (int i = 0; i < n; ++i) {
          half[0] |= (t(i) >> (inst.op_sel >> i & 1 ? 16 : 0) & 0xffff) != 0;
          half[1] |= (t(i) >> (inst.op_sel_hi >> i & 1 ? 16 : 0) & 0xffff) != 0;
        }
        d = (half[0] ? 0xffffu : 0) | (half[1] ? 0xffff0000u : 0);
        return;
      }
      case FlowKind::kPacked32:
        for (int h = 0; h < 2; ++h) {
          const u8 select = h ? inst.op_sel_hi : inst.op_sel;
          u32 all = 0;
          for (int i = 0; i < n; ++i) all |= source[i][select >> i & 1].lane[lane];
          out[h].lane[lane] = all ? ~0u : 0;
        }
        return;
      case FlowKind::kMix: {
        u32 all = 0;
        for (int i = 0; i < n; ++i) {
          const bool f16 = inst.op_sel_hi >> i & 1, high = inst.op_sel >> i & 1;
          all |= f16 ? t(i) >> (high ? 16 : 0) & 0xffff : t(i);
        }
        const u32 field = row.dst.type == Type::kF32 ? ~0u
                          : row.is(Trait::kHighHalf) ? 0xffff0000u
                                                     : 0xffffu;
        d = (d & ~field) | (all ? field : 0);
        return;
      }
      case FlowKind::kFp8Pack: {
        const u32 shift = inst.op_sel >> 3 & 1 ? 16 : 0;
        const u32 bytes = (t(0) ? 0xffu : 0) | (t(1) ? 0xff00u : 0);
        d = (d & ~(0xffffu << shift)) | bytes << shift;
        return;
      }
      case FlowKind::kHalfRound: {
        const u32 half = inst.op_sel >> 3 & 1 ? 0xffff0000u : 0xffffu;
        d = (d & ~half) | ((t(0) | t(1)) ? half : 0);
        return;
      }
      case FlowKind::kFp8Round: {
        const u32 shift = 8 * (inst.op_sel >> 2 & 3);
        d = (d & ~(0xffu << shift)) | ((t(0) | t(1)) ? 0xffu << shift : 0);
        return;
      }
      default: {
        u32 all = row.effects & kReadsDst ? d : 0;
        for (int i = 0; i < n; ++i)
          for (int k = 0; k < row.src[i].dwords; ++k) all |= source[i][k].lane[lane];
        for (int k = 0; k < row.dst.dwords; ++k) out[k].lane[lane] = all ? ~0u : 0;
      }
    }
  });
  std::memcpy(dst, out, sizeof(Reg) * row.dst.dwords);
}

// ds_swizzle, ds_permute, ds_bpermute: the instruction itself, with the lanes' real addresses and
// the shadow of the data.
void Taint::exchange(const Step& step) {
  const Inst& inst = step.inst;
  if (!inst.dst.is_vector()) return;
  const Inst* const origin = origin_of(step);
  shadow_.set_pair(kExec, step.wave.exec());
  const u32 dst = inst.dst.reg();
  if (!inst.src[1].is_vector()) {  // ds_swizzle_b32 has a pattern for an address
    inst.row->exec(shadow_, inst);
  } else {
    thread_local std::unique_ptr<Wave> bench = std::make_unique<Wave>();
    const u32 address = inst.src[0].reg();
    bench->set_pair(kExec, step.wave.exec());
    bench->v[0] = step.wave.v[address];
    bench->v[1] = shadow_.v[inst.src[1].reg()];
    bench->v[2] = shadow_.v[dst];
    Inst in = inst;
    for (int i = 0; i < 3; ++i) {
      Operand& o = i < 2 ? in.src[i] : in.dst;
      o.kind = OperandKind::kVgpr;
      o.index = static_cast<u16>(i);
      o.base = 0;
    }
    inst.row->exec(*bench, in);
    const Reg unknown = shadow_.v[address];
    const bool scatter = inst.row->is(Trait::kScatters);
    bool anywhere = false;
    for_lanes(step.wave.exec(), [&](int lane) {
      if (!(unknown.lane[lane] & 0xff)) return;
      anywhere = true;
      bench->v[2].lane[lane] = ~0u;
    });
    if (scatter && anywhere)
      for_lanes(step.wave.exec(), [&](int lane) { bench->v[2].lane[lane] = ~0u; });
    shadow_.v[dst] = bench->v[2];
  }
  if (exec_taint())  // which lanes take part
    for_lanes(step.wave.exec(), [&](int lane) { shadow_.v[dst].lane[lane] = ~0u; });
  settle_writes(step, origin);
}

}  // namespace vdev
