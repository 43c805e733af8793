// What each step of attn/step_types.h is: the instructions of one wave, in unit kUnit of a block.
#pragma once
#include "attn/pipeline.h"

#define STEP(name)                                   \
  template <>                                        \
  template <int kUnit, int n, bool kMasked, class S> \
  __device__ __forceinline__ void Do<Step::name>::run([[maybe_unused]] Pipeline<S>& loop)

// ---- Matrix
STEP(kScore) {
  loop.template multiply_keys<S::tile_of(kUnit + 1), n>(
      loop.operand.score[S::set_of(kUnit + 1)][n % S::kHalves]);
}

STEP(kOutput) { loop.template multiply_values<kUnit - 1, n>(); }

// ---- Softmax
STEP(kAddUnit) {
  ordered::v_accumulate_f32(loop.row.sum[S::tile_of(kUnit - 1)], loop.row.unit_sum);
}

STEP(kAddSample) {
  constexpr int before = S::tile_of(kUnit - 1);
  if constexpr (n == 0)
    ordered::v_accumulate_f32(loop.row.sample[before], loop.softmax.x[kSampled]);
  else
    ordered::v_accumulate_f32(loop.row.rounded_sample[before], loop.row.unit_rounded_sample);
}

STEP(kCapRate) {
  loop.softmax.x[n] = ordered::v_mul_f32(loop.uniform.cap_rate,
                                         loop.operand.template score_of<S::set_of(kUnit), n>());
}

STEP(kCapExp) { loop.softmax.x[n] = ordered::v_exp_f32(loop.softmax.x[n]); }

STEP(kCapAdd) { loop.softmax.x[n] = ordered::v_add_f32_1(loop.softmax.x[n]); }

STEP(kCapRcp) { loop.softmax.x[n] = ordered::v_rcp_f32(loop.softmax.x[n]); }

STEP(kScale) {
  float& x = loop.softmax.x[n];
  if constexpr (!S::kCapped) x = loop.operand.template score_of<S::set_of(kUnit), n>();
  x = ordered::v_fma_f32(x, loop.uniform.scale, loop.row.negative_ref[S::tile_of(kUnit)]);
  if constexpr (kMasked) {  // keys that the row does not see
    using Seen = typename Softmax<S>::Seen;
    auto& seen = loop.softmax.seen;
    if constexpr (n == 0)
      seen = loop.mask
                 .template further_down<Seen, S::tile_of(kUnit) * S::kTile, S::first_key(kUnit)>();
    if constexpr (S::kDirect)
      x = seen.template seen_or_minus_infinity<S::key(n)>(x);
    else if (!seen.has(S::key(n)))
      x = -kInf;
  }
}

STEP(kExp) { loop.softmax.x[n] = ordered::v_exp_f32(loop.softmax.x[n]); }

STEP(kSum) {
  loop.row.unit_sum =
      ordered::v_add_f32(n == 1 ? loop.softmax.x[0] : loop.row.unit_sum, loop.softmax.x[n]);
}

STEP(kRound) {
  auto& rounded = loop.softmax.half_up;
  if constexpr (S::kElement == Element::kF16 && n % 2 == 0)
    rounded[n] = ordered::v_fma_mixlo_f16(loop.softmax.x[n]);
  else if constexpr (S::kElement == Element::kF16)
    rounded[n - 1] = ordered::v_fma_mixhi_f16(rounded[n - 1], loop.softmax.x[n]);
  else
    loop.softmax.half_up[n] = ordered::v_add_u32<kHalfUnit<S::kElement>>(bits(loop.softmax.x[n]));
}

STEP(kSample) {
  if constexpr (S::kConverts)
    loop.row.unit_rounded_sample =
        upper_of<S::kElement>(loop.operand.p[S::set_of(kUnit)][kSampled / 8][kSampled / 2 % 4]);
  else if constexpr (S::kRounds && S::kElement == Element::kF16)
    loop.row.unit_rounded_sample = upper_of<S::kElement>(loop.softmax.half_up[kSampled / 2 * 2]);
  else
    loop.row.unit_rounded_sample = __builtin_bit_cast(
        float,
        ordered::v_and_b32<kElementBits<S::kElement>>(loop.template to_truncate<kSampled>()));
}

// P to 16 bits: converted, or what kRound has prepared truncated.
STEP(kPack) {
  constexpr int kPairs = S::Target::kOperandElements / 2;
  auto& to = loop.operand.p[S::set_of(kUnit)][n / kPairs];
  if constexpr (S::kConverts) {
    to[n % kPairs] = convert_pair<S::kElement>(loop.softmax.x[2 * n], loop.softmax.x[2 * n + 1]);
    return;
  }
  if constexpr (S::kRounds && S::kElement == Element::kF16) {  // a pair as it is rounded
    to[n % kPairs] = loop.softmax.half_up[2 * n];
    return;
  }
  const uint32_t lo = loop.template to_truncate<2 * n>();
  const uint32_t hi = loop.template to_truncate<2 * n + 1>();
  uint32_t pair;
  if constexpr (S::kElement == Element::kBf16)
    pair = ordered::v_perm_b32(hi, lo, loop.uniform.high_halves);
  else
    pair =
        ordered::v_cvt_pkrtz_f16_f32(__builtin_bit_cast(float, lo), __builtin_bit_cast(float, hi));
  to[n % kPairs] = pair;
}

// Whether a row's reference is too small: Pipeline::unit() then calls rescale().
STEP(kExceeds) {
  loop.softmax.exceeds = ordered::v_cmp_nlt_f32(loop.row.unit_sum, loop.uniform.limit);
}

// ---- LDS
// Of the first unit behind the next one that has other keys.
STEP(kReadK) { loop.lds.template read_keys<(kUnit + 2) % S::kUnits, n>(loop.operand); }

STEP(kReadV) { loop.lds.template read_values<kUnit, n>(loop.operand); }

STEP(kWriteV) { loop.lds.template write_values<n>(loop.load.transposed); }

STEP(kFlipReadK) {
  if constexpr (S::kDirect)
    ordered::v_xor_b32(loop.lds.read_k[n], loop.load.flip[Schedule<S>::kReadsAhead]);
  else
    ordered::v_xor_b32<S::kStageK>(loop.lds.read_k[n]);
}

STEP(kFlipReadV) {
  if constexpr (S::kDirect)
    ordered::v_xor_b32(loop.lds.read_v, loop.load.flip[0]);
  else
    ordered::v_xor_b32<S::kStageV>(loop.lds.read_v);
}

STEP(kFlipWriteV) {
  if constexpr (!S::kDirect) ordered::v_xor_b32<S::kStageV>(loop.lds.write_v);
}

// ---- Memory
STEP(kLoadV) { loop.load.template load_v<n>(); }

STEP(kSetM0) { loop.load.template set_m0<n>(); }

STEP(kLoadK) { loop.load.template load_k<n>(); }

STEP(kPrefetch) { loop.load.prefetch(); }

STEP(kNextPrefetch) { loop.load.next_prefetch(); }

STEP(kFlipM0) {
  if constexpr (S::kDirect)
    loop.load.flip_m0();
  else
    ordered::s_xor_b32<S::kStageK>(loop.load.m0);
}

STEP(kFlipFlips) {
  if constexpr (S::kDirect) loop.load.template flip_flips<n>();
}

STEP(kNextBlock) { loop.load.template next_block<n>(); }

STEP(kTranspose) {
  loop.load.template transpose<n>(loop.uniform.low_halves, loop.uniform.high_halves);
}

// ---- Waits. Loads of K and of V take turns.
STEP(kWaitK) { ordered::s_waitcnt<ordered::kAnyVm, n>(); }

STEP(kWaitV) { ordered::s_waitcnt<ordered::kAnyVm, n>(); }

STEP(kWaitStaged) {
  ordered::s_waitcnt<S::kLoadsK + Schedule<S>::kPrefetches, ordered::kAnyLgkm>();
}

STEP(kWaitBlock) {
  // With one tile what has been read by the last block was waited for, and more is under way.
  constexpr int kReads = Schedule<S>::kLone ? ordered::kAnyLgkm : 0;
  ordered::s_waitcnt<Schedule<S>::kLoadsBehind, kReads>();
}

// K and V that the waves have brought may be read; stages that they have read may be filled.
STEP(kBarrier) { ordered::s_barrier(); }

#undef STEP
