// VOP3P: packed 16-bit and packed f32 arithmetic, mixed-precision FMA, dot products, AGPR moves.
#include "isa/dot.h"
#include "isa/lane.h"
#include "isa/tables.h"
#include "numerics/half.h"

namespace vdev {
namespace {

using enum FlowKind;

constexpr Format kF = Format::kVop3p;

// ---- packed 16-bit: the function computes one half --------------------------------------------

// The half of a source that feeds the low (high) result: op_sel (op_sel_hi) picks it, neg_lo
// (neg_hi) flips the sign of a float.
u16 half(u32 word, const Inst& in, int i, bool high, bool is_float) {
  const u8 select = high ? in.op_sel_hi : in.op_sel, negate = high ? in.neg_hi : in.neg;
  const u16 x = static_cast<u16>(select >> i & 1 ? word >> 16 : word);
  return is_float && (negate >> i & 1) ? x ^ 0x8000 : x;
}

template <auto Fn, int kSources, bool kIsFloat>
void exec_packed16(Wave& w, const Inst& in) {
  const Reg* source[3];
  for (int i = 0; i < kSources; ++i) source[i] = lanes(w, in.src[i], 1, 2 * i);
  Reg out;
  for (int lane = 0; lane < kLanes; ++lane) {
    u32 result = 0;
    for (int h = 0; h < 2; ++h) {
      u16 x[3] = {};
      for (int i = 0; i < kSources; ++i) x[i] = half(source[i]->lane[lane], in, i, h, kIsFloat);
      u16 r;
      if constexpr (kSources == 3)
        r = Fn(w.fp, x[0], x[1], x[2], in.clamp);
      else
        r = Fn(w.fp, x[0], x[1], in.clamp);
      if (kIsFloat && in.clamp) r = static_cast<u16>(clamp01<F16>(r, w.fp));
      result |= u32{r} << 16 * h;
    }
    out.lane[lane] = result;
  }
  merge(vector(w, in.dst), &out, 1, w.exec());
}

template <auto Fn>
constexpr Row packed_float(u16 opcode, const char* name) {
  constexpr int n = std::is_invocable_v<decltype(Fn), const FpMode&, u16, u16, u16, bool> ? 3 : 2;
  Row row = vector_row(kF, opcode, name, exec_packed16<Fn, n, true>, Type::kPkF16,
                       {Type::kPkF16, Type::kPkF16}, Unit::kValuPacked16, kFloat | kReadsMode);
  if (n == 3) row.src[2] = Type::kPkF16;
  return row.flows(kPacked16);
}
template <auto Fn>
constexpr Row packed_int(u16 opcode, const char* name, Type type) {
  constexpr int n = std::is_invocable_v<decltype(Fn), const FpMode&, u16, u16, u16, bool> ? 3 : 2;
  Row row = vector_row(kF, opcode, name, exec_packed16<Fn, n, false>, type, {type, type},
                       Unit::kValuPacked16);
  if (n == 3) row.src[2] = type;
  return row.flows(kPacked16);
}

constexpr u16 saturate_i(i32 x, bool clamp) {
  if (clamp) x = x > INT16_MAX ? INT16_MAX : x < INT16_MIN ? INT16_MIN : x;
  return static_cast<u16>(x);
}
constexpr u16 saturate_u(i64 x, bool clamp) {
  if (clamp) x = x > UINT16_MAX ? UINT16_MAX : x < 0 ? 0 : x;
  return static_cast<u16>(x);
}
constexpr i32 s(u16 x) { return static_cast<i16>(x); }

// ---- packed f32: two independent f32 operations ------------------------------------------------

const Reg* negated(Wave& w, const Reg* source, int slot) {
  for (int lane = 0; lane < kLanes; ++lane)
    w.tmp[slot].lane[lane] = source->lane[lane] ^ 0x80000000;
  return &w.tmp[slot];
}

template <auto Fn>
void exec_packed32(Wave& w, const Inst& in) {
  constexpr int kSources = static_cast<int>(lane_detail::SignatureOf<Fn>::kArity);
  const Reg* source[3];
  for (int i = 0; i < kSources; ++i) source[i] = lanes(w, in.src[i], 2, 2 * i);
  const u64 exec = w.exec();
  // Each result half reads only its own half of every source unless op_sel says otherwise, so that
  // plain instructions can write in place.
  const bool direct = in.plain && exec == ~u64{0};
  Reg* dst = vector(w, in.dst);
  Reg* out = direct ? dst : &w.tmp[6];
  for (int h = 0; h < 2; ++h) {
    const u8 select = h ? in.op_sel_hi : in.op_sel, negate = h ? in.neg_hi : in.neg;
    LaneArgs a;
    a.wave = &w;
    a.inst = &in;
    for (int i = 0; i < kSources; ++i) {
      a.src[i] = source[i] + (select >> i & 1);
      if (negate >> i & 1) a.src[i] = negated(w, a.src[i], 8 + i);
    }
    a.dst = out + h;
    lane_detail::compute<Fn>(a);
    if (in.clamp)
      for (u32& word : a.dst->lane) word = clamp01<F32>(word, w.fp);
  }
  if (!direct) merge(dst, out, 2, exec);
}
template <auto Fn>
constexpr Row packed32(u16 opcode, const char* name) {
  Row row = vector_row(kF, opcode, name, exec_packed32<Fn>, Type::kPkF32,
                       {Type::kPkF32, Type::kPkF32}, Unit::kValuPacked32, kFloat | kReadsMode);
  if (lane_detail::SignatureOf<Fn>::kArity == 3) row.src[2] = Type::kPkF32;
  return row.flows(kPacked32);
}

// The low result comes from src0, the high one from src1; op_sel picks their halves.
void pk_mov_b32(Wave& w, const Inst& in) {
  const Reg* a = lanes(w, in.src[0], 2, 0) + (in.op_sel & 1);
  const Reg* b = lanes(w, in.src[1], 2, 2) + (in.op_sel >> 1 & 1);
  const Reg out[2] = {*a, *b};
  merge(vector(w, in.dst), out, 2, w.exec());
}

// ---- v_fma_mix: op_sel_hi says which sources are f16, op_sel which half of them
// ------------------

f32 mixed(u32 word, const Inst& in, int i, const FpMode& m) {
  u32 bits = word;
  if (in.op_sel_hi >> i & 1)
    bits = f16_to_f32(static_cast<u16>(in.op_sel >> i & 1 ? word >> 16 : word), m);
  if (in.abs >> i & 1) bits &= 0x7fffffff;
  if (in.neg >> i & 1) bits ^= 0x80000000;
  return bit_cast<f32>(bits);
}

// kResult: 0 f32, 1 f16 in the low half, 2 f16 in the high half; the other half is kept.
template <int kResult>
void fma_mix(Wave& w, const Inst& in) {
  const Reg* source[3];
  for (int i = 0; i < 3; ++i) source[i] = lanes(w, in.src[i], 1, 2 * i);
  Reg* dst = vector(w, in.dst);
  for_lanes(w.exec(), [&](int lane) {
    const f32 a = mixed(source[0]->lane[lane], in, 0, w.fp),
              b = mixed(source[1]->lane[lane], in, 1, w.fp),
              c = mixed(source[2]->lane[lane], in, 2, w.fp);
    u32 r = bit_cast<u32>(std::fma(a, b, c));
    r = fix_nan<F32>(r, w.fp, bit_cast<u32>(a), bit_cast<u32>(b), bit_cast<u32>(c));
    u32& d = dst->lane[lane];
    if constexpr (kResult == 0) {
      d = in.clamp ? clamp01<F32>(r, w.fp) : r;
    } else {
      u16 x = cvt_f16_f32(r, w.fp);
      if (in.clamp) x = static_cast<u16>(clamp01<F16>(x, w.fp));
      d = kResult == 1 ? (d & 0xffff0000) | x : (d & 0xffff) | u32{x} << 16;
    }
  });
}
constexpr const char* kMixNote = "f32 FMA; the f16 forms round its result a second time";

// ---- dot products -------------------------------------------------------------------------------

template <auto Fn>
void dot2(Wave& w, const Inst& in) {
  const Reg* source[3];
  for (int i = 0; i < 3; ++i) source[i] = lanes(w, in.src[i], 1, 2 * i);
  Reg* dst = vector(w, in.dst);
  for_lanes(w.exec(), [&](int lane) {
    u32 x[2];
    for (int i = 0; i < 2; ++i) {
      const u32 word = source[i]->lane[lane];
      x[i] = half(word, in, i, false, true) | u32{half(word, in, i, true, true)} << 16;
    }
    u32 c = source[2]->lane[lane];
    if (in.neg >> 2 & 1) c ^= 0x80000000;
    u32 r = bit_cast<u32>(Fn(x[0], x[1], bit_cast<f32>(c)));
    if (is_nan<F32>(r)) r = is_nan<F32>(c) ? propagate_nan<F32>(w.fp, c, c) : F32::kDefaultNan;
    dst->lane[lane] = in.clamp ? clamp01<F32>(r, w.fp) : r;
  });
}
void dot2_bf16(Wave& w, const Inst& in) {
  MxcsrScope scope(kMxcsrModeMask, kMxcsrNearestFlushing);
  dot2<dot2_f32_bf16>(w, in);
}
template <auto Fn>
void exec_dot(Wave& w, const Inst& in) {
  const Reg* source[3];
  for (int i = 0; i < 3; ++i) source[i] = lanes(w, in.src[i], 1, 2 * i);
  Reg* dst = vector(w, in.dst);
  for_lanes(w.exec(), [&](int lane) {
    dst->lane[lane] = static_cast<u32>(
        Fn(source[0]->lane[lane], source[1]->lane[lane], source[2]->lane[lane], in.clamp));
  });
}
template <auto Fn>
constexpr Row dot_row(u16 opcode, const char* name, Type type) {
  return vector_row(kF, opcode, name, exec_dot<Fn>, type, {Type::kB32, Type::kB32, type},
                    Unit::kValuDot);
}

void accvgpr_copy(Wave& w, const Inst& in) {
  merge(vector(w, in.dst), lanes(w, in.src[0], 1, 0), 1, w.exec());
}

using M = const FpMode&;
constexpr auto kMadI16 = [](M, u16 a, u16 b, u16 c, bool k) {
  return saturate_i(s(a) * s(b) + s(c), k);
};
constexpr auto kMadU16 = [](M, u16 a, u16 b, u16 c, bool k) {
  return saturate_u(i64{a} * b + c, k);
};
constexpr auto kMinimum3F16 = [](M m, u16 a, u16 b, u16 c, bool) {
  return minimum3<F16>(a, b, c, m);
};
constexpr auto kMaximum3F16 = [](M m, u16 a, u16 b, u16 c, bool) {
  return maximum3<F16>(a, b, c, m);
};
constexpr auto kFmaF16 = [](M m, u16 a, u16 b, u16 c, bool) { return fma_f16(a, b, c, m); };

// clang-format off
constexpr Row kVop3p[] = {
    packed_int<kMadI16>(0x00, "v_pk_mad_i16", Type::kPkI16),
    packed_int<[](M, u16 a, u16 b, bool) { return static_cast<u16>(u32{a} * b); }>(0x01, "v_pk_mul_lo_u16", Type::kPkU16),
    packed_int<[](M, u16 a, u16 b, bool k) { return saturate_i(s(a) + s(b), k); }>(0x02, "v_pk_add_i16", Type::kPkI16),
    packed_int<[](M, u16 a, u16 b, bool k) { return saturate_i(s(a) - s(b), k); }>(0x03, "v_pk_sub_i16", Type::kPkI16),
    packed_int<[](M, u16 a, u16 b, bool) { return static_cast<u16>(b << (a & 15)); }>(0x04, "v_pk_lshlrev_b16", Type::kPkB16),
    packed_int<[](M, u16 a, u16 b, bool) { return static_cast<u16>(b >> (a & 15)); }>(0x05, "v_pk_lshrrev_b16", Type::kPkB16),
    packed_int<[](M, u16 a, u16 b, bool) { return static_cast<u16>(s(b) >> (a & 15)); }>(0x06, "v_pk_ashrrev_i16", Type::kPkI16),
    packed_int<[](M, u16 a, u16 b, bool) { return s(a) < s(b) ? b : a; }>(0x07, "v_pk_max_i16", Type::kPkI16),
    packed_int<[](M, u16 a, u16 b, bool) { return s(a) < s(b) ? a : b; }>(0x08, "v_pk_min_i16", Type::kPkI16),
    packed_int<kMadU16>(0x09, "v_pk_mad_u16", Type::kPkU16),
    packed_int<[](M, u16 a, u16 b, bool k) { return saturate_u(i64{a} + b, k); }>(0x0a, "v_pk_add_u16", Type::kPkU16),
    packed_int<[](M, u16 a, u16 b, bool k) { return saturate_u(i64{a} - b, k); }>(0x0b, "v_pk_sub_u16", Type::kPkU16),
    packed_int<[](M, u16 a, u16 b, bool) { return a < b ? b : a; }>(0x0c, "v_pk_max_u16", Type::kPkU16),
    packed_int<[](M, u16 a, u16 b, bool) { return a < b ? a : b; }>(0x0d, "v_pk_min_u16", Type::kPkU16),
    packed_float<kFmaF16>(0x0e, "v_pk_fma_f16"),
    packed_float<[](M m, u16 a, u16 b, bool) { return add_f16(a, b, m); }>(0x0f, "v_pk_add_f16"),
    packed_float<[](M m, u16 a, u16 b, bool) { return mul_f16(a, b, m); }>(0x10, "v_pk_mul_f16"),
    packed_float<[](M m, u16 a, u16 b, bool) { return static_cast<u16>(min_num<F16>(a, b, m)); }>(0x11, "v_pk_min_f16"),
    packed_float<[](M m, u16 a, u16 b, bool) { return static_cast<u16>(max_num<F16>(a, b, m)); }>(0x12, "v_pk_max_f16"),
    vector_row(kF, 0x1a, "v_dot2_f32_bf16", dot2_bf16, Type::kF32, {Type::kPkBf16, Type::kPkBf16, Type::kF32}, Unit::kValuDot,
               kFloat | kReadsMode, Fidelity::kModelled, kDot2Note).only(kCdna4),
    packed_float<kMinimum3F16>(0x1b, "v_pk_minimum3_f16").only(kCdna4),
    packed_float<kMaximum3F16>(0x1c, "v_pk_maximum3_f16").only(kCdna4),
    vector_row(kF, 0x20, "v_fma_mix_f32", fma_mix<0>, Type::kF32, {Type::kF32, Type::kF32, Type::kF32}, Unit::kValu,
               kFloat | kReadsMode).with(Trait::kMix).flows(kMix),
    vector_row(kF, 0x21, "v_fma_mixlo_f16", fma_mix<1>, Type::kF16, {Type::kF32, Type::kF32, Type::kF32}, Unit::kValu,
               kFloat | kReadsMode | kReadsDst | kD16, Fidelity::kModelled, kMixNote).with(Trait::kMix).flows(kMix),
    vector_row(kF, 0x22, "v_fma_mixhi_f16", fma_mix<2>, Type::kF16, {Type::kF32, Type::kF32, Type::kF32}, Unit::kValu,
               kFloat | kReadsMode | kReadsDst | kD16, Fidelity::kModelled, kMixNote).with(Trait::kMix | Trait::kHighHalf).flows(kMix),
    vector_row(kF, 0x23, "v_dot2_f32_f16", dot2<dot2_f32_f16>, Type::kF32, {Type::kPkF16, Type::kPkF16, Type::kF32}, Unit::kValuDot,
               kFloat | kReadsMode, Fidelity::kModelled, kDot2Note),
    dot_row<dot2_i32_i16>(0x26, "v_dot2_i32_i16", Type::kI32),
    dot_row<dot2_u32_u16>(0x27, "v_dot2_u32_u16", Type::kU32),
    dot_row<dot4_i32_i8>(0x28, "v_dot4_i32_i8", Type::kI32).with(Trait::kWholeSources),
    dot_row<dot4_u32_u8>(0x29, "v_dot4_u32_u8", Type::kU32).with(Trait::kWholeSources),
    dot_row<dot8_i32_i4>(0x2a, "v_dot8_i32_i4", Type::kI32).with(Trait::kWholeSources),
    dot_row<dot8_u32_u4>(0x2b, "v_dot8_u32_u4", Type::kU32).with(Trait::kWholeSources),
    packed32<[](f32 a, f32 b, f32 c) { return std::fma(a, b, c); }>(0x30, "v_pk_fma_f32"),
    packed32<[](f32 a, f32 b) { return a * b; }>(0x31, "v_pk_mul_f32"),
    packed32<[](f32 a, f32 b) { return a + b; }>(0x32, "v_pk_add_f32"),
    vector_row(kF, 0x33, "v_pk_mov_b32", pk_mov_b32, Type::kPkF32, {Type::kPkF32, Type::kPkF32}, Unit::kValuPacked32).flows(kMoveWhole),
    vector_row(kF, 0x58, "v_accvgpr_read_b32", accvgpr_copy, Type::kB32, {Type::kB32}).with(Trait::kAgprSource).flows(kMoveWhole),
    vector_row(kF, 0x59, "v_accvgpr_write_b32", accvgpr_copy, Type::kB32, {Type::kB32}).with(Trait::kAgprResult).flows(kMoveWhole),
};
// clang-format on
static_assert(unique_opcodes(kVop3p));

}  // namespace

std::span<const Row> vop3p_rows() { return kVop3p; }

}  // namespace vdev
