// Which steps the main loop has in the unit of each tile, and the order of each kind of them:
// matrix, vector, all else. attn/schedule.h places them beside each other. Plain C++.
//
//   unit of tile   beside matrix and softmax, for N tiles
//   0              V operands of this block, from LDS
//   1              (wait for V operands, one by one)
//   N - 3          the next block of V, which has arrived from memory: transposed in registers
//                  (half of it in the unit before, with tiles of 16 rows) and to LDS; descriptors
//                  of the block after it; barrier: the next block of K and V is in LDS
//   N - 2          K operands of the next block, from LDS; V two blocks ahead, from memory
//   N - 1          (wait for K operands, one by one); K two blocks ahead, from memory to LDS
//
// With two tiles a block has little time. Unit 0 has the descriptors, the barrier (the next block
// of K and this one of V are in LDS), the operands of both and the loads of K; unit 1 the waits for
// operands, the next block of V, transposed and to LDS, and the loads of V. With three, K's
// operands are read in unit 1 and waited for in unit 2.
//
// Where V goes straight to LDS, several blocks are on their way there:
//
//   unit of tile   beside matrix and softmax
//   0              V operands of this block, from LDS
//   1              (wait for them)
//   N - 2          K operands of the next block, from LDS
//   N - 1          (wait for them); barrier: the block after the next one is in LDS, and all waves
//                  are done with the one before this; into its stage, loads of another one
//
// With one tile each unit reads all operands, of V those of its own keys, of K those of two units
// on, and waits for what the unit before has read. The barrier is in the first unit of a block;
// behind it come loads of V three blocks ahead, and of K, which is read earlier, four blocks ahead.
#pragma once
#include "attn/shape.h"
#include "attn/step_types.h"

template <class S>
struct UnitSteps {
  static constexpr int kWindows = S::kScoreOps + S::kOutputOps, kSlots = S::kTile / 4;
  static constexpr int kN = S::kTilesQ;

  // In which unit there are the steps of these names: the table above. Operands take turns with
  // the first and the next keys of a block; all else is done once in a block.
  static constexpr bool kDirect = S::kDirect, kLone = kN == 1;
  static constexpr bool kShort = kN == 2 || (kN == 3 && !kDirect);
  static constexpr int kNever = -1;
  static constexpr bool reads_v(int t) { return t % kN == 0; }
  static constexpr bool waits_v(int t) { return kLone || t % kN == 1; }
  static constexpr bool reads_k(int t) { return kLone || t % kN == kN - 2; }
  static constexpr bool waits_k(int t) { return t % kN == kN - 1; }
  // Whether all K operands that a block's units read are those of the next block.
  static constexpr bool kReadsAhead = kLone || S::kUnits == kN;
  static constexpr bool kSplit = !kDirect && S::kTile == 16 && !kShort;  // transpositions
  static constexpr int kWriteV = kDirect ? kNever : kShort ? 1 : kN - 3;
  static constexpr int kTransposeV = kDirect ? kNever : kWriteV - kSplit;
  static constexpr int kBarrier = kDirect ? kN - 1 : kShort ? 0 : kN - 3;
  static constexpr int kLoadV = kShort ? 1 : kN - 2, kLoadK = kDirect || !kShort ? kN - 1 : 0;
  // Or behind a block's reads and writes.
  static constexpr bool kFlipsFirst = kLone || (!kDirect && kShort);
  static constexpr int kFlipReadK = kFlipsFirst ? 0 : kN - 1;
  static constexpr int kFlipReadV = kFlipsFirst ? 0 : S::kUnits - 1;
  static constexpr int kFlipWriteV = kDirect ? kNever : kShort ? 0 : kN - 2;
  static constexpr int kFlipFlips = !kDirect ? kNever : kLone ? S::kUnits - 1 : 0;
  static constexpr int kFlips = kReadsAhead ? 2 : 1, kFlipFlipsWindow = kLone ? kWindows - 1 : 0;
  // And behind which matrix instruction.
  static constexpr int kStagedThere = kWindows * (kSplit ? 5 : 3) / 8;
  static constexpr bool kEarly = kDirect || kShort;
  // All operands are read in one unit of 16 rows: from as early on as can be.
  static constexpr bool kCrowded = kShort && !kDirect && S::kTile == 16;
  // Blocks are so short that HBM's latency is longer than the time from a load of K to its barrier.
  // So the waves bring a block to the L2 before: its lines, of K and V by turns.
  static constexpr int kPrefetches = kCrowded;
  static constexpr int kBarrierWindow = kLone      ? kWindows * 3 / 4  // all that was read is there
                                        : kDirect  ? kWindows * 5 / 8
                                        : kCrowded ? kWindows / 8
                                        : kEarly   ? kWindows * 3 / 8
                                                   : kWindows - 2;
  // Behind the descriptors of a block.
  static constexpr int kNextWindow = kCrowded ? kWindows * 3 / 8 : kBarrierWindow;
  // In which window, counted from the first one of the block. With two tiles of staged V all of
  // the unit before has loads.
  static constexpr int next_block(int n) {
    const int until = kBarrier * kWindows + kNextWindow, from = kDirect ? 0 : kBarrier * kWindows;
    return kEarly ? from + n * (until - from) / kNextBlockOps : until - 1 - kNextBlockOps + n;
  }
  static constexpr int write_v(int n) { return n + (kSplit ? 6 : kWindows * 3 / 4); }
  static constexpr int load_v(int n) {
    return kShort ? kWindows * (12 + n) / 16 : 1 + n * kWindows / most(S::kLoadsV, 1);
  }
  // In which window, counted from the first one of that unit; none is the last of its unit, since a
  // load comes a window behind its address.
  static constexpr int load_k(int n) {
    const int first = kEarly ? kNextWindow + 1 : 0;
    if (!kDirect) return first + n * (kWindows - first) / S::kLoadsToLds;
    const int room = (S::kUnits - kBarrier) * (kWindows - 1) - first;
    const int nth = first + n * room / S::kLoadsToLds;
    return nth / (kWindows - 1) * kWindows + nth % (kWindows - 1);
  }
  // Of loads in their order, which of a block's K, then V it is. With one tile V comes first, since
  // its stage is the one before that of K.
  static constexpr int load_in_order(int n) {
    return kLone ? (n + S::kLoadsK) % S::kLoadsToLds : n;
  }
  static constexpr int kLaggingLoads = kLone ? S::kLoadsToLds - S::kLoadsK : 0;
  static constexpr int kNextBlockOps = 11, kTransposes = 2 * S::kWidthV;
  // Behind those that are waited for at the barrier.
  static constexpr int kLoadsBehind = kLone     ? S::kLoadsToLds
                                      : kDirect ? (S::kStages - 3 - kReadsAhead) * S::kLoadsToLds
                                      : kShort  ? S::kLoadsV
                                                : 0;

  // ---- The matrix unit: scores first, while the probabilities of the unit before are being
  // finished; outputs last, since the scores must be complete before the next unit reads them.
  static constexpr int kAlone = least(4, S::kScoreOps / 2);  // of each
  static constexpr int scores_before(int w) {
    if (w <= kAlone) return w;
    if (w > kWindows - kAlone) return S::kScoreOps;
    return kAlone + (w - kAlone) * (S::kScoreOps - kAlone) / (kWindows - 2 * kAlone);
  }
  static constexpr bool is_score(int w) { return scores_before(w + 1) > scores_before(w); }
  static constexpr int op(int w) { return is_score(w) ? scores_before(w) : w - scores_before(w); }
  // Score op n: keys half n % kHalves, step n / kHalves. Output op n: step n / kTilesD over the
  // keys, tile n % kTilesD. Two steps of a half, two tiles of a step have one register.
  static constexpr int read_of_score(int op) {
    return op / (S::kOperandsOf16 * S::kHalves) * S::kHalves + op % S::kHalves;
  }
  // The last one of an operand's; direct ones are read half by half.
  static constexpr int kReadsOfV = kDirect ? 2 : 1;
  static constexpr int read_of_output(int op) {
    return op / S::kOperandsOf16 * kReadsOfV + kReadsOfV - 1;
  }
  // Operations that one wait is for; and those reads of V that are put off to the next unit, behind
  // uses in so many last windows.
  static constexpr int kWaitedOps = kDirect ? S::kOutputOps / 2 : 1;
  static constexpr int kLateWindows = kDirect && !kLone ? least(kShort ? 4 : 3, kWindows / 4) : 0;
  // Until addresses are changed, if that comes first.
  static constexpr int kFlipWindows = kLone ? 2 : 0;
  // Which of the uses of a register.
  static constexpr int use_of(int w) {
    return (is_score(w) ? op(w) / S::kHalves : op(w)) % S::kOperandsOf16;
  }
  static constexpr bool is_first(int w) { return use_of(w) == 0; }
  static constexpr bool is_last(int w) { return use_of(w) == S::kOperandsOf16 - 1; }

  // ---- The vector unit: transcendentals in one order, all else in another. What there is between
  // the first and the last of a probability is done for several of them at a time.
  using Vector = Items<160>;
  static constexpr int kE = S::kLaneKeys;
  static constexpr Vector trans_steps() {
    Vector out{};
    if constexpr (S::kCapped) {
      for (int e = 0; e < kE + 2; ++e) {
        if (e < kE) out.add(Step::kCapExp, e);
        if (e >= 1 && e <= kE) out.add(Step::kCapRcp, e - 1);
        if (e >= 2) out.add(Step::kExp, e - 2);
      }
    } else {
      for (int e = 0; e < kE; ++e) out.add(Step::kExp, e);
    }
    return out;
  }
  static constexpr Vector vector_steps(int t) {
    Vector out{};
    constexpr int kScoresThere = S::kTile == 16 ? 2 : 0;
    const auto transpose = [&out](int from, int to, int window) {
      for (int n = from; n < to; ++n) out.add(Step::kTranspose, n, window);
    };
    if (kSplit && t == kWriteV) transpose(kTransposes / 2, kTransposes, 0);
    const auto flip = [&out, t] {
      for (int n = 0; n < S::kAddressesK; ++n)
        if (t == kFlipReadK) out.add(Step::kFlipReadK, n);
    };
    const auto flip_v = [&out, t] {
      if (t == kFlipReadV && (!kDirect || kLone)) out.add(Step::kFlipReadV);
    };
    constexpr bool kFlipsAtOnce = kCrowded || kLone;
    if (kFlipsAtOnce) flip(), flip_v();
    if (kPrefetches && t == kBarrier + 1) out.add(Step::kNextPrefetch);
    out.add(Step::kAddUnit);
    for (int n = 0; n < 2; ++n) out.add(Step::kAddSample, n);
    // What waits for a transcendental comes later than what the transcendentals before it wait for.
    constexpr int kAhead = S::kCapped ? -1 : 4, kBehind = S::kCapped ? 3 : 0;
    for (int e = 0; e < (S::kCapped ? 2 : 0); ++e) out.add(Step::kCapRate, e);
    for (int e = 0; e < kAhead; ++e) out.add(Step::kScale, e, kScoresThere);
    for (int i = 0; i < kE + kBehind; ++i) {
      const int scale = i + kAhead, e = i - kBehind;
      if (S::kCapped && i + 2 < kE) out.add(Step::kCapRate, i + 2);
      if (S::kCapped && i < kE) out.add(Step::kCapAdd, i);
      if (scale >= 0 && scale < kE) out.add(Step::kScale, scale);
      if (e > 0) out.add(Step::kSum, e);
      if (S::kRounds && e >= 0) out.add(Step::kRound, e);
      if (e == kSampled && !S::kConverts) out.add(Step::kSample);
      if (e >= 0 && e % 2 == 1) out.add(Step::kPack, e / 2);
      if (e == kSampled && S::kConverts) out.add(Step::kSample);
      if (e == 2 && !kFlipsAtOnce) flip();
      if (e == kE / 2 && t == kFlipWriteV) out.add(Step::kFlipWriteV);
      if (e == (kFlipsFirst ? 2 : kE / 2) && !kFlipsAtOnce) flip_v();
      if (e == kE / 2 && !kSplit && t == kTransposeV) transpose(0, kTransposes, kStagedThere + 1);
    }
    if (kDirect && !kLone && t == kFlipReadV) out.add(Step::kFlipReadV);  // behind the late reads
    out.add(Step::kExceeds);
    if (kSplit && t == kTransposeV) transpose(0, kTransposes / 2, kStagedThere + 1);
    return out;
  }
  // Which of a step must have been done before the nth of another, by their numbers.
  struct Need {
    Step step;
    int count;
  };
  static constexpr Need need(const Item& item) {
    switch (item.step) {
      case Step::kCapExp:
        return {Step::kCapRate, item.n + 1};
      case Step::kCapAdd:
        return {Step::kCapExp, item.n + 1};
      case Step::kCapRcp:
        return {Step::kCapAdd, item.n + 1};
      case Step::kScale:
        return {Step::kCapRcp, S::kCapped ? item.n + 1 : 0};
      case Step::kExp:
        return {Step::kScale, item.n + 1};
      case Step::kSum:
      case Step::kRound:
        return {Step::kExp, item.n + 1};
      case Step::kSample:
        if (S::kConverts) return {Step::kPack, kSampled / 2 + 1};
        return {S::kRounds ? Step::kRound : Step::kExp, kSampled + 1};
      case Step::kPack:
        return {S::kRounds ? Step::kRound : Step::kExp, 2 * item.n + 2};
      case Step::kExceeds:
        return {Step::kSum, kE - 1};
      default:
        return {item.step, 0};
    }
  }
  // How often a step has been done.
  struct Done {
    int of[kStepNames] = {};
    constexpr void see(Step step) { ++of[int(step)]; }
    constexpr bool allows(const Item& item) const {
      return of[int(need(item).step)] >= need(item).count;
    }
  };

  // ---- Memory, scalar instructions and waits, in this order, each as early as its window has
  // room.
  using Side = Items<96>;
  static constexpr int late_reads() {
    int n = 0;
    for (int use = kWindows - kLateWindows; use < kWindows; ++use)
      n += is_score(use) ? 0 : kReadsOfV;
    return n;
  }
  static constexpr Side side_steps(int t) {
    Side out{};
    const bool has_barrier = t == kBarrier, waits_here = has_barrier && !kLone;
    for (int w = 0; w < kWindows; ++w) {
      for (int n = 0; n < kNextBlockOps; ++n)
        if (t * kWindows + w == next_block(n)) out.add(Step::kNextBlock, n, w);
      // The barrier, behind the wait for what this wave has brought to LDS.
      if (has_barrier && !kLone && w == kBarrierWindow - 1) out.add(Step::kFlipM0, 0, w);
      if (has_barrier && w == kBarrierWindow) {
        out.add(Step::kWaitBlock, 0, w);
        out.add(Step::kBarrier, 0, w);
        if (kPrefetches) out.add(Step::kPrefetch, 0, w);
      }
      // Waits for operands, each in front of the matrix instructions that read them; late reads.
      if (waits_k(t + 1) && w == kWindows - 1) out.add(Step::kWaitK, kWaitedOps - 1, w);
      if (t == kFlipFlips && w == kFlipFlipsWindow)
        for (int n = 0; n < kFlips; ++n) out.add(Step::kFlipFlips, n, w);
      if (reads_v(t - 1) && w < late_reads())
        out.add(Step::kReadV, S::kStepsKeys * S::kTilesD * kReadsOfV - late_reads() + w, w);
      if (w + 1 < kWindows && is_first(w + 1) && op(w + 1) % kWaitedOps == 0) {
        const int last = op(w + 1) + kWaitedOps - 1;
        if (waits_k(t) && is_score(w + 1)) out.add(Step::kWaitK, read_of_score(last), w);
        if (waits_v(t) && !is_score(w + 1)) out.add(Step::kWaitV, read_of_output(last), w);
      }
      // Reads of operands: behind the last use, and what was waited for at the barrier behind that.
      for (int use = 0; use <= w; ++use) {
        if (!is_last(use) || (waits_here ? most(use, kBarrierWindow + 1) : use) != w) continue;
        const bool late = use >= kWindows - kLateWindows;
        if (reads_v(t) && !is_score(use) && !late)
          for (int n = kReadsOfV - 1; n >= 0; --n)
            out.add(Step::kReadV, read_of_output(op(use)) - n, w);
        if (reads_k(t) && is_score(use))
          out.add(Step::kReadK, read_of_score(op(use)),
                  most(w, t == kFlipReadK ? kFlipWindows : 0));
      }
      // V through registers to LDS, then the next loads of V, and of K.
      if (t == kTransposeV && w == kStagedThere) out.add(Step::kWaitStaged, 0, w);
      for (int n = 0; n < S::kWidthV / 2; ++n)
        if (t == kWriteV && w == write_v(n)) out.add(Step::kWriteV, n, w);
      for (int n = 0; n < S::kLoadsV; ++n)
        if (t == kLoadV && w == load_v(n)) out.add(Step::kLoadV, n, w);
      for (int n = 0; n < S::kLoadsToLds; ++n) {
        if ((t - kLoadK) * kWindows + w != load_k(n)) continue;
        if (kLone && n == kLaggingLoads) out.add(Step::kFlipM0, 0, w);
        out.add(Step::kSetM0, load_in_order(n), w);
        out.add(Step::kLoadK, load_in_order(n), w + 1);
      }
    }
    return out;
  }
};
