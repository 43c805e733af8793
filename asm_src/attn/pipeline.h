// The main loop of attention forward: one wave's registers, and what the steps of attn/schedule.h
// do with them.
#pragma once
#include "attn/kv_loads.h"
#include "attn/mask.h"
#include "attn/output.h"
#include "attn/work.h"
#include "isa/acc.h"
#include "isa/ordered.h"
#include "isa/ordered_blocks.h"
#include "isa/unroll.h"
#include "isa/valu.h"
#include "tile/buffer.h"
#include "tile/mma.h"
#include "tile/reduce.h"
#include "tile/round.h"

// Of a 16-bit element in the bits of a float32: half a unit of its last place, which makes of a
// truncation a rounding, and those that it has.
template <Element kTo>
inline constexpr uint32_t kHalfUnit = kTo == Element::kBf16 ? 0x8000 : 0x1000;
template <Element kTo>
inline constexpr uint32_t kElementBits = ~(2 * kHalfUnit<kTo> - 1);

template <int kElements>
struct MatrixOperand {
  using Type = bf16x8;
};
template <>
struct MatrixOperand<4> {
  using Type = bf16x4;
};

// ---- Registers that live across units. O and most of Q are in the accumulation registers.
template <class S>
struct Operands {
  bf16x8 q[S::kTilesQ == S::kTilesQAcc ? 1 : S::kTilesQ - S::kTilesQAcc][S::kReadsK];
  bf16x8 k[S::kHalves][S::kReadsK];  // [half of the keys]
  bf16x8 v[S::kStepsKeys][S::kReadsV];
  // [S::set_of(unit)]: lane l has the keys S::key(n), from 4 * (l / kTile) on, of row l % kTile.
  FloatVector<S::kAccRegs> score[S::kSets][S::kHalves];
  // probabilities, likewise
  typename MatrixOperand<S::Target::kOperandElements>::Type p[S::kSets][S::kStepsKeys];

  template <int kUnit, int n>
  __device__ __forceinline__ float score_of() const {
    return score[kUnit][n / S::kAccRegs][n % S::kAccRegs];
  }
};

template <class S>
struct RowState {
  // Of a row: uniform.top minus its reference, in log2 units. A probability is 2^(score * scale +
  // this), and sums are relative to the same.
  float negative_ref[S::kTilesQ];
  float sum[S::kTilesQ];  // of a lane's share of the keys
  float unit_sum;
  // Sums of one probability a lane and unit, before and after rounding. Equal scores are all
  // rounded alike, which makes O wrong by the ratio of the two; the epilogue corrects it.
  float sample[S::kTilesQ], rounded_sample[S::kTilesQ];
  float unit_rounded_sample;
};

template <class S>
struct Softmax {  // of a unit
  using Seen = typename SeenOf<S::kDirect>::Type;
  float x[S::kLaneKeys];  // scaled scores, then probabilities, S::kBias times what they are
  // The same, ready to be truncated; of float16 pairs, at even places. If S::kRounds.
  uint32_t half_up[S::kLaneKeys];
  uint64_t exceeds;  // lanes
  Seen seen;         // if masked
};

struct Uniform {
  float scale;     // of the scores, log2 units; of capped ones, see Pipeline::capped()
  float cap_rate;  // if S::kCapped
  float top;       // log2 of the probability at the reference, its bias included
  float limit;     // of a lane's sum over a unit: beyond it the reference is renewed
  uint32_t low_halves, high_halves;  // of two registers, for v_perm_b32
};

// Of a SIMD's registers half are another workgroup's where two are on a CU.
template <class S>
__device__ __forceinline__ void reserve_registers() {
  if constexpr (S::kResidents == 1)
    reserve_acc();
  else
    reserve_96_acc();
}

// References beyond it are rounded by more than 2^-2, so that P at one is not what it should be.
inline constexpr float kFarReference = 0x1p22f;

template <class S>
struct Pipeline;

// What a step is, in unit kUnit of a block: attn/steps.h.
template <Step kStep>
struct Do {
  template <int kUnit, int n, bool kMasked, class S>
  static __device__ __forceinline__ void run(Pipeline<S>& loop);
};

template <class S>
struct Pipeline {
  using Plan = Schedule<S>;
  static constexpr int kN = S::kTilesQ;

  Operands<S> operand;
  RowState<S> row;
  KvLoads<S> load;
  LdsAddresses<S> lds;
  Mask mask;
  Uniform uniform;
  Softmax<S> softmax;
  int lane;  // of the wave

  // Scores of a tile: step kOp / kHalves along head_dim, of half kOp % kHalves of the keys.
  template <int kTileQ, int kOp, class Acc>
  __device__ __forceinline__ void multiply_keys(Acc& d) {
    constexpr int half = kOp % S::kHalves, step = kOp / S::kHalves;
    constexpr int octet = step / S::kOperandsOf16, part = step % S::kOperandsOf16;
    const auto keys = operand_of<S::kOperandsOf16>(operand.k[half][octet], part);
    if constexpr (kTileQ < S::kTilesQAcc) {
      constexpr int rows = S::template kAccQuery<kTileQ, octet> + 2 * part;
      if constexpr (step == 0)
        ordered::mma_acc_zero<S::kElement, rows>(d, keys);
      else
        ordered::mma_acc<S::kElement, rows>(d, keys);
    } else {
      const auto rows =
          operand_of<S::kOperandsOf16>(operand.q[kTileQ - S::kTilesQAcc][octet], part);
      if constexpr (step == 0)
        ordered::mma_zero<S::kElement>(d, keys, rows);
      else
        ordered::mma<S::kElement>(d, keys, rows);
    }
  }
  // Output of a unit, or of the last one of the block before: step kOp / kTilesD over the keys, a
  // tile of columns.
  template <int kUnit, int kOp>
  __device__ __forceinline__ void multiply_values() {
    constexpr int kTileQ = S::tile_of(kUnit), kSet = S::set_of(kUnit);
    constexpr int step = kOp / S::kTilesD, tile = kOp % S::kTilesD;
    const auto values = operand_of<S::kOperandsOf16>(operand.v[step][tile / S::kOperandsOf16],
                                                     tile % S::kOperandsOf16);
    ordered::mma_into_acc<S::kElement, S::kTile, S::template kAccOutput<kTileQ, tile>>(
        values, operand.p[kSet][step]);
  }

  // A unit: its softmax, scores of the next, output of the one before.
  template <int kUnit, bool kMasked, bool kExact>
  __device__ __forceinline__ void unit() {
    static_assert(Plan::template kTable<kUnit>.fits && Plan::closes());
    unroll<Plan::template kTable<kUnit>.count>([&]<int i>() {
      constexpr Placed step = Plan::template kTable<kUnit>.at[i];
      Do<step.step>::template run<kUnit, step.n, kMasked>(*this);
    });
    reserve_registers<S>();
    if (__builtin_expect(softmax.exceeds != 0, 0)) rescale<kUnit, kMasked, kExact>();
  }

  // Of scores y = 1 / (1 + 2^(rate * score)). A cap c makes it c tanh(score / c) = c - 2 c y
  // in log2 units; what follows computes with -2 c y, which is less by c: that is added where a
  // reference leaves the kernel.
  template <int kCount>
  __device__ __forceinline__ void cap(float (&x)[kCount]) const {
    for (float& one : x) one = ordered::v_mul_f32(uniform.cap_rate, one);
    for (float& one : x) one = ordered::v_exp_f32(one);
    for (float& one : x) one = ordered::v_add_f32_1(one);
    for (float& one : x) one = ordered::v_rcp_f32(one);
  }

  // The rare case: a row's reference is too small, or there is none yet, or a NaN. The reference is
  // raised by a power of two, which changes no bits of what there is: O, sums, and the unit's
  // probabilities, which float32 holds whatever they are in 16 bits. Rows whose reference does are
  // multiplied by 1, so that none depends on its neighbours.
  template <int kUnit, bool kMasked, bool kExact>
  __device__ __forceinline__ void rescale() {
    if constexpr (kExact) {
      renew_exactly<kUnit, kMasked>();
      return;
    }
    constexpr int kTileQ = S::tile_of(kUnit);
    float max = ordered::v_max_f32(softmax.x[0], softmax.x[1]);
    unroll_from<1, S::kLaneKeys / 2>(
        [&]<int i>() { max = ordered::v_max3_f32(softmax.x[2 * i], softmax.x[2 * i + 1], max); });
    const int above = v_frexp_exp_i32_f32(row_max(max)) - 1 - S::kTop;
    const int log2 = has_row(softmax.exceeds) ? most(above, 0) : 0;
    float by = v_ldexp_f32(1, -log2), by_unit = by, rest;
    float raised = row.negative_ref[kTileQ] - float(log2);
    const uint64_t endless = __builtin_amdgcn_ballot_w64(!(row.unit_sum < kEndless));
    int times = 1;
    if (__builtin_expect(endless != 0, false))
      times = renew<kUnit, kMasked>(endless, raised, by, by_unit, rest);
    ordered::v_mov_b32(row.negative_ref[kTileQ], raised);
    multiply_unit<kUnit, kMasked>(by_unit);
#pragma clang loop unroll(disable)
    for (; times > 0; --times, by = rest) multiply_sums<kTileQ>(by);
  }
  // Of a sum that is not finite, or hardly. Its rows have the greatest of these scores as
  // reference. What there is may be as large as probabilities are until then, and so count times
  // what is no float32: whether sums are to be multiplied by `rest` besides.
  static constexpr float kEndless = 0x1p120f, kFarBelow = -72;
  template <int kUnit, bool kMasked>
  __device__ __forceinline__ int renew(uint64_t endless, float& negative_ref, float& by,
                                       float& by_unit, float& rest) {
    constexpr int kTileQ = S::tile_of(kUnit);
    const bool is_renewed = has_row(endless);
    const float old = -row.negative_ref[kTileQ], kept_sum = row.unit_sum;
    float kept[S::kLaneKeys], x[S::kLaneKeys], scaled[S::kLaneKeys];
    for (int i = 0; i < S::kLaneKeys; ++i) kept[i] = softmax.x[i];
    const float renewed = v_max_f32(old, scale<kUnit, kMasked>(x, scaled) - uniform.top);
    const float ref = renewed == -kInf ? 0 : renewed;  // no key yet: P is 0, and come again
    ordered::v_mov_b32(row.negative_ref[kTileQ], -ref);
    repeat_probabilities<kUnit, kMasked>();
    negative_ref = is_renewed ? -renewed : negative_ref;
    for (int i = 0; i < S::kLaneKeys; ++i) softmax.x[i] = is_renewed ? softmax.x[i] : kept[i];
    row.unit_sum = is_renewed ? row.unit_sum : kept_sum;
    const float log2 = old - ref;
    const bool is_far = is_renewed && log2 < kFarBelow;
    const float renews = v_exp_f32(is_far ? log2 - kFarBelow : log2);
    by = is_renewed ? renews : by;
    rest = is_far ? 0x1p-72f : 1;
    by_unit = is_renewed ? 1 : by_unit;
    return __builtin_amdgcn_ballot_w64(is_far) == 0 ? 1 : 2;
  }
  template <int kUnit, bool kMasked>
  __device__ __forceinline__ void multiply_unit(float by) {
    for (float& x : softmax.x) x *= by;
    ordered::v_mul_f32_to(row.unit_sum, row.unit_sum, by);
    if constexpr (S::kRounds) repeat<Step::kRound, kUnit, kMasked, 0, S::kLaneKeys>();
    repeat<Step::kPack, kUnit, kMasked, 0, S::kLaneKeys / 2>();
    repeat<Step::kSample, kUnit, kMasked, 0, 1>();
  }
  // Of all rows, with the greatest score so far as reference.
  template <int kUnit, bool kMasked>
  __device__ __forceinline__ void renew_exactly() {
    constexpr int kTileQ = S::tile_of(kUnit);
    float x[S::kLaneKeys], scaled[S::kLaneKeys];
    const float max = scale<kUnit, kMasked>(x, scaled) - uniform.top;
    const float old = -row.negative_ref[kTileQ], renewed = v_max_f32(old, max);
    const float ref = renewed == -kInf ? 0 : renewed;
    exact_softmax<kUnit>(x, scaled, ref);
    ordered::v_mov_b32(row.negative_ref[kTileQ], -renewed);
    multiply_sums<kTileQ>(exp2_of_any(old - ref));
  }
  // The scores of a unit once more, as they are and scaled; the greatest of a row.
  template <int kUnit, bool kMasked>
  __device__ __forceinline__ float scale(float (&x)[S::kLaneKeys], float (&scaled)[S::kLaneKeys]) {
    float max = -kInf;
    using Seen = typename Softmax<S>::Seen;
    Seen seen{};
    if constexpr (kMasked)
      seen = mask.template further_down<Seen, S::tile_of(kUnit) * S::kTile, S::first_key(kUnit)>();
    unroll<S::kLaneKeys>([&]<int i>() {
      x[i] = operand.template score_of<S::set_of(kUnit), i>();
      if constexpr (S::kCapped) x[i] = ::v_rcp_f32(1 + ::v_exp_f32(x[i] * uniform.cap_rate));
      scaled[i] = x[i] * uniform.scale;
      if (kMasked && !seen.has(S::key(i))) scaled[i] = -kInf;
      if constexpr (i % 2 == 1) max = ordered::v_max3_f32(scaled[i - 1], scaled[i], max);
    });
    return row_max(max);
  }
  // Whether one of the lanes of this one's row is among them.
  static __device__ __forceinline__ bool has_row(uint64_t lanes) {
    uint32_t rows = uint32_t(lanes) | uint32_t(lanes >> 32);
    if constexpr (S::kGroups == 4) rows |= rows >> 16 | rows << 16;
    return __builtin_amdgcn_inverse_ballot_w64(uint64_t(rows) << 32 | rows);
  }
  template <int kTileQ>
  __device__ __forceinline__ void multiply_sums(float by) {
    ordered::v_mul_f32_to(row.sum[kTileQ], row.sum[kTileQ], by);
    ordered::v_mul_f32_to(row.sample[kTileQ], row.sample[kTileQ], by);
    ordered::v_mul_f32_to(row.rounded_sample[kTileQ], row.rounded_sample[kTileQ], by);
    // Some at a time: what reads a register right behind its copy from another one has to wait.
    constexpr int kAtOnce = 16;
    unroll<S::kAccRegs * S::kTilesD / kAtOnce>([&]<int kNth>() {
      constexpr int r = S::template kAccOutput<kTileQ, 0> + kAtOnce * kNth;
      f32x2 x[kAtOnce / 2];
      unroll<kAtOnce / 2>([&]<int i>() {
        x[i] = {v_accvgpr_read_b32<r + 2 * i>(), v_accvgpr_read_b32<r + 2 * i + 1>()};
      });
      for (auto& pair : x) pair *= by;
      unroll<kAtOnce>([&]<int i>() {
        const float one = x[i / 2][i % 2];  // elements of a vector cannot be cast
        v_accvgpr_write_b32<r + i>(bits(one));
      });
    });
  }

  // Now and then between blocks references are raised by powers of two before they must be, of all
  // rows whose sums so far ask for it at once: O is rescaled a tile at a time, and all four waves
  // wait for it, so that rows that are renewed one by one cost as much each.
  __device__ __forceinline__ bool outgrown(float by) const {
    float greatest = row.sum[0];
    unroll<(kN - 1) / 2>([&]<int n>() {
      greatest = ordered::v_max3_f32(row.sum[2 * n + 1], row.sum[2 * n + 2], greatest);
    });
    if constexpr (kN % 2 == 0) greatest = ordered::v_max_f32(row.sum[kN - 1], greatest);
    return __builtin_amdgcn_ballot_w64(greatest >= by) != 0;
  }
  // kLast: the unit before. log2_even: of a lane's sum if all of its keys had the probability that
  // the reference stands for.
  template <int kLast>
  __device__ __forceinline__ void raise_references(float outgrown, int log2_even) {
    float sum[kN];
    for (int t = 0; t < kN; ++t) sum[t] = row.sum[t];
    for (int other = S::kTile; other < kWaveLanes; other *= 2) {
      float there[kN];
      for (int t = 0; t < kN; ++t) there[t] = from_lane(sum[t], lane ^ other);
      for (int t = 0; t < kN; ++t) sum[t] = ordered::v_max_f32(sum[t], there[t]);
    }
    ordered::s_nop<Here::kWaitOf8Passes>();
    unroll<kN>([&]<int t>() {
      const int above = v_frexp_exp_i32_f32(sum[t]) - log2_even;
      const int log2 = sum[t] >= outgrown ? most(above, 0) : 0;
      if (__builtin_amdgcn_ballot_w64(log2 > 0) == 0) return;
      ordered::v_mov_b32(row.negative_ref[t], row.negative_ref[t] - float(log2));
      const float by = v_ldexp_f32(1, -log2);
      if constexpr (t == S::tile_of(kLast)) multiply_unit<kLast, false>(by);
      multiply_sums<t>(by);
    });
  }
  // Vector steps of a unit once more, kind by kind.
  template <Step kStep, int kUnit, bool kMasked, int kFrom, int kTo>
  __device__ __forceinline__ void repeat() {
    unroll_from<kFrom, kTo>([&]<int n>() { Do<kStep>::template run<kUnit, n, kMasked>(*this); });
  }
  template <int kUnit, bool kMasked>
  __device__ __forceinline__ void repeat_probabilities() {
    constexpr int kE = S::kLaneKeys;
    if constexpr (S::kCapped) {
      repeat<Step::kCapRate, kUnit, kMasked, 0, kE>();
      repeat<Step::kCapExp, kUnit, kMasked, 0, kE>();
      repeat<Step::kCapAdd, kUnit, kMasked, 0, kE>();
      repeat<Step::kCapRcp, kUnit, kMasked, 0, kE>();
    }
    repeat<Step::kScale, kUnit, kMasked, 0, kE>();
    repeat<Step::kExp, kUnit, kMasked, 0, kE>();
    repeat<Step::kSum, kUnit, kMasked, 1, kE>();
  }
  // As an online softmax has it: of any size, to nearest even. The sample is all of a lane's
  // probabilities.
  template <int kUnit>
  __device__ __forceinline__ void exact_softmax(const float (&x)[S::kLaneKeys],
                                                const float (&scaled)[S::kLaneKeys], float ref) {
    // Of a far reference as the scores are rounded, so that the greatest is at it.
    const bool is_far = __builtin_fabsf(ref) > kFarReference;
    float p[S::kLaneKeys], sum = 0, rounded_sum = 0;
    for (int i = 0; i < S::kLaneKeys; ++i) {
      const bool rounded = is_far || scaled[i] == -kInf;
      p[i] = exp2_of_any(rounded ? scaled[i] - ref : __builtin_fmaf(x[i], uniform.scale, -ref));
      sum += p[i];
    }
    uint32_t pair[S::kLaneKeys / 2];
    for (int n = 0; n < S::kLaneKeys / 2; ++n) {
      pair[n] = round_numbers<S::kElement, Rounding::kNearestEven>(p[2 * n], p[2 * n + 1]);
      rounded_sum += float_of<S::kElement>(pair[n] & 0xffff) + float_of<S::kElement>(pair[n] >> 16);
    }
    ordered::v_mov_b32(row.unit_sum, sum);
    ordered::v_mov_b32(softmax.x[kSampled], sum);
    ordered::v_mov_b32(row.unit_rounded_sample, rounded_sum);
    for (int step = 0; step < S::kStepsKeys; ++step) {
      auto& to = operand.p[S::set_of(kUnit)][step];
      if constexpr (S::kOperandsOf16 == 2) {
        ordered::v_mov_b64(to, bf16x4{pair[2 * step], pair[2 * step + 1]});
      } else {
        to = bf16x8{pair[4 * step], pair[4 * step + 1], pair[4 * step + 2], pair[4 * step + 3]};
        ordered::settle(to);
      }
    }
  }

  // A probability of a unit in the bits of a float32, to be truncated.
  template <int n>
  __device__ __forceinline__ uint32_t to_truncate() const {
    if constexpr (S::kRounds)
      return softmax.half_up[n];
    else
      return bits(softmax.x[n]);
  }
  // Over the lanes of a row.
  __device__ __forceinline__ float row_max(float x) const {
    if constexpr (S::kDirect) {
      uint32_t a = bits(x), b = a;
      ordered::settle(a);
      ordered::settle(b);
      ordered::s_nop<2>();
      ordered::v_permlane32_swap_b32(a, b);
      return ordered::v_max_f32(__builtin_bit_cast(float, a), __builtin_bit_cast(float, b));
    }
    int self = lane;
    ordered::settle(self);  // nothing of it is kept in registers over the loop
    for (int other = S::kTile; other < kWaveLanes; other *= 2)
      x = ordered::v_max_f32(x, from_lane(x, self ^ other));
    return x;
  }
};
