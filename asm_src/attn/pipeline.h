// The main loop of attention forward: one wave's registers, and what the steps of attn/schedule.h
// do with them.
#pragma once
#include "attn/kv_loads.h"
#include "attn/output.h"
#include "attn/work.h"
#include "isa/acc.h"
#include "isa/ordered.h"
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
  // Of a row: top - what is called its reference, in log2 units. P is relative to a reference that
  // is less by top, and so are all sums.
  float negative_ref[S::kTilesQ];
  float sum[S::kTilesQ];  // of a lane's share of the keys
  float unit_sum;
  // Of one probability a lane and unit, before and after rounding. Many equal scores are all
  // rounded alike: their O is as much too great as the second is greater than the first.
  float sample[S::kTilesQ], rounded_sample[S::kTilesQ];
  float unit_rounded_sample;
};

// The keys that rows see; this block's keys count from 4 * lane group.
struct Mask {
  int from, to;  // of the lane's row of the wave's first tile
  int keys;      // that there are

  struct Keys {
    int from, to;
    __device__ __forceinline__ Keys() = default;
    __device__ __forceinline__ Keys(int its_from, int its_to) : from(its_from), to(its_to) {
      ordered::settle(from);
      ordered::settle(to);
    }
    __device__ __forceinline__ bool has(int key) const { return key < to && key >= from; }
  };
  // The same as bits: a selection by them has no wait states, as one by a comparison has.
  struct Bits {
    uint32_t unseen;  // of each of 32 keys
    __device__ __forceinline__ Bits() = default;
    __device__ __forceinline__ Bits(int from, int to) : unseen(from_bit(to) | ~from_bit(from)) {
      ordered::settle(unseen);
    }
    __device__ __forceinline__ bool has(int key) const { return (unseen >> key & 1) == 0; }
    template <int kKey>
    __device__ __forceinline__ float seen_or_minus_infinity(float x) const {
      return ordered::v_bfi_b32(ordered::v_bfe_i32<kKey, 1>(unseen), -kInf, x);
    }
    static __device__ __forceinline__ uint32_t from_bit(int n) {
      return ~uint64_t(0) << most(0, least(n, 32));
    }
  };
  // Settled, or the compiler keeps a constant for each tile and key in a register, and all of them
  // in the prologue of every workgroup.
  template <class Seen, int kRows, int kFirstKey>
  __device__ __forceinline__ Seen further_down() const {
    return Seen(from + kRows - kFirstKey, least(keys, to + kRows) - kFirstKey);
  }
  template <int kBlock>
  __device__ __forceinline__ void skip(int blocks) {
    from -= blocks * kBlock;
    to -= blocks * kBlock;
    keys -= blocks * kBlock;
  }
};

template <bool kDirect>
struct SeenOf {
  using Type = Mask::Keys;
};
template <>
struct SeenOf<true> {
  using Type = Mask::Bits;
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

  // The rare case: a row's reference is too small, or there is none yet, or a NaN. Rows whose
  // reference does keep it, and get once more what they have, so that none depends on its
  // neighbours.
  template <int kUnit, bool kMasked, bool kExact>
  __device__ __forceinline__ void rescale() {
    constexpr int kTileQ = S::tile_of(kUnit), kKeysHere = S::kLaneKeys;
    float x[kKeysHere], scaled[kKeysHere], max = -kInf;
    using Seen = typename Softmax<S>::Seen;
    Seen seen{};
    if constexpr (kMasked)
      seen = mask.template further_down<Seen, kTileQ * S::kTile, S::first_key(kUnit)>();
    unroll<kKeysHere>([&]<int i>() {
      x[i] = operand.template score_of<S::set_of(kUnit), i>();
      if constexpr (S::kCapped) x[i] = ::v_rcp_f32(1 + ::v_exp_f32(x[i] * uniform.cap_rate));
      scaled[i] = x[i] * uniform.scale;
      if (kMasked && !seen.has(S::key(i))) scaled[i] = -kInf;
      if constexpr (i % 2 == 1) max = ordered::v_max3_f32(scaled[i - 1], scaled[i], max);
    });
    max = row_max(max) - uniform.top;
    const bool exceeds = row_max(row.unit_sum < uniform.limit ? 0.0f : 1.0f) > 0;
    const float old = -row.negative_ref[kTileQ];
    const float renewed = exceeds ? v_max_f32(old, max) : old;
    const float ref = renewed == -kInf ? 0 : renewed;  // no key yet: P is 0, and come again
    const float by = exp2_of_any(old - ref);           // not 0, times which an infinity is none
    if constexpr (kExact) {
      exact_softmax<kUnit>(x, scaled, ref);
    } else {
      ordered::v_mov_b32(row.negative_ref[kTileQ], -ref);
      repeat_softmax<kUnit, kMasked>();
    }
    ordered::v_mov_b32(row.negative_ref[kTileQ], -renewed);
    multiply_sums<kTileQ>(by);
  }
  template <int kTileQ>
  __device__ __forceinline__ void multiply_sums(float by) {
    ordered::v_mov_b32(row.sum[kTileQ], row.sum[kTileQ] * by);
    ordered::v_mov_b32(row.sample[kTileQ], row.sample[kTileQ] * by);
    ordered::v_mov_b32(row.rounded_sample[kTileQ], row.rounded_sample[kTileQ] * by);
    unroll<S::kAccRegs * S::kTilesD / 2>([&]<int kPair>() {
      constexpr int r = S::template kAccOutput<kTileQ, 0> + 2 * kPair;
      const f32x2 x = f32x2{v_accvgpr_read_b32<r>(), v_accvgpr_read_b32<r + 1>()} * by;
      const float lo = x[0], hi = x[1];  // elements of a vector cannot be cast
      v_accvgpr_write_b32<r>(bits(lo));
      v_accvgpr_write_b32<r + 1>(bits(hi));
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
  // kLast: the unit before.
  template <int kLast>
  __device__ __forceinline__ void raise_references(float outgrown, int log2_lane_keys) {
    float sum[kN];
    for (int t = 0; t < kN; ++t) sum[t] = row.sum[t];
    for (int other = S::kTile; other < kWaveLanes; other *= 2) {
      float there[kN];
      for (int t = 0; t < kN; ++t) there[t] = from_lane(sum[t], lane ^ other);
      for (int t = 0; t < kN; ++t) sum[t] = ordered::v_max_f32(sum[t], there[t]);
    }
    ordered::s_nop<Here::kWaitOf8Passes>();
    unroll<kN>([&]<int t>() {
      const int above = v_frexp_exp_i32_f32(sum[t]) - S::kRaisedTop - log2_lane_keys;
      const int log2 = sum[t] >= outgrown ? most(above, 0) : 0;
      if (__builtin_amdgcn_ballot_w64(log2 > 0) == 0) return;
      ordered::v_mov_b32(row.negative_ref[t], row.negative_ref[t] - float(log2));
      multiply_sums<t>(v_ldexp_f32(1, -log2));
      if constexpr (t == S::tile_of(kLast)) repeat_softmax<kLast, false>();
    });
  }
  // The vector steps of a unit once more, kind by kind.
  template <int kUnit, bool kMasked>
  __device__ __forceinline__ void repeat_softmax() {
    const auto repeat = [&]<Step kStep, int kFrom, int kTo>() {
      unroll_from<kFrom, kTo>([&]<int n>() { Do<kStep>::template run<kUnit, n, kMasked>(*this); });
    };
    constexpr int kE = S::kLaneKeys;
    if constexpr (S::kCapped) {
      repeat.template operator()<Step::kCapRate, 0, kE>();
      repeat.template operator()<Step::kCapExp, 0, kE>();
      repeat.template operator()<Step::kCapAdd, 0, kE>();
      repeat.template operator()<Step::kCapRcp, 0, kE>();
    }
    repeat.template operator()<Step::kScale, 0, kE>();
    repeat.template operator()<Step::kExp, 0, kE>();
    repeat.template operator()<Step::kSum, 1, kE>();
    if constexpr (S::kRounds) repeat.template operator()<Step::kRound, 0, kE>();
    repeat.template operator()<Step::kPack, 0, kE / 2>();
    repeat.template operator()<Step::kSample, 0, 1>();
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
    int self = lane;
    ordered::settle(self);  // nothing of it is kept in registers over the loop
    for (int other = S::kTile; other < kWaveLanes; other *= 2)
      x = ordered::v_max_f32(x, from_lane(x, self ^ other));
    return x;
  }
};
