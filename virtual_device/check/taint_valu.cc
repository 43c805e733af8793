// Vector ALU instructions that touch uninitialised bits.
#include <memory>

#include "check/taint.h"
#include "check/taint_rules.h"
#include "isa/lane.h"

namespace vdev {
namespace {

bool is_16bit(Type t) {
  return t == Type::kF16 || t == Type::kB16 || t == Type::kI16 || t == Type::kU16;
}

// What exec_modified executes on the shadow: the instruction with shadows for scalar operands, and
// what the rule needs to know of the real one.
struct ShadowInst : Inst {
  const Row* real = nullptr;
  TaintRule rule;
  int sources = 0;
  u8 wide = 0;               // bit i: source i has two dwords
  Reg value[3][2];           // the real sources, modifiers applied
  u64 mask_value = 0;
  u32 result = 0;            // bits of the result's type
};
const ShadowInst& shadow_inst(const LaneArgs& a) {
  return *static_cast<const ShadowInst*>(a.inst);
}

// The sources of a row with Row::compute, as exec_modified gives them to it.
int count_sources(const Row& row) {
  int n = 0;
  while (n < 3 && row.src[n].used() && row.src[n].type != Type::kMask) ++n;
  if (row.effects & kReadsDst && !row.src[2].used()) n = 3;
  return n;
}
OperandSpec source_spec(const Row& row, int i) {
  return row.src[i].used() && row.src[i].type != Type::kMask ? row.src[i] : row.dst;
}
// Accumulating rows with one or two sources have nothing between those and the destination.
bool has_source(const Row& row, int i) {
  return row.src[i].used() ? row.src[i].type != Type::kMask
                           : i == 2 && (row.effects & kReadsDst) != 0;
}

void capture(LaneArgs& a) {
  auto& in = const_cast<ShadowInst&>(shadow_inst(a));
  for (int i = 0; i < in.sources; ++i)
    if (has_source(*in.real, i))
      std::memcpy(in.value[i], a.src[i], sizeof(Reg) * ((in.wide >> i & 1) ? 2 : 1));
  in.mask_value = a.mask_in;
}

u64 upwards(u64 t) { return t | (0 - t); }
u64 and_taint(u64 t, u64 v, u64 u, u64 w) { return (t & u) | (t & w) | (v & u); }
u64 or_taint(u64 t, u64 v, u64 u, u64 w) { return and_taint(t, ~v, u, ~w); }

// Sources and values of one lane.
struct LaneView {
  u64 t[3] = {0, 0, 0};  // the bits that count
  u64 v[3] = {0, 0, 0};
  bool mask = false, mask_taint = false;
  bool steering = false;  // of a source that steers
};

template <class F>
void per_lane(LaneArgs& a, bool values, F f) {
  const ShadowInst& in = shadow_inst(a);
  const int dwords = in.real->dst.dwords;
  u64 out = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    LaneView x;
    for (int i = 0; i < in.sources; ++i) {
      if (!has_source(*in.real, i)) continue;
      const bool wide = in.wide >> i & 1;
      x.t[i] = a.src[i][0].lane[lane] & in.rule.look[i];
      if (wide) x.t[i] |= u64{a.src[i][1].lane[lane]} << 32;
      if (values) {
        x.v[i] = in.value[i][0].lane[lane];
        if (wide) x.v[i] |= u64{in.value[i][1].lane[lane]} << 32;
      }
      if (in.rule.steers >> i & 1) x.steering |= x.t[i] != 0;
    }
    x.mask_taint = a.mask_in >> lane & 1;
    x.mask = in.mask_value >> lane & 1;
    u64 t = x.steering ? ~u64{0} : f(x);
    if (t) out |= u64{1} << lane;
    if (dwords) a.dst[0].lane[lane] = static_cast<u32>(t) & in.result;
    if (dwords == 2) a.dst[1].lane[lane] = static_cast<u32>(t >> 32);
  }
  a.mask_out = out;
}

u64 any_of(const LaneView& x) {
  return (x.t[0] | x.t[1] | x.t[2]) || x.mask_taint ? ~u64{0} : 0;
}

// The default, without the bookkeeping of per_lane.
void compute_any(LaneArgs& args) {
  const LaneArgs a = args;
  const ShadowInst& in = shadow_inst(a);
  const Row& row = *in.real;
  Reg all;
  std::memset(&all, 0, sizeof all);
  for (int i = 0; i < in.sources; ++i) {
    if (!has_source(row, i)) continue;
    const u32* low = a.src[i][0].lane;
    const u32 look = in.rule.look[i];
    for (int lane = 0; lane < kLanes; ++lane) all.lane[lane] |= low[lane] & look;
    if (!(in.wide >> i & 1)) continue;
    const u32* high = a.src[i][1].lane;
    for (int lane = 0; lane < kLanes; ++lane) all.lane[lane] |= high[lane];
  }
  if (a.mask_in) for_lanes(a.mask_in, [&](int lane) { all.lane[lane] = ~0u; });
  if (row.sdst.used()) {
    u64 out = 0;
    for (int lane = 0; lane < kLanes; ++lane) out |= u64{all.lane[lane] != 0} << lane;
    args.mask_out = out;
  }
  for (int d = 0; d < row.dst.dwords; ++d) {
    const u32 result = in.result;
    u32* to = a.dst[d].lane;
    for (int lane = 0; lane < kLanes; ++lane) to[lane] = all.lane[lane] ? result : 0;
  }
}

// The real computation, on shadows.
void compute_move(LaneArgs& a) {
  const ShadowInst& in = shadow_inst(a);
  LaneArgs b = a;
  for (int i = 0; i < in.sources; ++i)
    if (in.rule.steers >> i & 1) b.src[i] = in.value[i];
  in.real->compute(b);
  if (!in.rule.steers) return;
  for (int lane = 0; lane < kLanes; ++lane) {
    u32 steering = 0;
    for (int i = 0; i < in.sources; ++i)
      if (in.rule.steers >> i & 1) steering |= a.src[i][0].lane[lane] & in.rule.look[i];
    if (!steering) continue;
    for (int d = 0; d < in.real->dst.dwords; ++d) a.dst[d].lane[lane] = in.result;
  }
}

void compute_rule(LaneArgs& a) {
  const ShadowInst& in = shadow_inst(a);
  const auto halves = [](u64 low, u64 high) {
    return (low ? u64{0xffff} : 0) | (high ? u64{0xffff0000} : 0);
  };
  const u32 shift_mask = in.rule.look[1];
  switch (in.rule.kind) {
    case TaintKind::kNothing:
      a.mask_out = 0;
      return;
    case TaintKind::kUnion:
      return per_lane(a, false, [](const LaneView& x) { return x.t[0] | x.t[1]; });
    case TaintKind::kAnd:
      return per_lane(a, true, [](const LaneView& x) {
        return and_taint(x.t[0], x.v[0], x.t[1], x.v[1]);
      });
    case TaintKind::kOr:
      return per_lane(a, true, [](const LaneView& x) {
        const u64 first = or_taint(x.t[0], x.v[0], x.t[1], x.v[1]);
        return or_taint(first, x.v[0] | x.v[1], x.t[2], x.v[2]);
      });
    case TaintKind::kAndOr:
      return per_lane(a, true, [](const LaneView& x) {
        const u64 first = and_taint(x.t[0], x.v[0], x.t[1], x.v[1]);
        return or_taint(first, x.v[0] & x.v[1], x.t[2], x.v[2]);
      });
    case TaintKind::kSelectBits:
      return per_lane(a, true, [](const LaneView& x) {
        const u64 either = (x.v[1] ^ x.v[2]) | x.t[1] | x.t[2];
        const u64 chosen = (x.v[0] & x.t[1]) | (~x.v[0] & x.t[2]);
        return (x.t[0] & either) | (~x.t[0] & chosen);
      });
    case TaintKind::kShiftOr:
      return per_lane(a, true, [=](const LaneView& x) {
        const u64 n = x.v[1] & shift_mask;
        return or_taint(x.t[0] << n & ~0u, x.v[0] << n & ~0u, x.t[2], x.v[2]);
      });
    case TaintKind::kSum:
      return per_lane(a, false, [](const LaneView& x) {
        return upwards(x.t[0] | x.t[1] | x.t[2] | u64{x.mask_taint});
      });
    case TaintKind::kShiftSum:
      return per_lane(a, true, [=](const LaneView& x) {
        return upwards(x.t[0] << (x.v[1] & shift_mask) | x.t[2]);
      });
    case TaintKind::kSumShift:
      return per_lane(a, true, [](const LaneView& x) {
        return upwards(x.t[0] | x.t[1]) << (x.v[2] & 31);
      });
    case TaintKind::kSelect:
      return per_lane(a, true, [](const LaneView& x) {
        if (x.mask_taint) return x.t[0] | x.t[1] | (x.v[0] ^ x.v[1]);
        return x.mask ? x.t[1] : x.t[0];
      });
    case TaintKind::kPermute:
      return per_lane(a, true, [](const LaneView& x) {
        const u64 bytes = x.t[0] << 32 | x.t[1];
        u64 out = 0;
        for (int i = 0; i < 32; i += 8) {
          const u32 s = x.v[2] >> i & 0xff;
          const u64 byte = s <= 7    ? bytes >> 8 * s & 0xff
                           : s <= 11 ? (bytes >> (16 * (s - 8) + 15) & 1) * 0xff
                                     : 0;
          out |= byte << i;
        }
        return out;
      });
    case TaintKind::kEqual:
      return per_lane(a, true, [&](const LaneView& x) {
        const u64 count = in.rule.look[0] | ((in.wide & 1) ? ~u64{0} << 32 : 0);
        const u64 taint = x.t[0] | x.t[1];
        return taint && !((x.v[0] ^ x.v[1]) & count & ~taint) ? ~u64{0} : u64{0};
      });
    case TaintKind::kPack:
      return per_lane(a, false, [=](const LaneView& x) { return halves(x.t[0], x.t[1]); });
    case TaintKind::kHalves:
      return per_lane(a, false, [=](const LaneView& x) {
        const u64 all = x.t[0] | x.t[1] | x.t[2];
        return halves(all & 0xffff, all >> 16);
      });
    case TaintKind::kByte:
      return per_lane(a, true, [](const LaneView& x) {
        const u64 field = u64{0xff} << 8 * (x.v[1] & 3);
        return (x.t[2] & ~field) | (x.t[0] ? field : 0);
      });
    default:
      return per_lane(a, false, any_of);
  }
}

bool needs_values(const TaintRule& rule) {
  switch (rule.kind) {
    case TaintKind::kMove:
      return rule.steers != 0;
    case TaintKind::kAny:
    case TaintKind::kNothing:
    case TaintKind::kUnion:
    case TaintKind::kSum:
    case TaintKind::kPack:
    case TaintKind::kHalves:
      return false;
    default:
      return true;
  }
}

u32 type_bits(Type type) { return is_16bit(type) ? 0xffff : ~0u; }

Operand constant(u64 value) {
  Operand o;
  o.kind = OperandKind::kConst;
  o.dwords = 2;
  o.lo = static_cast<u32>(value);
  o.hi = static_cast<u32>(value >> 32);
  return o;
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
      o = constant(scalar_operand(step.wave, o));
  shadow_.set_pair(kExec, step.wave.exec());
  shadow_.set_pair(kVcc, pair(kVcc));
  if (row.compute) {
    ShadowInst in;
    in.real = &row;
    in.rule = taint_rule(row);
    in.sources = count_sources(row);
    for (int i = 0; i < in.sources; ++i) {
      const OperandSpec spec = source_spec(row, i);
      if (spec.dwords == 2) in.wide |= static_cast<u8>(1 << i);
      if (!in.rule.look[i]) in.rule.look[i] = type_bits(spec.type);
    }
    in.result = row.dst.used() ? type_bits(row.dst.type) : ~0u;
    // Saturation looks at all bits.
    if (step.inst.clamp && in.rule.kind == TaintKind::kSum) in.rule.kind = TaintKind::kAny;
    Row changed = row;
    if (needs_values(in.rule)) {
      changed.dst = changed.sdst = {};  // nothing is written
      changed.compute = capture;
      static_cast<Inst&>(in) = step.inst;
      in.row = &changed;
      exec_modified(step.wave, in);
      changed = row;
    }
    changed.compute = in.rule.kind == TaintKind::kAny    ? compute_any
                      : in.rule.kind == TaintKind::kMove ? compute_move
                                                         : compute_rule;
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
      for (u32 i = 0; i < 2; ++i)
        set_scalar(kExec + i, static_cast<u32>(bits >> 32 * i), origin);
  }
  if (step.inst.dst.kind == OperandKind::kSgpr)  // v_readlane_b32, v_readfirstlane_b32
    set_scalars(step.inst.dst, shadow_.s[step.inst.dst.index] | (lanes ? ~0u : 0), origin);
  settle_writes(step, origin);
}

// Rows that compute nothing lane by lane, or have operands of their own kind.
void Taint::vector_rest(const Step& step, const Inst& inst) {
  const Row& row = *inst.row;
  const TaintRule& rule = taint_rule(row);
  const u64 exec = step.wave.exec();
  if (rule.kind == TaintKind::kMoveWhole) return row.exec(shadow_, inst);
  if (rule.kind == TaintKind::kLane) {
    Inst in = inst;
    in.src[1] = constant(read_scalar(step.wave, step.inst.src[1]));
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
    switch (rule.kind) {
      case TaintKind::kPacked16: {
        bool half[2] = {};
        for (int i = 0; i < n; ++i) {
          half[0] |= (t(i) >> (inst.op_sel >> i & 1 ? 16 : 0) & 0xffff) != 0;
          half[1] |= (t(i) >> (inst.op_sel_hi >> i & 1 ? 16 : 0) & 0xffff) != 0;
        }
        d = (half[0] ? 0xffffu : 0) | (half[1] ? 0xffff0000u : 0);
        return;
      }
      case TaintKind::kPacked32:
        for (int h = 0; h < 2; ++h) {
          const u8 select = h ? inst.op_sel_hi : inst.op_sel;
          u32 all = 0;
          for (int i = 0; i < n; ++i) all |= source[i][select >> i & 1].lane[lane];
          out[h].lane[lane] = all ? ~0u : 0;
        }
        return;
      case TaintKind::kMix: {
        u32 all = 0;
        for (int i = 0; i < n; ++i) {
          const bool f16 = inst.op_sel_hi >> i & 1, high = inst.op_sel >> i & 1;
          all |= f16 ? t(i) >> (high ? 16 : 0) & 0xffff : t(i);
        }
        const u32 field = row.dst.type == Type::kF32 ? ~0u
                          : row.opcode == 0x22       ? 0xffff0000u  // v_fma_mixhi_f16
                                                     : 0xffffu;
        d = (d & ~field) | (all ? field : 0);
        return;
      }
      case TaintKind::kFp8Pack: {
        const u32 shift = inst.op_sel >> 3 & 1 ? 16 : 0;
        const u32 bytes = (t(0) ? 0xffu : 0) | (t(1) ? 0xff00u : 0);
        d = (d & ~(0xffffu << shift)) | bytes << shift;
        return;
      }
      case TaintKind::kFp8Round: {
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
    const bool scatter = inst.row->opcode == 0x3e;  // ds_permute_b32: to any lane
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
