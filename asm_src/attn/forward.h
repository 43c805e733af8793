// Attention forward: O = softmax(Q K^T * softmax_scale) V, for one tile of q rows of one head.
//
//   phase     matrix unit                   vector unit            memory
//   prologue  scores of 16 keys, all tiles  a reference per row    Q; K, V of two blocks
//   loop      scores n + 1, output n - 1    softmax n              K, V two blocks ahead
//   epilogue  output of the last unit       O / sum, rounding      O, lse
//
// Both products are transposed, S^T = K Q^T and O^T = V^T P^T, so that P is an operand in the
// registers where it was computed. A row's probabilities are relative to a reference, the greatest
// of its first scores; it is renewed, and O rescaled, only when a sum over the keys of a unit
// outgrows it, so that the loop needs no maximum and no exchange between lanes. The price: the
// greatest probability of a row is not exactly 1 and is rounded like the others. A tile with a
// result that is not finite is done again with exact references, which cannot overflow where an
// online softmax does not.
//
// Sources: online softmax, Milakov and Gimelshein 2018 (arXiv 1805.02867); tiling, Dao 2023
// (arXiv 2307.08691); conditional rescaling, Shah et al. 2024 (arXiv 2407.08608) and after.
#pragma once
#include "attn/epilogue.h"
#include "attn/prologue.h"
#include "attn/steps.h"

// Exact: as an online softmax has it, with the greatest score so far as reference.
template <class S, bool kExact>
struct Forward : Prologue<S, kExact> {
  using Start = Prologue<S, kExact>;
  using Start::loop, Start::work;
  static constexpr int kN = S::kTilesQ;

  __device__ __forceinline__ Forward(const AttnFwdArgs& arguments, Arguments* again, uint32_t id,
                                     uint32_t lds)
      : Start(arguments, again, id, lds) {}

  // ---- Main loop
  template <bool kMasked>
  __device__ __forceinline__ void block() {
    unroll<S::kUnits>([&]<int n>() { loop.template unit<n, kMasked, kExact>(); });
    if constexpr (kMasked) loop.mask.template skip<S::kKeys>(1);
  }

  // One that no row of this wave sees: it brings its share of those that other waves see.
  __device__ __forceinline__ void unseen_block() {
    using Plan = typename Pipeline<S>::Plan;
    unroll<Plan::kNextBlockOps>([&]<int n>() { loop.load.template next_block<n>(); });
    if constexpr (!Plan::kLone) {
      loop.load.template flip_flips<0>();
      loop.load.flip_m0();
    }
    ordered::s_waitcnt<Plan::kLoadsBehind, 0>();
    ordered::s_barrier();
    unroll<S::kLoadsToLds>([&]<int nth>() {
      constexpr int n = Plan::load_in_order(nth);
      if constexpr (Plan::kLone && nth == Plan::kLaggingLoads) loop.load.flip_m0();
      loop.load.template set_m0<n>();
      ordered::s_nop<1>();
      loop.load.template load_k<n>();
    });
    if constexpr (Plan::kLone) loop.load.template flip_flips<0>();
  }

  // Between blocks; `full` of those without a mask are left.
  __device__ __forceinline__ void raise_references(int full, int log2_outgrown) {
    constexpr int kOfBlock = S::kKeys / S::kGroups;
    // Of a lane's sum if all of its keys had the probability of the reference, rounded up.
    const int log2_even =
        S::kTop + 32 - __builtin_clz((work.full_end - full - work.first) * kOfBlock);
    const float outgrown = __builtin_bit_cast(float, (127 + log2_even + log2_outgrown) << 23);
    if (__builtin_expect(loop.outgrown(outgrown), 0))
      loop.template raise_references<S::kUnits - 1>(outgrown, log2_even);
  }

  // Blocks at either end of the rows' windows have a mask, those between have none.
  __device__ __forceinline__ void main_loop() {
    if constexpr (kExact) {  // rare: without code for blocks that have no mask
      work.full_first = S::kDirect ? work.seen_end : work.end;
      work.full_end = work.full_first;
    }
    const int end = S::kDirect ? work.seen_end : work.end;
    int masked = work.full_first - work.first, full = work.full_end - work.full_first,
        behind = end - work.full_end;
    do {
      for (; masked > 0; --masked) block<true>();
      if (!kExact && full > 0) {
        loop.mask.template skip<S::kKeys>(full);
        int until = S::kFirstRaise / S::kKeys, log2_outgrown = S::kLog2FirstOutgrown;
        do {
          until = least(until, full);
          full -= until;
          do block<false>();
          while (--until);
          raise_references(full, log2_outgrown);
          until = S::kNextRaise / S::kKeys;
          log2_outgrown = S::kLog2NextOutgrown;
        } while (full > 0);
      }
      masked = behind;
      behind = 0;
    } while (masked > 0);
    if constexpr (S::kDirect)
      for (int unseen = work.end - end; unseen > 0; --unseen) unseen_block();
    ordered::s_waitcnt<0, 0>();  // loads behind the last block: their registers are used again
    if constexpr (Pipeline<S>::Plan::kPrefetches > 0) ordered::settle(loop.load.unused);
    loop.row.sum[kN - 1] += loop.row.unit_sum;
    loop.row.sample[kN - 1] += loop.softmax.x[kSampled];
    loop.row.rounded_sample[kN - 1] += loop.row.unit_rounded_sample;
  }

  // False if an element of the result is not finite, which asks for a second attempt, an exact one.
  __device__ __forceinline__ bool operator()(uint32_t lds, [[maybe_unused]] bool can_overflow) {
    reserve_registers<S>();
    if (work.q_start >= work.rows) return true;
    this->prologue(lds, can_overflow);
    main_loop();
    return Epilogue<S, kExact>(this->from, work, loop, this->wave_row, this->o, lds)(can_overflow);
  }
};
