// The modifier path of vector ALU instructions: neg, abs, op_sel, DPP and SDWA on the way in;
// omod, clamp, op_sel and SDWA on the way out; DPP's lane masks.
#include "isa/lane.h"
#include "numerics/float_rules.h"

namespace vdev {

namespace {

// A float whose sign is bit 15.
bool is_half(Type t) { return t == Type::kF16 || t == Type::kBf16; }
bool is_16bit(Type t) {
  return is_half(t) || t == Type::kB16 || t == Type::kI16 || t == Type::kU16;
}

// The lane that DPP reads for `lane`, or -1 where there is none.
int dpp_source(u32 ctrl, int lane) {
  const int row = lane & ~15, in_row = lane & 15;
  if (ctrl <= 0xff) return (lane & ~3) | (ctrl >> 2 * (lane & 3) & 3);  // quad_perm
  const int n = static_cast<int>(ctrl & 15);
  if (ctrl >= 0x101 && ctrl <= 0x10f) return in_row + n <= 15 ? lane + n : -1;  // row_shl
  if (ctrl >= 0x111 && ctrl <= 0x11f) return in_row >= n ? lane - n : -1;       // row_shr
  if (ctrl >= 0x121 && ctrl <= 0x12f) return row | ((in_row - n) & 15);         // row_ror
  if (ctrl >= 0x150 && ctrl <= 0x15f) return row | n;                           // row_newbcast
  switch (ctrl) {
    case 0x130:
      return lane < 63 ? lane + 1 : -1;  // wave_shl
    case 0x134:
      return (lane + 1) & 63;  // wave_rol
    case 0x138:
      return lane - 1;  // wave_shr
    case 0x13c:
      return (lane - 1) & 63;  // wave_ror
    case 0x140:
      return row | (15 - in_row);  // row_mirror
    case 0x141:
      return (lane & ~7) | (7 - (lane & 7));  // row_half_mirror
    case 0x142:
      return row >= 16 ? row - 1 : -1;  // row_bcast:15
    case 0x143:
      return lane >= 32 ? 31 : -1;  // row_bcast:31
    default:
      raise(FaultKind::kIllegalInstruction, "reserved DPP control");
  }
}

u32 select(u32 value, u8 sel, bool sext) {
  if (sel <= 3) {
    const u32 byte = value >> 8 * sel & 0xff;
    return sext ? static_cast<u32>(static_cast<i32>(static_cast<i8>(byte))) : byte;
  }
  if (sel <= 5) {
    const u32 word = value >> 16 * (sel - 4) & 0xffff;
    return sext ? static_cast<u32>(static_cast<i32>(static_cast<i16>(word))) : word;
  }
  return value;
}

// Copies a source into w.tmp[slot...] so that it can be changed there.
Reg* own(Wave& w, const Reg* source, int dwords, int slot) {
  if (source != &w.tmp[slot]) std::memcpy(&w.tmp[slot], source, sizeof(Reg) * dwords);
  return &w.tmp[slot];
}

// Returns the lanes for which DPP provides a value; others read 0 (bound_ctrl) or are masked.
u64 apply_dpp(const Wave& w, const Inst& in, Reg* regs, int dwords) {
  const u64 exec = w.exec();
  u64 valid = 0;
  Reg out[2];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int from = dpp_source(in.dpp_ctrl, lane);
    const bool ok = from >= 0 && (exec >> from & 1);
    for (int d = 0; d < dwords; ++d) out[d].lane[lane] = ok ? regs[d].lane[from] : 0;
    if (ok) valid |= u64{1} << lane;
  }
  std::memcpy(regs, out, sizeof(Reg) * dwords);
  return valid;
}

void apply_sign(const Inst& in, int i, Type type, Reg* regs) {
  const bool abs = in.abs >> i & 1, neg = in.neg >> i & 1;
  if (!abs && !neg) return;
  const bool half = is_half(type);
  u32* words = type_dwords(type) == 2 ? regs[1].lane : regs[0].lane;
  const u32 sign = half ? 0x8000u : 0x80000000u;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (abs) words[lane] &= ~sign;
    if (neg) words[lane] ^= sign;
  }
}

const Reg* fetch(Wave& w, const Inst& in, int i, u64& valid) {
  const OperandSpec spec = in.row->src[i];
  const int slot = 2 * i, dwords = spec.dwords;
  const Reg* source = lanes(w, in.src[i], dwords, slot);
  const bool dpp = in.suffix == Suffix::kDpp && i == 0;
  const bool sdwa =
      in.suffix == Suffix::kSdwa && i < 2 && (in.src_sel[i] != 6 || (in.sext >> i & 1));
  const bool high = in.suffix == Suffix::kPlain && is_16bit(spec.type) && (in.op_sel >> i & 1);
  if (!dpp && !sdwa && !high && !((in.abs | in.neg) >> i & 1)) return source;
  Reg* regs = own(w, source, dwords, slot);
  if (dpp) valid &= apply_dpp(w, in, regs, dwords);
  if (sdwa)
    for (u32& word : regs->lane) word = select(word, in.src_sel[i], in.sext >> i & 1);
  if (high)
    for (u32& word : regs->lane) word >>= 16;
  apply_sign(in, i, spec.type, regs);
  return regs;
}

template <class F>
BitsOf<F> clamped(Arg<F> x, const Inst& in, const Wave& w) {
  return in.clamp ? clamp01<F>(x, w.fp) : x;
}

void apply_output(const Wave& w, const Inst& in, Reg* regs) {
  const Type type = in.row->dst.type;
  if (!in.omod && !in.clamp) return;
  for (int lane = 0; lane < kLanes; ++lane) {
    u32& lo = regs[0].lane[lane];
    switch (type) {
      case Type::kF32:
        lo = clamped<F32>(apply_omod<F32>(lo, in.omod, w.fp), in, w);
        break;
      case Type::kF16:
        lo = clamped<F16>(apply_omod<F16>(lo, in.omod, w.fp), in, w);
        break;
      case Type::kF64: {
        const u64 value = lo | u64{regs[1].lane[lane]} << 32;
        const u64 out = clamped<F64>(apply_omod<F64>(value, in.omod, w.fp), in, w);
        lo = static_cast<u32>(out);
        regs[1].lane[lane] = static_cast<u32>(out >> 32);
        break;
      }
      default:
        break;  // integer clamp is part of the computation: it needs the carry
    }
  }
}

// Writes a sub-dword result into the old destination as SDWA or op_sel says.
u32 deposit(u32 old, u32 value, u8 sel, u8 unused) {
  if (sel >= 6) return value;
  const int bits = sel <= 3 ? 8 : 16;
  const int shift = sel <= 3 ? 8 * sel : 16 * (sel - 4);
  const u32 field = ((1u << bits) - 1) << shift;
  const u32 placed = value << shift & field;
  if (unused == 2) return (old & ~field) | placed;
  if (unused == 1) {  // sign-extend upwards, zeros below
    const u32 sign = value >> (bits - 1) & 1;
    const u32 above = shift + bits < 32 ? ~0u << (shift + bits) : 0;
    return placed | (sign ? above : 0);
  }
  return placed;
}

}  // namespace

Reg signed_source(Wave& w, const Inst& in, int i) {
  Reg r = *lanes(w, in.src[i], 1, 2 * i);
  for (u32& word : r.lane) {
    if (in.abs >> i & 1) word &= 0x7fffffff;
    if (in.neg >> i & 1) word ^= 0x80000000;
  }
  return r;
}

void exec_modified(Wave& w, const Inst& in) {
  const Row& row = *in.row;
  LaneArgs a;
  a.wave = &w;
  a.inst = &in;
  a.mask_in = 0;
  a.mask_out = 0;
  u64 valid = ~u64{0};
  for (int i = 0; i < 3; ++i) {
    if (row.src[i].type == Type::kMask) {
      a.mask_in = read_scalar64(w, in.src[i]);
    } else if (row.src[i].used()) {
      a.src[i] = fetch(w, in, i, valid);
    }
  }
  if (row.effects & kReadsVcc) a.mask_in = w.vcc();
  if ((row.effects & kReadsDst) && !row.src[2].used()) a.src[2] = vector(w, in.dst);
  const int dwords = row.dst.dwords;
  a.dst = &w.tmp[6];
  row.compute(a);

  u64 mask = w.exec();
  if (in.suffix == Suffix::kDpp) {
    u64 banks = 0;
    for (int lane = 0; lane < kLanes; ++lane)
      if ((in.row_mask >> (lane >> 4) & 1) && (in.bank_mask >> (lane >> 2 & 3) & 1))
        banks |= u64{1} << lane;
    mask &= banks;
    if (!in.bound_ctrl) mask &= valid;
  }
  if (row.dst.used()) {
    apply_output(w, in, a.dst);
    Reg* dst = vector(w, in.dst);
    const bool to_high = in.suffix == Suffix::kPlain && is_16bit(row.dst.type) && (in.op_sel & 8);
    if (in.suffix == Suffix::kSdwa && in.dst_sel < 6) {
      for (int lane = 0; lane < kLanes; ++lane)
        a.dst->lane[lane] = deposit(dst->lane[lane], a.dst->lane[lane], in.dst_sel, in.dst_unused);
    } else if (to_high || (row.effects & kD16)) {
      for (int lane = 0; lane < kLanes; ++lane)
        a.dst->lane[lane] = deposit(dst->lane[lane], a.dst->lane[lane], to_high ? 5 : 4, 2);
    }
    merge(dst, a.dst, dwords, mask);
  }
  if (row.sdst.used()) {
    w.set_pair(in.sdst.index, a.mask_out & mask);
    if (row.effects & kWritesExec) w.set_pair(kExec, a.mask_out & mask);
  }
}

}  // namespace vdev
