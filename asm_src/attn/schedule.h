// When every instruction of the main loop is issued, worked out at compile time.
//
// A wave runs alone on its SIMD, so nothing hides a bubble: the order of its instructions is the
// schedule. The loop works in units of (16 q rows, 32 keys). While the vector unit turns the scores
// of unit n into probabilities, the matrix unit computes the scores of unit n + 1 and the output of
// unit n - 1. Units of a block of keys follow each other; K and V operands stay in registers for
// all of them and are replaced one by one, each right behind its last use.
//
// A matrix instruction (16 clk) is a window of four issue slots. It takes the first, keeps the
// vector unit out of the second (virtual_device/timing/arch.h, mfma_lost_slots), and leaves: one
// slot for memory and waits, two for vector instructions. A transcendental takes four of the vector
// unit's.
#pragma once
#include "attn/shape.h"

enum class Op {
  kSum,         // row sum += sum of the unit before: of the numbers as they were, and as rounded
  kSumHalves,   // row sum of rounded ones += a pair of the unit before, as packed
  kCapRate,     // of a capped score: times the rate of its exponential, a pair
  kCapExp,      // that, one
  kCapAdd,      // and 1
  kCapRcp,      // and its reciprocal
  kScale,       // x = score * scale - reference, a pair
  kMax,         // of x, for an exact reference
  kExp,         // one
  kConvert,     // two per pair, except where packing rounds
  kPack,        // a pair to 16 bits
  kAddPairs,    // pairs 2n and 2n + 1
  kAddRounded,  // the same of rounded numbers: pairs 0 and 1, pairs 2 and 3, quads
  kAddQuads,    //
  kAddHalves,   //
  kCompare,     // has the sum, or the greatest, outgrown the reference?
  kUnpackLow,   // V on its way to LDS: to 32 bits
  kUnpackHigh,  //
  kGreatest,    // of |V|
  kScaleV,      // a pair
  kTranspose,   // a pair of rows to 16 bits
};
struct Step {
  Op op;
  int n;
};
struct Steps {
  Step step[80];
  int count;
  constexpr void add(Op op, int n = 0) { step[count++] = {op, n}; }
};

// The vector work of a unit in an order that leaves an instruction between a transcendental and the
// first use of its result, as the hardware demands.
template <class S>
constexpr Steps softmax_steps() {
  constexpr bool kPackRounds =
      S::kProduct == Element::kF16 && S::kRoundingP == Rounding::kTowardZero;
  Steps out{}, waiting{};
  int taken = 0;
  out.add(Op::kSum, 0);
  if (S::kSumsRounded && !S::kConverts) out.add(Op::kSum, 1);
  if (S::kConverts)
    for (int n = 0; n < 4; ++n) out.add(Op::kSumHalves, n);
  if (S::kCapped) {
    for (int pair = 0; pair < 4; ++pair) out.add(Op::kCapRate, pair);
    for (int e = 0; e < 8; ++e) out.add(Op::kCapExp, e);
    for (int e = 0; e < 8; ++e) out.add(Op::kCapAdd, e);
    for (int e = 0; e < 8; ++e) out.add(Op::kCapRcp, e);
  }
  out.add(Op::kScale, 0);
  out.add(Op::kScale, 1);
  (S::kExact ? out : waiting).add(Op::kScale, 2);
  (S::kExact ? out : waiting).add(Op::kScale, 3);
  if (S::kExact)
    for (int n = 0; n < 4; ++n) out.add(Op::kMax, n);
  for (int e = 0; e < 8; ++e) {
    out.add(Op::kExp, e);
    for (int i = 0; i < 2 && taken < waiting.count; ++i)
      out.step[out.count++] = waiting.step[taken++];
    if (e % 2 == 0) continue;
    if (!kPackRounds) {
      waiting.add(Op::kConvert, e - 1);
      waiting.add(Op::kConvert, e);
    }
    waiting.add(Op::kPack, e / 2);
    if (e == 3 && !kPackRounds) waiting.add(Op::kAddPairs, 0);
  }
  if (S::kSumsRounded && !S::kConverts) {
    waiting.add(Op::kAddRounded, 0);
    waiting.add(Op::kAddRounded, 1);
    waiting.add(Op::kAddRounded, 2);
  }
  while (taken < waiting.count - 1) out.step[out.count++] = waiting.step[taken++];
  if (kPackRounds) out.add(Op::kAddPairs, 0);  // nothing else is left to follow the last kExp
  out.add(Op::kAddPairs, 1);
  out.add(Op::kAddQuads);
  if (!S::kExact) out.add(Op::kAddHalves);
  out.add(Op::kCompare);
  out.step[out.count++] = waiting.step[taken];
  return out;
}

// The vector work of a block of V. Dword 4 c + r: elements 2 c and 2 c + 1 of the lane's row r.
// Transposition 2 e + p: element e of rows 2 p and 2 p + 1.
template <class S>
constexpr Steps value_steps() {
  Steps out{};
  for (int c = 0; c < S::kWidthV / 2; ++c) {
    if (S::kConverts)
      for (int n = 4 * c; n < 4 * c + 4; ++n) {
        out.add(Op::kUnpackLow, n);
        out.add(Op::kUnpackHigh, n);
        out.add(Op::kGreatest, n);
        out.add(Op::kScaleV, n);
      }
    for (int n = 4 * c; n < 4 * c + 4; ++n) out.add(Op::kTranspose, n);
  }
  return out;
}
constexpr bool is_of_value(Op op) {
  return op == Op::kUnpackLow || op == Op::kUnpackHigh || op == Op::kGreatest ||
         op == Op::kScaleV || op == Op::kTranspose;
}

template <class S>
struct Schedule {
  static constexpr int kWindows = S::kScoreOps + S::kOutputOps;
  static constexpr int kN = S::kTilesQ;

  // Stations of a block: what happens in the unit in which the vector unit has tile t.
  static constexpr int kReadV = 0, kWaitV = 1;  // operands of V from LDS
  static constexpr int kWriteV = kN - 3;  // the next block of V to LDS, and meet at the barrier
  static constexpr int kTakeV = S::kConverts && kN > 4 ? kN - 5 : kN - 4;  // it has arrived
  static constexpr int kReadK = kN - 2, kLoad = kN - 2;  // operands of K; loads of the next block
  static constexpr int kWaitK = kN - 1;

  // Matrix instructions: four scores first (the probabilities of the unit before are just being
  // finished), four outputs last (the scores must be complete before the next unit reads them).
  static constexpr bool is_score(int w) {
    if (w < 4) return true;
    if (w >= kWindows - 4) return false;
    return scores_before(w + 1) > scores_before(w);
  }
  static constexpr int scores_before(int w) {
    if (w <= 4) return w;
    if (w > kWindows - 4) return S::kScoreOps;
    return 4 + ((w - 4) * (S::kScoreOps - 4)) / (kWindows - 8);
  }
  static constexpr int op(int w) { return is_score(w) ? scores_before(w) : w - scores_before(w); }

  // Score op n: keys half n % 2, step n / 2. Output op n: keys half n / kTilesD, tile n % kTilesD.
  static constexpr bool ends_octet_k(int w) { return is_score(w) && op(w) % 4 == 3; }
  static constexpr bool starts_octet_k(int w) { return is_score(w) && op(w) % 4 == 0; }
  static constexpr bool ends_octet_v(int w) { return !is_score(w) && op(w) % 2 == 1; }
  static constexpr bool starts_octet_v(int w) { return !is_score(w) && op(w) % 2 == 0; }

  // Reads of K: both halves of an octet, in the window that uses it last and the one after.
  static constexpr int read_k(int w) {  // 2 * octet + half, or -1
    if (ends_octet_k(w)) return op(w) / 4 * 2;
    return w > 0 && ends_octet_k(w - 1) ? op(w - 1) / 4 * 2 + 1 : -1;
  }
  // Loads go to the windows without reads: V, then address and load of each part of K.
  // If there are too few of them, the load of a part goes together with the address of the next.
  static constexpr bool kLoadsMeet = 4 + 2 * S::kLoadsK > kWindows - 2 * S::kReadsK;
  static constexpr int kLoadOps = 4 + (kLoadsMeet ? 1 + S::kLoadsK : 2 * S::kLoadsK);
  static constexpr int load_op(int w) {
    if (read_k(w) >= 0) return -1;
    int n = 0;
    for (int i = 0; i < w; ++i) n += read_k(i) < 0;
    return n < kLoadOps ? n : -1;
  }
  static_assert(load_op(kWindows - 1) >= kLoadOps - 1 || load_op(kWindows - 1) == -1);

  // The descriptors of the next loads, an instruction a window.
  static constexpr int kPrepareOps = 11;
  static constexpr int prepare_op(int w) {
    const int n = w - 5;
    return n >= 0 && n < kPrepareOps ? n : -1;
  }
  static_assert(prepare_op(kWindows - 1) == -1 || prepare_op(kWindows - 1) == kPrepareOps - 1);

  static constexpr int kWindowWaitStaged = kWindows * 5 / 8;  // V has arrived from memory
  // Writes to LDS: of V, and of the greatest of it.
  static constexpr int kWindowWriteV = S::kConverts ? kWindows / 2 : 1;
  static constexpr int kWritesV = S::kWidthV / 2 + S::kConverts;
  static constexpr int write_v(int w) {
    const int n = w - kWindowWriteV;
    return n >= 0 && n % 2 == 0 && n / 2 < kWritesV ? n / 2 : -1;
  }

  // Work on V in the unit of tile t: steps value_from(t) to value_from(t + 1). A conversion takes
  // all units from kTakeV to kWriteV, a mere transposition the first.
  static constexpr Steps kValueSteps = value_steps<S>();
  static constexpr int value_from(int t) {
    constexpr int n = kValueSteps.count;
    if (t <= kTakeV) return 0;
    if (!S::kConverts || t > kWriteV) return n;
    if (kN == 4) return n * 7 / 20;
    return t == kTakeV + 1 ? n / 5 : n * 13 / 20;
  }

  // Issue slots that memory instructions and waits take behind the matrix instruction of window w;
  // LDS instructions of a wave are two slots apart.
  static constexpr int memory_slots(int t, int w) {
    int slots = 0;
    if (t == kReadV && ends_octet_v(w)) slots += 2;
    if (t == kReadK && read_k(w) >= 0) slots += 2;
    if (t == kLoad && load_op(w) >= 0) slots += kLoadsMeet && load_op(w) >= 4 ? 2 : 1;
    if (t == kTakeV && w == kWindowWaitStaged) slots += 1;
    if (t == kWriteV && write_v(w) >= 0) slots += 2;
    if (t == kWriteV && prepare_op(w) >= 0) slots += prepare_op(w) < 2 ? 2 : 1;
    if (w + 1 < kWindows) {
      if (t == kWaitK && starts_octet_k(w + 1)) slots += 1;
      if (t == kWaitV && starts_octet_v(w + 1)) slots += 1;
    }
    return slots;
  }

  // V comes last in the unit in which it arrives, first in those after.
  static constexpr Steps steps(int t) {
    const Steps softmax = softmax_steps<S>();
    Steps out{};
    if (t == kTakeV) out = softmax;
    for (int i = value_from(t); i < value_from(t + 1); ++i)
      out.step[out.count++] = kValueSteps.step[i];
    if (t != kTakeV)
      for (int i = 0; i < softmax.count; ++i) out.step[out.count++] = softmax.step[i];
    return out;
  }

  struct Places {
    Steps steps;
    int window[80];
    bool fits;
    constexpr bool has_values_before(int w) const {
      for (int i = 0; i < steps.count; ++i)
        if (is_of_value(steps.step[i].op) && window[i] >= w) return false;
      return true;
    }
  };
  // Vector instructions as early as their slots allow.
  static constexpr Places place(int t) {
    Places p{steps(t), {}, false};
    int free_at = 0, next = 0;
    for (int w = 0; w < kWindows; ++w) {
      free_at = (free_at > 4 * w ? free_at : 4 * w) + 1;
      if (free_at < 4 * w + 2) free_at = 4 * w + 2;
      int now = 4 * w + 1 + memory_slots(t, w);
      for (; next < p.steps.count; ++next) {
        const Op op = p.steps.step[next].op;
        if ((op == Op::kScale || op == Op::kCapRate) && w < 2) break;  // scores are not there yet
        if (t == kTakeV && is_of_value(op) && w < kWindowWaitStaged) break;
        const int at = now > free_at ? now : free_at;
        if (at > 4 * w + 3) break;
        p.window[next] = w;
        free_at = at + slots_of(op);
        now = at + 1;
      }
    }
    p.fits = next == p.steps.count;
    if (!p.fits) spread(p, t);
    return p;
  }
  // More vector than matrix work: evenly over the windows.
  static constexpr void spread(Places& p, int t) {
    int total = 0, sum = 0;
    for (int i = 0; i < p.steps.count; ++i) total += slots_of(p.steps.step[i].op);
    for (int i = 0; i < p.steps.count; ++i) {
      int w = 2 + sum * (kWindows - 2) / total;
      if (t == kTakeV && is_of_value(p.steps.step[i].op) && w <= kWindowWaitStaged)
        w = kWindowWaitStaged;
      p.window[i] = w;
      sum += slots_of(p.steps.step[i].op);
    }
  }
  static constexpr int slots_of(Op op) {
    return op == Op::kExp || op == Op::kCapExp || op == Op::kCapRcp ? 4 : 1;
  }
};
