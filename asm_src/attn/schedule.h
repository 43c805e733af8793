// When every instruction of the main loop is issued, worked out at compile time. Plain C++, no
// device code: build_scripts/schedules.py prints the tables as asm_src/attn/schedules/*.txt.
//
// A wave runs alone on its SIMD, so nothing hides a bubble: the order of its instructions is the
// schedule. The loop works in units of (16 q rows, 32 keys). While the vector unit turns the scores
// of unit n into probabilities, the matrix unit computes the scores of unit n + 1 and the output of
// unit n - 1. Units of a block of keys follow each other; K and V operands stay in registers for
// all of them and are replaced one by one, each right behind its last use.
//
//   unit of tile   beside matrix and softmax
//   0              V operands of this block from LDS
//   1              (wait for them, one by one)
//   N - 4          next block of V has arrived from memory: transposed in registers
//   N - 3          the rest of it, and to LDS; descriptors of the block after it; barrier
//   N - 2          K operands of the next block from LDS; V of the block after it from memory
//   N - 1          (wait for them, one by one); K of the block after it, from memory to LDS
//
// Time is counted in issue slots (4 cycles). A matrix instruction (16 cycles) takes the first of
// four and keeps the vector unit out of the second (virtual_device/timing/arch.h), which is where
// memory instructions and waits go; a transcendental keeps the vector unit for four.
#pragma once
#include "attn/shape.h"

enum class Step {
  kScore,      // matrix: S^T += K Q^T, of the next unit
  kOutput,     // matrix: O^T += V^T P^T, of the unit before
  kAddUnit,    // row sum += sum of the unit before
  kAddSample,  // and of those sampled in it
  kCapRate,    // capped scores: times the rate of the exponential
  kCapExp,     //
  kCapAdd,     // and 1
  kCapRcp,     // and the reciprocal
  kScale,      // x = score * scale - reference
  kExp,        // p = 2^x
  kSum,        // sum of the unit += p
  kRound,      // half a unit of p's last place in the 16-bit type
  kSample,     // one of them as it is rounded
  kPack,       // a pair to the 16-bit type, truncated
  kExceeds,    // is the sum beyond what the reference is good for?
  kTranspose,  // V: a pair of rows
  kFlipReadV,  // addresses to the other stage
  kFlipWriteV,
  kFlipReadK,
  kReadV,  // LDS: operands
  kReadK,
  kWriteV,
  kLoadV,  // memory to registers
  kSetM0,  // memory to LDS: where to,
  kLoadK,  // and the load
  kFlipM0,
  kNextBlock,  // descriptors, an instruction at a time
  kWaitV,      // operands have been read
  kWaitK,
  kWaitStaged,  // V is there from memory
  kWaitBlock,   // what this wave loads and writes is in LDS
  kBarrier,
};

enum class Unit { kMatrix, kVector, kTrans, kLds, kMemory, kScalar, kWait };
struct StepTraits {
  const char* name;
  Unit unit;
};
constexpr StepTraits traits(Step step) {
  constexpr StepTraits kTraits[] = {
      {"score", Unit::kMatrix},       {"output", Unit::kMatrix},
      {"add_unit", Unit::kVector},    {"add_sample", Unit::kVector},
      {"cap_rate", Unit::kVector},    {"cap_exp", Unit::kTrans},
      {"cap_add", Unit::kVector},     {"cap_rcp", Unit::kTrans},
      {"scale", Unit::kVector},       {"exp", Unit::kTrans},
      {"sum", Unit::kVector},         {"round", Unit::kVector},
      {"sample", Unit::kVector},      {"pack", Unit::kVector},
      {"exceeds", Unit::kVector},     {"transpose_v", Unit::kVector},
      {"flip_read_v", Unit::kVector}, {"flip_write_v", Unit::kVector},
      {"flip_read_k", Unit::kVector}, {"read_v", Unit::kLds},
      {"read_k", Unit::kLds},         {"write_v", Unit::kLds},
      {"load_v", Unit::kMemory},      {"set_m0", Unit::kScalar},
      {"load_k", Unit::kMemory},      {"flip_m0", Unit::kScalar},
      {"next_block", Unit::kScalar},  {"wait_v", Unit::kWait},
      {"wait_k", Unit::kWait},        {"wait_staged", Unit::kWait},
      {"wait_block", Unit::kWait},    {"barrier", Unit::kWait},
  };
  return kTraits[int(step)];
}

struct Item {
  Step step;
  int n;
  int window;  // not before this matrix instruction
};
template <int kCapacity>
struct Items {
  Item item[kCapacity];
  int count = 0;
  constexpr void add(Step step, int n = 0, int window = 0) { item[count++] = {step, n, window}; }
};

struct Placed {
  Step step;
  int n;  // of a wait: what may still be under way
  int slot;
};

template <class S>
struct Schedule {
  static constexpr int kWindows = S::kScoreOps + S::kOutputOps;
  static constexpr int kN = S::kTilesQ;

  // Stages of a block: in the unit of which tile.
  static constexpr int kReadV = 0, kWaitV = 1, kTransposeV = kN - 4, kWriteV = kN - 3;
  static constexpr int kReadK = kN - 2, kLoadV = kN - 2, kWaitK = kN - 1, kLoadK = kN - 1;

  // ---- The matrix unit: scores first, while the probabilities of the unit before are being
  // finished; outputs last, since the scores must be complete before the next unit reads them.
  static constexpr int kAlone = 4;  // of each
  static constexpr int scores_before(int w) {
    if (w <= kAlone) return w;
    if (w > kWindows - kAlone) return S::kScoreOps;
    return kAlone + (w - kAlone) * (S::kScoreOps - kAlone) / (kWindows - 2 * kAlone);
  }
  static constexpr bool is_score(int w) { return scores_before(w + 1) > scores_before(w); }
  static constexpr int op(int w) { return is_score(w) ? scores_before(w) : w - scores_before(w); }
  // Score op n: keys half n % 2, step n / 2. Output op n: keys half n / kTilesD, tile n % kTilesD.
  static constexpr int reads_until_score(int op) { return op / 4 * 2 + op % 2 + 1; }
  static constexpr int reads_until_output(int op) { return op / 2 + 1; }
  static constexpr bool is_first_use(int w) { return is_score(w) ? op(w) % 4 < 2 : op(w) % 2 == 0; }
  static constexpr bool is_last_use(int w) { return is_score(w) ? op(w) % 4 > 1 : op(w) % 2 == 1; }

  // ---- The vector unit, in this order. Between a transcendental and the first use of its result
  // is another instruction, as the hardware demands.
  using Vector = Items<96>;
  static constexpr Vector vector_steps(int t) {
    Vector out{};
    constexpr int kScoresThere = 2;
    if (t == kWriteV) add_transposes(out, kTransposes / 2, kTransposes, 0);
    if (t == kWaitV) out.add(Step::kFlipReadV);
    if (t == kWaitK) out.add(Step::kFlipWriteV);
    if (t == kWaitK)
      for (int n = 0; n < 2; ++n) out.add(Step::kFlipReadK, n);
    out.add(Step::kAddUnit);
    for (int n = 0; n < 2; ++n) out.add(Step::kAddSample, n);
    if (S::kCapped) {
      for (int e = 0; e < 8; ++e) out.add(Step::kCapRate, e, kScoresThere);
      for (int e = 0; e < 8; ++e) out.add(Step::kCapExp, e);
      for (int e = 0; e < 8; ++e) out.add(Step::kCapAdd, e);
      for (int e = 0; e < 8; ++e) out.add(Step::kCapRcp, e);
    }
    out.add(Step::kScale, 0, kScoresThere);
    out.add(Step::kScale, 1, kScoresThere);
    Vector waiting{};
    int taken = 0;
    for (int e = 2; e < 8; ++e) waiting.add(Step::kScale, e);
    for (int e = 0; e < 8; ++e) {
      out.add(Step::kExp, e);
      for (int i = 0; i < 3 && taken < waiting.count; ++i)
        out.item[out.count++] = waiting.item[taken++];
      if (e > 0) waiting.add(Step::kSum, e);
      if (S::kRounds) waiting.add(Step::kRound, e);
      if (e == 5) waiting.add(Step::kSample);
      if (e % 2 == 1) waiting.add(Step::kPack, e / 2);
    }
    while (taken < waiting.count) out.item[out.count++] = waiting.item[taken++];
    out.add(Step::kExceeds);
    if (t == kTransposeV) add_transposes(out, 0, kTransposes / 2, kStagedThere + 1);
    return out;
  }
  static constexpr int kTransposes = 2 * S::kWidthV;
  static constexpr int kStagedThere = kWindows * 5 / 8;  // window in which V has arrived
  static constexpr void add_transposes(Vector& out, int from, int to, int window) {
    for (int n = from; n < to; ++n) out.add(Step::kTranspose, n, window);
  }

  // ---- Memory, scalar instructions and waits, in this order, each as early as its window has
  // room.
  static constexpr int kNextBlockOps = 11;
  static constexpr int kTransposed = 6;  // window in which V can be written to LDS
  using Side = Items<96>;
  static constexpr Side side_steps(int t) {
    Side out{};
    for (int w = 0; w < kWindows; ++w) {
      if (t == kWaitK - 1 && w == kWindows - 1) out.add(Step::kWaitK, 1, w);
      if (w + 1 < kWindows && is_first_use(w + 1)) {
        if (t == kWaitK && is_score(w + 1)) out.add(Step::kWaitK, reads_until_score(op(w + 1)), w);
        if (t == kWaitV && !is_score(w + 1))
          out.add(Step::kWaitV, reads_until_output(op(w + 1)), w);
      }
      if (is_last_use(w)) {
        if (t == kReadV && !is_score(w)) out.add(Step::kReadV, op(w) / 2, w);
        if (t == kReadK && is_score(w)) out.add(Step::kReadK, op(w) / 4 * 2 + op(w) % 2, w);
      }
      if (t == kTransposeV && w == kStagedThere) out.add(Step::kWaitStaged, 0, w);
      if (t == kWriteV) {
        if (w >= kTransposed && w - kTransposed < S::kWidthV / 2)
          out.add(Step::kWriteV, w - kTransposed, w);
        if (w >= kWindows - 3 - kNextBlockOps && w < kWindows - 3)
          out.add(Step::kNextBlock, w - (kWindows - 3 - kNextBlockOps), w);
        if (w == kWindows - 2) out.add(Step::kWaitBlock, 0, w);
        if (w == kWindows - 2) out.add(Step::kBarrier, 0, w);
      }
      if (t == kLoadV && w % (kWindows / S::kLoadsV) == 1)
        out.add(Step::kLoadV, w / (kWindows / S::kLoadsV), w);
      if (t == kLoadK) {
        constexpr int kEvery = kWindows / S::kLoadsK;
        static_assert(kEvery >= 2);
        if (w % kEvery == 0 && w / kEvery < S::kLoadsK) out.add(Step::kSetM0, w / kEvery, w);
        if (w % kEvery == 1 && w / kEvery < S::kLoadsK) out.add(Step::kLoadK, w / kEvery, w);
      }
    }
    if (t == kReadK) out.add(Step::kFlipM0, 0, kWindows - 1);
    return out;
  }

  // ---- Both beside the matrix instructions
  struct Timetable {
    Placed at[288];
    int count, slots;
    bool fits;
  };
  static constexpr int kPatience =
      3;  // matrix instructions for which an LDS instruction is put off
  static constexpr int slots_of(Unit unit) {  // of the wave; of the vector unit a kTrans takes 4
    return unit == Unit::kLds ? 2 : 1;
  }
  // Without an instruction between them: M0 and its use, a transcendental and that of its result.
  static constexpr bool may_not_follow(const Placed& first, const Item& second) {
    if (first.step == Step::kSetM0) return second.step == Step::kLoadK;
    if (traits(first.step).unit != Unit::kTrans || traits(second.step).unit != Unit::kVector)
      return false;
    const bool adds_two = second.step == Step::kSum && second.n == 1;
    return first.n == second.n || (adds_two && first.n == 0) || second.step == Step::kPack;
  }
  // In `slots`; fits if they suffice.
  static constexpr Timetable place(int t, int slots) {
    Timetable out{{}, 0, slots, false};
    const Vector vector = vector_steps(t);
    const Side side = side_steps(t);
    int now = 0, vector_free = 0, v = 0, s = 0, lds = 0;
    const auto emit = [&out, &now, &lds](const Item& item) {
      const Unit unit = traits(item.step).unit;
      int n = item.n;
      // LDS operations end in their order: all but those behind the nth read may be under way. The
      // counter has four bits; at its greatest value it tells nothing.
      if (item.step == Step::kWaitK) n = least(14, 2 * S::kReadsK - n + lds);
      if (item.step == Step::kWaitV) n = least(14, 2 * S::kReadsV - n + lds);
      out.at[out.count++] = {item.step, n, now};
      if (unit == Unit::kLds && item.step == Step::kWriteV) ++lds;
      now += slots_of(unit);
    };
    for (int w = 0; w < kWindows; ++w) {
      const int begin = w * slots / kWindows, end = (w + 1) * slots / kWindows;
      now = most(now, begin);
      emit({is_score(w) ? Step::kScore : Step::kOutput, op(w), w});
      vector_free = most(most(vector_free, now - 1) + 1, now + 1);
      while (now < end) {
        const bool vector_now = v < vector.count && vector.item[v].window <= w &&
                                vector_free <= now &&
                                !may_not_follow(out.at[out.count - 1], vector.item[v]);
        bool side_now = s < side.count && side.item[s].window <= w &&
                        now + slots_of(traits(side.item[s].step).unit) <= end &&
                        !may_not_follow(out.at[out.count - 1], side.item[s]);
        // An LDS instruction takes the next slot, too: rather while the vector unit is at work.
        if (side_now && traits(side.item[s].step).unit == Unit::kLds && v < vector.count &&
            vector_free <= now + 1 && w < side.item[s].window + kPatience)
          side_now = false;
        if (vector_now) {
          vector_free = now + (traits(vector.item[v].step).unit == Unit::kTrans ? 4 : 1);
          emit(vector.item[v++]);
        } else if (side_now) {
          emit(side.item[s++]);
        } else {
          ++now;
        }
      }
      // What the next matrix instruction waits for, the barrier, and what comes before them cannot
      // be put off.
      int due = w == kWindows - 1 ? side.count : s;
      for (int i = s; i < side.count && side.item[i].window <= w; ++i)
        if (traits(side.item[i].step).unit == Unit::kWait) due = most(due, i + 1);
      while (s < due) emit(side.item[s++]);
    }
    out.fits = v == vector.count && now <= slots;
    while (v < vector.count) emit(vector.item[v++]);
    return out;
  }
  static constexpr bool is_valid(int t, const Timetable& table) {
    bool written = false;
    int lds = 0, there = 1;  // LDS instructions since the reads; reads that have been waited for
    for (int i = 0; i < table.count; ++i) {
      const Placed& p = table.at[i];
      if (i > 0 && may_not_follow(table.at[i - 1], {p.step, p.n, 0})) return false;
      if (p.step == Step::kWriteV) written = true, ++lds;
      if (written && p.step == Step::kTranspose) return false;
      if (t == kWaitK && p.step == Step::kWaitK) there = most(there, 2 * S::kReadsK + lds - p.n);
      if (t == kWaitV && p.step == Step::kWaitV) there = most(there, 2 * S::kReadsV + lds - p.n);
      if (t == kWaitK && p.step == Step::kScore && reads_until_score(p.n) > there) return false;
      if (t == kWaitV && p.step == Step::kOutput && reads_until_output(p.n) > there) return false;
    }
    return table.fits;
  }
  // In the time of the matrix instructions, or as little more as the vector unit needs: at least
  // that of its steps, and a slot for each matrix instruction.
  static constexpr Timetable place(int t) {
    int slots = kWindows;
    const Vector vector = vector_steps(t);
    for (int i = 0; i < vector.count; ++i)
      slots += traits(vector.item[i].step).unit == Unit::kTrans ? 4 : 1;
    for (slots = most(slots, 4 * kWindows);; ++slots) {
      const Timetable out = place(t, slots);
      if (is_valid(t, out)) return out;
    }
  }
  template <int t>
  static constexpr Timetable kTable = place(t);
};
