#include "check/taint_compute.h"

namespace vdev::taint {
namespace {

bool is_16bit(Type t) {
  return t == Type::kF16 || t == Type::kBf16 || t == Type::kB16 || t == Type::kI16 ||
         t == Type::kU16;
}

const ShadowInst& shadow_inst(const LaneArgs& a) { return *static_cast<const ShadowInst*>(a.inst); }

// Accumulating rows with one or two sources have nothing between those and the destination.
bool has_source(const Row& row, int i) {
  return row.src[i].used() ? row.src[i].type != Type::kMask
                           : i == 2 && (row.effects & kReadsDst) != 0;
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
      x.t[i] = a.src[i][0].lane[lane] & in.flow.look[i];
      if (wide) x.t[i] |= u64{a.src[i][1].lane[lane]} << 32;
      if (values) {
        x.v[i] = in.value[i][0].lane[lane];
        if (wide) x.v[i] |= u64{in.value[i][1].lane[lane]} << 32;
      }
      if (in.flow.steers >> i & 1) x.steering |= x.t[i] != 0;
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

u64 any_of(const LaneView& x) { return (x.t[0] | x.t[1] | x.t[2]) || x.mask_taint ? ~u64{0} : 0; }

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
    const u32 look = in.flow.look[i];
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
    if (in.flow.steers >> i & 1) b.src[i] = in.value[i];
  in.real->compute(b);
  if (!in.flow.steers) return;
  for (int lane = 0; lane < kLanes; ++lane) {
    u32 steering = 0;
    for (int i = 0; i < in.sources; ++i)
      if (in.flow.steers >> i & 1) steering |= a.src[i][0].lane[lane] & in.flow.look[i];
    if (!steering) continue;
    for (int d = 0; d < in.real->dst.dwords; ++d) a.dst[d].lane[lane] = in.result;
  }
}

void compute_rule(LaneArgs& a) {
  const ShadowInst& in = shadow_inst(a);
  const auto halves = [](u64 low, u64 high) {
    return (low ? u64{0xffff} : 0) | (high ? u64{0xffff0000} : 0);
  };
  const u32 shift_mask = in.flow.look[1];
  switch (in.flow.kind) {
    case FlowKind::kNothing:
      a.mask_out = 0;
      return;
    case FlowKind::kUnion:
      return per_lane(a, false, [](const LaneView& x) { return x.t[0] | x.t[1]; });
    case FlowKind::kAnd:
      return per_lane(a, true,
                      [](const LaneView& x) { return and_taint(x.t[0], x.v[0], x.t[1], x.v[1]); });
    case FlowKind::kOr:
      return per_lane(a, true, [](const LaneView& x) {
        const u64 first = or_taint(x.t[0], x.v[0], x.t[1], x.v[1]);
        return or_taint(first, x.v[0] | x.v[1], x.t[2], x.v[2]);
      });
    case FlowKind::kAndOr:
      return per_lane(a, true, [](const LaneView& x) {
        const u64 first = and_taint(x.t[0], x.v[0], x.t[1], x.v[1]);
        return or_taint(first, x.v[0] & x.v[1], x.t[2], x.v[2]);
      });
    case FlowKind::kSelectBits:
      return per_lane(a, true, [](const LaneView& x) {
        const u64 either = (x.v[1] ^ x.v[2]) | x.t[1] | x.t[2];
        const u64 chosen = (x.v[0] & x.t[1]) | (~x.v[0] & x.t[2]);
        return (x.t[0] & either) | (~x.t[0] & chosen);
      });
    case FlowKind::kTruthTable:
      // Known bits rule out combinations; a result that both kinds of the others give is unknown.
      return per_lane(a, true, [&](const LaneView& x) {
        u64 zeros = 0, ones = 0;
        for (u32 row = 0; row < 8; ++row) {
          u64 possible = ~u64{0};
          for (int i = 0; i < 3; ++i) possible &= x.t[i] | (row >> (2 - i) & 1 ? x.v[i] : ~x.v[i]);
          (static_cast<u32>(in.imm) >> row & 1 ? ones : zeros) |= possible;
        }
        return zeros & ones;
      });
    case FlowKind::kShiftOr:
      return per_lane(a, true, [=](const LaneView& x) {
        const u64 n = x.v[1] & shift_mask;
        return or_taint(x.t[0] << n & ~0u, x.v[0] << n & ~0u, x.t[2], x.v[2]);
      });
    case FlowKind::kSum:
      return per_lane(a, false, [](const LaneView& x) {
        return upwards(x.t[0] | x.t[1] | x.t[2] | u64{x.mask_taint});
      });
    case FlowKind::kShiftSum:
      return per_lane(a, true, [=](const LaneView& x) {
        return upwards(x.t[0] << (x.v[1] & shift_mask) | x.t[2]);
      });
    case FlowKind::kSumShift:
      return per_lane(a, true,
                      [](const LaneView& x) { return upwards(x.t[0] | x.t[1]) << (x.v[2] & 31); });
    case FlowKind::kSelect:
      return per_lane(a, true, [](const LaneView& x) {
        if (x.mask_taint) return x.t[0] | x.t[1] | (x.v[0] ^ x.v[1]);
        return x.mask ? x.t[1] : x.t[0];
      });
    case FlowKind::kPermute:
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
    case FlowKind::kEqual:
      return per_lane(a, true, [&](const LaneView& x) {
        const u64 count = in.flow.look[0] | ((in.wide & 1) ? ~u64{0} << 32 : 0);
        const u64 taint = x.t[0] | x.t[1];
        return taint && !((x.v[0] ^ x.v[1]) & count & ~taint) ? ~u64{0} : u64{0};
      });
    case FlowKind::kPack:
      return per_lane(a, false, [=](const LaneView& x) { return halves(x.t[0], x.t[1]); });
    case FlowKind::kHalves:
      return per_lane(a, false, [=](const LaneView& x) {
        const u64 all = x.t[0] | x.t[1] | x.t[2];
        return halves(all & 0xffff, all >> 16);
      });
    case FlowKind::kByte:
      return per_lane(a, true, [](const LaneView& x) {
        const u64 field = u64{0xff} << 8 * (x.v[1] & 3);
        return (x.t[2] & ~field) | (x.t[0] ? field : 0);
      });
    default:
      return per_lane(a, false, any_of);
  }
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
u32 type_bits(Type type) { return is_16bit(type) ? 0xffff : ~0u; }

}  // namespace

bool needs_values(const Flow& flow) {
  switch (flow.kind) {
    case FlowKind::kMove:
      return flow.steers != 0;
    case FlowKind::kAny:
    case FlowKind::kNothing:
    case FlowKind::kUnion:
    case FlowKind::kSum:
    case FlowKind::kPack:
    case FlowKind::kHalves:
      return false;
    default:
      return true;
  }
}

void describe(const Inst& real, ShadowInst& in) {
  const Row& row = *real.row;
  in.real = &row;
  in.flow = row.flow;
  in.sources = count_sources(row);
  for (int i = 0; i < in.sources; ++i) {
    const OperandSpec spec = source_spec(row, i);
    if (spec.dwords == 2) in.wide |= static_cast<u8>(1 << i);
    if (!in.flow.look[i]) in.flow.look[i] = type_bits(spec.type);
  }
  in.result = row.dst.used() ? type_bits(row.dst.type) : ~0u;
  // Saturation looks at all bits.
  if (real.clamp && in.flow.kind == FlowKind::kSum) in.flow.kind = FlowKind::kAny;
}

void capture(LaneArgs& a) {
  auto& in = const_cast<ShadowInst&>(shadow_inst(a));
  for (int i = 0; i < in.sources; ++i)
    if (has_source(*in.real, i))
      std::memcpy(in.value[i], a.src[i], sizeof(Reg) * ((in.wide >> i & 1) ? 2 : 1));
  in.mask_value = a.mask_in;
}

Compute compute_of(const Flow& flow) {
  switch (flow.kind) {
    case FlowKind::kAny:
      return compute_any;
    case FlowKind::kMove:
      return compute_move;
    default:
      return compute_rule;
  }
}

}  // namespace vdev::taint
