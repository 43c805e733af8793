// v_cvt_scalef32_*: conversions with a scale between f32, f16, bf16 and fp8, bf8, fp6, bf6, fp4.
#include "isa/lane.h"
#include "isa/scaled.h"
#include "isa/tables.h"
#include "numerics/scaled.h"
#include "numerics/stochastic.h"

namespace vdev {
namespace {

constexpr Format kF = Format::kVop3;

using F8 = Fp8<kCdna4>;
using B8 = Bf8<kCdna4>;

constexpr const char* kNote =
    "NaN and infinity saturate in fp6, bf6 and fp4 and seeds add as in HIP's host functions; "
    "denormals of f32 by MODE, others kept; overflow of f16 and bf16 by FP16_OVFL";

template <class F>
constexpr bool kIsWide =
    std::is_same_v<F, F32> || std::is_same_v<F, F16> || std::is_same_v<F, Bf16>;
template <class F>
constexpr u8 width() {
  if constexpr (kIsWide<F>)
    return 8 * sizeof(BitsOf<F>);
  else
    return F::kBits;
}

template <class To, class From>
inline u32 convert(u32 x, u32 scale, [[maybe_unused]] u32 seed, bool stochastic, const FpMode& m) {
  if constexpr (kIsWide<To>)
    return widen_scaled<To, From>(x, scale, m);
  else
    return stochastic ? narrow_scaled_sr<To, From>(x, scale, seed, m)
                      : narrow_scaled<To, From>(x, scale, m);
}

template <class To, class From, int kCount, bool kStochastic>
inline constexpr ScaledShape kShape = {
    .source_bits = width<From>(),
    .result_bits = width<To>(),
    .count = kCount,
    .narrows = !kIsWide<To>,
    .two_sources = std::is_same_v<From, F32> && kCount > 1 && !kStochastic,
    .stochastic = kStochastic,
};

// Every source of a lane is read before its result is written.
template <class To, class From, int kCount, bool kStochastic>
void exec(Wave& w, const Inst& in) {
  constexpr ScaledShape kS = kShape<To, From, kCount, kStochastic>;
  const Reg* source[3];
  for (int i = 0; i < 3; ++i)
    source[i] =
        i <= kS.scale_operand() ? lanes(w, in.src[i], in.row->src[i].dwords, 2 * i) : nullptr;
  const Reg* const scales = source[kS.scale_operand()];
  const u32 from = kS.source_at(in.op_sel), to = kS.result_at(in.op_sel);
  constexpr u32 kSign = 1u << (kS.source_bits - 1);
  Reg* const dst = vector(w, in.dst);
  for_lanes(w.exec(), [&](int lane) {
    const u32 scale = exponent_field<F32>(scales->lane[lane]);
    u32 seed = kStochastic ? source[1]->lane[lane] : 0;
    u32 out[kS.result_dwords()] = {};
    if constexpr (kS.keeps_rest()) out[0] = dst->lane[lane];
    for (u32 i = 0; i < kCount; ++i) {
      const auto [operand, place] = kS.place(i);
      u32 x = element(source[operand], lane, from + place * kS.source_bits, kS.source_bits);
      if (in.abs >> operand & 1) x &= ~kSign;
      if (in.neg >> operand & 1) x ^= kSign;
      put_element(out, to + i * kS.result_bits, kS.result_bits,
                  convert<To, From>(x, scale, seed, kStochastic, w.fp));
      if constexpr (kStochastic) seed = prng(seed);
    }
    for (int d = 0; d < kS.result_dwords(); ++d) dst[d].lane[lane] = out[d];
  });
}

// What a source holds: constants expand by it, and f32 and single elements have signs to change.
template <class From>
constexpr OperandSpec source_spec(const ScaledShape& s) {
  constexpr bool kF32 = std::is_same_v<From, F32>, kF16 = std::is_same_v<From, F16>;
  const u32 total = s.source_total();
  if (total > 64) return {Type::kRaw, static_cast<int>(total / 32)};
  if (!s.narrows) return Type::kB32;
  if (kF32) return total == 64 ? Type::kPkF32 : Type::kF32;
  if (total == 32) return kF16 ? Type::kPkF16 : Type::kPkBf16;
  return kF16 ? Type::kF16 : Type::kBf16;
}

template <class To, class From, int kCount, bool kStochastic = false>
constexpr Row scaled(u16 opcode, const char* name) {
  constexpr const ScaledShape& kS = kShape<To, From, kCount, kStochastic>;
  static_assert(kS.result_dwords() <= kMaxScaledDwords);
  const int dwords = kS.result_dwords();
  Row row = vector_row(kF, opcode, name, exec<To, From, kCount, kStochastic>,
                       dwords == 1   ? OperandSpec(Type::kB32)
                       : dwords == 2 ? OperandSpec(Type::kB64)
                                     : OperandSpec(Type::kRaw, dwords),
                       {source_spec<From>(kS)}, Unit::kValuConvert,
                       kReadsMode | (kS.keeps_rest() ? kReadsDst | kD16 : 0u), Fidelity::kModelled,
                       kNote);
  if (kS.two_sources) row.src[1] = row.src[0];
  if (kS.stochastic) row.src[1] = Type::kB32;
  row.src[kS.scale_operand()] = kCount == 32 ? Type::kB32 : Type::kF32;  // without a sign
  row.scaled = &kS;
  if (row.src[0].type == Type::kPkF32) row = row.with(Trait::kVectorSource);
  // An element of 32 a pass, of a slot each: assumed.
  if (kCount == 32) row = row.takes(kCount);
  const bool four = kS.scale_operand() == 2 || kS.result_total() == 8;
  return row.selects(four ? 4 : 3, kS.op_sel_mask()).flows(FlowKind::kScaled).only(kCdna4);
}

constexpr bool kSr = true;

// clang-format off
constexpr Row kScaled[] = {
    scaled<F8, F32, 2>(0x235, "v_cvt_scalef32_pk_fp8_f32"),
    scaled<B8, F32, 2>(0x236, "v_cvt_scalef32_pk_bf8_f32"),
    scaled<F8, F32, 1, kSr>(0x237, "v_cvt_scalef32_sr_fp8_f32"),
    scaled<B8, F32, 1, kSr>(0x238, "v_cvt_scalef32_sr_bf8_f32"),
    scaled<F32, F8, 2>(0x239, "v_cvt_scalef32_pk_f32_fp8"),
    scaled<F32, B8, 2>(0x23a, "v_cvt_scalef32_pk_f32_bf8"),
    scaled<F32, F8, 1>(0x23b, "v_cvt_scalef32_f32_fp8"),
    scaled<F32, B8, 1>(0x23c, "v_cvt_scalef32_f32_bf8"),
    scaled<Fp4, F32, 2>(0x23d, "v_cvt_scalef32_pk_fp4_f32"),
    scaled<Fp4, F32, 2, kSr>(0x23e, "v_cvt_scalef32_sr_pk_fp4_f32"),
    scaled<F32, Fp4, 2>(0x23f, "v_cvt_scalef32_pk_f32_fp4"),
    scaled<F8, F16, 2>(0x240, "v_cvt_scalef32_pk_fp8_f16"),
    scaled<B8, F16, 2>(0x241, "v_cvt_scalef32_pk_bf8_f16"),
    scaled<F8, F16, 1, kSr>(0x242, "v_cvt_scalef32_sr_fp8_f16"),
    scaled<B8, F16, 1, kSr>(0x243, "v_cvt_scalef32_sr_bf8_f16"),
    scaled<F8, Bf16, 2>(0x244, "v_cvt_scalef32_pk_fp8_bf16"),
    scaled<B8, Bf16, 2>(0x245, "v_cvt_scalef32_pk_bf8_bf16"),
    scaled<F8, Bf16, 1, kSr>(0x246, "v_cvt_scalef32_sr_fp8_bf16"),
    scaled<B8, Bf16, 1, kSr>(0x247, "v_cvt_scalef32_sr_bf8_bf16"),
    scaled<F16, F8, 2>(0x248, "v_cvt_scalef32_pk_f16_fp8"),
    scaled<F16, B8, 2>(0x249, "v_cvt_scalef32_pk_f16_bf8"),
    scaled<F16, F8, 1>(0x24a, "v_cvt_scalef32_f16_fp8"),
    scaled<F16, B8, 1>(0x24b, "v_cvt_scalef32_f16_bf8"),
    scaled<Fp4, F16, 2>(0x24c, "v_cvt_scalef32_pk_fp4_f16"),
    scaled<Fp4, Bf16, 2>(0x24d, "v_cvt_scalef32_pk_fp4_bf16"),
    scaled<Fp4, F16, 2, kSr>(0x24e, "v_cvt_scalef32_sr_pk_fp4_f16"),
    scaled<Fp4, Bf16, 2, kSr>(0x24f, "v_cvt_scalef32_sr_pk_fp4_bf16"),
    scaled<F16, Fp4, 2>(0x250, "v_cvt_scalef32_pk_f16_fp4"),
    scaled<Bf16, Fp4, 2>(0x251, "v_cvt_scalef32_pk_bf16_fp4"),
    scaled<Fp6, F32, 32>(0x252, "v_cvt_scalef32_2xpk16_fp6_f32"),
    scaled<Bf6, F32, 32>(0x253, "v_cvt_scalef32_2xpk16_bf6_f32"),
    scaled<Fp6, F32, 32, kSr>(0x254, "v_cvt_scalef32_sr_pk32_fp6_f32"),
    scaled<Bf6, F32, 32, kSr>(0x255, "v_cvt_scalef32_sr_pk32_bf6_f32"),
    scaled<F32, Fp6, 32>(0x256, "v_cvt_scalef32_pk32_f32_fp6"),
    scaled<F32, Bf6, 32>(0x257, "v_cvt_scalef32_pk32_f32_bf6"),
    scaled<Fp6, F16, 32>(0x258, "v_cvt_scalef32_pk32_fp6_f16"),
    scaled<Fp6, Bf16, 32>(0x259, "v_cvt_scalef32_pk32_fp6_bf16"),
    scaled<Bf6, F16, 32>(0x25a, "v_cvt_scalef32_pk32_bf6_f16"),
    scaled<Bf6, Bf16, 32>(0x25b, "v_cvt_scalef32_pk32_bf6_bf16"),
    scaled<Fp6, F16, 32, kSr>(0x25c, "v_cvt_scalef32_sr_pk32_fp6_f16"),
    scaled<Fp6, Bf16, 32, kSr>(0x25d, "v_cvt_scalef32_sr_pk32_fp6_bf16"),
    scaled<Bf6, F16, 32, kSr>(0x25e, "v_cvt_scalef32_sr_pk32_bf6_f16"),
    scaled<Bf6, Bf16, 32, kSr>(0x25f, "v_cvt_scalef32_sr_pk32_bf6_bf16"),
    scaled<F16, Fp6, 32>(0x260, "v_cvt_scalef32_pk32_f16_fp6"),
    scaled<Bf16, Fp6, 32>(0x261, "v_cvt_scalef32_pk32_bf16_fp6"),
    scaled<F16, Bf6, 32>(0x262, "v_cvt_scalef32_pk32_f16_bf6"),
    scaled<Bf16, Bf6, 32>(0x263, "v_cvt_scalef32_pk32_bf16_bf6"),
    scaled<Bf16, F8, 2>(0x269, "v_cvt_scalef32_pk_bf16_fp8"),
    scaled<Bf16, B8, 2>(0x26a, "v_cvt_scalef32_pk_bf16_bf8"),
};
// clang-format on
static_assert(unique_opcodes(kScaled));

}  // namespace

std::span<const Row> scaled_rows() { return kScaled; }

}  // namespace vdev
