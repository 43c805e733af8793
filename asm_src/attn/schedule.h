// When every instruction of the main loop is issued, worked out at compile time. Plain C++, no
// device code: build_scripts/schedules.py prints the tables as asm_src/attn/schedules/*.txt.
//
// A wave runs alone on its SIMD, so nothing hides a bubble: the order of its instructions is the
// schedule. The loop works in units of (a tile of q rows, 32 keys). While the vector unit turns the
// scores of unit n into probabilities, the matrix unit computes the scores of unit n + 1 and the
// output of unit n - 1. Units of a block of keys follow each other; K and V operands stay in
// registers for all of them and are replaced one by one, each right behind its last use.
//
//   unit of tile   beside matrix and softmax
//   0              descriptors of the block after the next; barrier: the next block of K and this
//                  one of V are in LDS; V operands of this block from there
//   1              (wait for V operands, one by one); K two blocks ahead, from memory to LDS
//   N - 2          K operands of the next block from LDS; the next block of V has arrived from
//                  memory: transposed in registers
//   N - 1          (wait for K operands, one by one); the rest of V, and to LDS; V of the block
//                  after it from memory
//
// With two tiles, units 0 and N - 2 are one, and so are 1 and N - 1; K is then loaded in the first,
// and V transposed in the second.
//
// Time is counted in issue slots (4 cycles). A matrix instruction (16 cycles, of 32 rows 32) takes
// the first of four or eight and keeps the vector unit out of the second
// (virtual_device/timing/arch.h), which is where memory instructions and waits go; a transcendental
// keeps the vector unit for four.
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
inline constexpr int kStepNames = int(Step::kBarrier) + 1;

inline constexpr int kSampled = 5;  // of a lane's probabilities of a unit

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
  static constexpr int kWindows = S::kScoreOps + S::kOutputOps, kSlots = S::kTile / 4;
  static constexpr int kN = S::kTilesQ;

  // Stages of a block: in the unit of which tile. With two tiles a block has little time: its
  // stages follow each other at once, and K is one block further ahead of V.
  static constexpr bool kShort = kN == 2;
  static constexpr int kReadV = 0, kWaitV = 1, kReadK = kN - 2, kWaitK = kN - 1;
  static constexpr bool kSplit = S::kTile == 16;  // transpositions, between two units
  static constexpr int kWriteV = kShort ? 1 : kN - 3, kTransposeV = kWriteV - kSplit;
  static constexpr int kMeet = kShort ? 0 : kN - 3;
  static constexpr int kLoadV = kShort ? 1 : kN - 2, kLoadK = kShort ? 0 : kN - 1;
  static constexpr bool kFlipsFirst = kShort;  // or behind the reads and writes of a block
  static constexpr int kFlipReadK = kShort ? 0 : kN - 1, kFlipWriteV = kShort ? 0 : kN - 2;
  static constexpr int kFlipReadV = kShort ? 0 : kN - 1;
  // And behind which matrix instruction.
  static constexpr int kStagedThere = kWindows * (kSplit ? 5 : 3) / 8;
  static constexpr int kBarrier = kShort ? kWindows * 3 / 8 : kWindows - 2;
  static constexpr int next_block(int n) {
    return kShort ? n * kBarrier / kNextBlockOps : kBarrier - 1 - kNextBlockOps + n;
  }
  static constexpr int write_v(int n) { return n + (kSplit ? 6 : kWindows * 3 / 4); }
  static constexpr int load_v(int n) {
    return kShort ? kWindows * (12 + n) / 16 : 1 + n * kWindows / S::kLoadsV;
  }
  static constexpr int load_k(int n) {
    const int first = kShort ? kBarrier + 1 : 0;
    return first + n * (kWindows - first) / S::kLoadsK;
  }
  static constexpr int kNextBlockOps = 11, kTransposes = 2 * S::kWidthV;
  static constexpr int kLoadsBehind = kShort ? S::kLoadsV : 0;  // those of K that are waited for

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
  // Score op n: keys half n % kHalves, step n / kHalves. Output op n: step n / kTilesD over the
  // keys, tile n % kTilesD. Two steps of a half, two tiles of a step have one register.
  static constexpr int read_of_score(int op) {
    return op / (2 * S::kHalves) * S::kHalves + op % S::kHalves;
  }
  static constexpr int read_of_output(int op) { return op / 2; }
  static constexpr bool is_second(int w) {
    return is_score(w) ? op(w) / S::kHalves % 2 : op(w) % 2;
  }

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
      if (e == kSampled) out.add(Step::kSample);
      if (e >= 0 && e % 2 == 1) out.add(Step::kPack, e / 2);
      for (int n = 0; n < S::kAddressesK; ++n)
        if (e == 2 && t == kFlipReadK) out.add(Step::kFlipReadK, n);
      if (e == kE / 2 && t == kFlipWriteV) out.add(Step::kFlipWriteV);
      if (e == (kFlipsFirst ? 2 : kE / 2) && t == kFlipReadV) out.add(Step::kFlipReadV);
      if (e == kE / 2 && !kSplit && t == kTransposeV) transpose(0, kTransposes, kStagedThere + 1);
    }
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
  static constexpr Side side_steps(int t) {
    Side out{};
    const bool meets = t == kMeet;
    for (int w = 0; w < kWindows; ++w) {
      if (meets)
        for (int n = 0; n < kNextBlockOps; ++n)
          if (w == next_block(n)) out.add(Step::kNextBlock, n, w);
      if (meets && w == kBarrier - 1) out.add(Step::kFlipM0, 0, w);
      if (meets && w == kBarrier) {
        out.add(Step::kWaitBlock, 0, w);
        out.add(Step::kBarrier, 0, w);
      }
      if (t == kWaitK - 1 && w == kWindows - 1) out.add(Step::kWaitK, 0, w);
      if (w + 1 < kWindows && !is_second(w + 1)) {
        if (t == kWaitK && is_score(w + 1)) out.add(Step::kWaitK, read_of_score(op(w + 1)), w);
        if (t == kWaitV && !is_score(w + 1)) out.add(Step::kWaitV, read_of_output(op(w + 1)), w);
      }
      // Behind the last use, and what was waited for at the barrier behind that.
      for (int use = 0; use <= w; ++use) {
        if (!is_second(use) || (meets ? most(use, kBarrier + 1) : use) != w) continue;
        if (t == kReadV && !is_score(use)) out.add(Step::kReadV, read_of_output(op(use)), w);
        if (t == kReadK && is_score(use)) out.add(Step::kReadK, read_of_score(op(use)), w);
      }
      if (t == kTransposeV && w == kStagedThere) out.add(Step::kWaitStaged, 0, w);
      for (int n = 0; n < S::kWidthV / 2; ++n)
        if (t == kWriteV && w == write_v(n)) out.add(Step::kWriteV, n, w);
      for (int n = 0; n < S::kLoadsV; ++n)
        if (t == kLoadV && w == load_v(n)) out.add(Step::kLoadV, n, w);
      for (int n = 0; n < S::kLoadsK; ++n) {
        if (t != kLoadK || w != load_k(n)) continue;
        out.add(Step::kSetM0, n, w);
        out.add(Step::kLoadK, n, w + 1);
      }
    }
    return out;
  }

  // ---- Both beside the matrix instructions
  struct Timetable {
    Placed at[352];
    int count, slots;
    bool fits;
  };
  static constexpr int kPatience =
      3;  // matrix instructions for which an LDS instruction is put off
  static constexpr int slots_of(const Item& item) {  // of the wave; a kTrans keeps its unit for 4
    switch (item.step) {
      case Step::kNextBlock:  // the first two add 64 bits
        return item.n < 2 ? 2 : 1;
      case Step::kExceeds:  // and is there such a lane
        return 2;
      default:
        return traits(item.step).unit == Unit::kLds ? 2 : 1;
    }
  }
  // Without an instruction between them: M0 and its use, a transcendental and that of its result.
  static constexpr bool may_not_follow(const Placed& first, const Item& second) {
    if (first.step == Step::kSetM0) return second.step == Step::kLoadK;
    if (traits(first.step).unit != Unit::kTrans || traits(second.step).unit != Unit::kVector)
      return false;
    const bool adds_two = second.step == Step::kSum && second.n == 1;
    return first.n == second.n || (adds_two && first.n == 0) || second.step == Step::kPack;
  }
  // LDS operations end in their order: those of two units behind the nth read of K or V may be
  // under way. The counter has four bits; at its greatest value it tells nothing.
  static constexpr int behind(const Timetable& before, const Timetable& now, Step read, int n) {
    int count = 0;
    for (int unit = 0; unit < 2; ++unit) {
      const Timetable& table = unit == 0 ? now : before;
      for (int i = table.count - 1; i >= 0; --i) {
        const Placed& p = table.at[i];
        if (p.step == read && p.n == n) return least(14, count);
        count += traits(p.step).unit == Unit::kLds;
      }
    }
    return 0;
  }
  // In `slots`; fits if they suffice. `before`: of the unit before, if this one waits for its
  // reads.
  static constexpr Timetable place(int t, int slots, const Timetable& before) {
    Timetable out{{}, 0, slots, false};
    const Vector vector = vector_steps(t), trans = trans_steps();
    const Side side = side_steps(t);
    Done done{};
    int now = 0, vector_free = 0, v = 0, x = 0, s = 0, since = 0;
    const auto emit = [&out, &now, &before, &done](const Item& item) {
      int n = item.n;
      if (item.step == Step::kWaitK) n = behind(before, out, Step::kReadK, n);
      if (item.step == Step::kWaitV) n = behind(before, out, Step::kReadV, n);
      out.at[out.count++] = {item.step, n, now};
      done.see(item.step);
      now += slots_of(item);
    };
    for (int w = 0; w < kWindows; ++w) {
      const int begin = w * slots / kWindows, end = (w + 1) * slots / kWindows;
      now = most(now, begin);
      emit({is_score(w) ? Step::kScore : Step::kOutput, op(w), w});
      vector_free = most(most(vector_free, now - 1) + 1, now + 1);
      while (now < end) {
        const Placed& last = out.at[out.count - 1];
        const auto can = [&](const auto& items, int n) {
          return n < items.count && items.item[n].window <= w &&
                 !may_not_follow(last, items.item[n]) && done.allows(items.item[n]);
        };
        const bool vector_can = can(vector, v), trans_can = can(trans, x);
        // A transcendental keeps the vector unit for four slots. Right before a matrix instruction
        // of 32 rows, one of them is that in which it issues; the last must come before the last
        // window. Instructions of 16 rows come too often for that.
        const bool late = w >= kWindows / 3 && x * (kWindows - 1) < w * trans.count;
        const bool wants_trans = S::kTile == 32 ? now == end - 1 || late : since >= 3 || x == 0;
        const bool takes_trans = trans_can && (wants_trans || !vector_can);
        const bool vector_now = vector_free <= now && (takes_trans || vector_can);
        bool side_now = can(side, s) && now + slots_of(side.item[s]) <= end;
        // An LDS instruction takes the next slot, too: rather while the vector unit is at work.
        if (side_now && traits(side.item[s].step).unit == Unit::kLds &&
            (v < vector.count || x < trans.count) && vector_free <= now + 1 &&
            w < side.item[s].window + kPatience)
          side_now = false;
        if (vector_now) {
          vector_free = now + (takes_trans ? 4 : 1);
          since = takes_trans ? 0 : since + 1;
          emit(takes_trans ? trans.item[x++] : vector.item[v++]);
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
    out.fits = v == vector.count && x == trans.count && now <= slots;
    return out;
  }

  // What the order must keep, told from the placed steps alone.
  static constexpr bool is_valid(int t, const Timetable& before, const Timetable& table) {
    bool met = t != kMeet, written = false;
    bool staged = kSplit && t == kWriteV;
    int transposes = t == kTransposeV ? 0 : t == kWriteV ? kTransposes / 2 : kTransposes;
    int next_blocks = t == kMeet ? 0 : kNextBlockOps;
    Done done{};
    Uses uses{};
    if (t == kWaitK || t == kWaitV)
      for (int i = 0; i < before.count; ++i) uses.see(before.at[i]);
    for (int i = 0; i < table.count; ++i) {
      const Placed& p = table.at[i];
      if (i > 0 && may_not_follow(table.at[i - 1], {p.step, p.n, 0})) return false;
      if (!done.allows({p.step, p.n, 0})) return false;
      done.see(p.step);
      met |= p.step == Step::kBarrier;
      staged |= p.step == Step::kWaitStaged;
      next_blocks += p.step == Step::kNextBlock;
      if (p.step == Step::kReadK || p.step == Step::kReadV || p.step == Step::kWriteV)
        if (done.of[int(flip_of(p.step))] != flips_before(t, p.step)) return false;
      // Registers of V from memory: waited for, transposed, written, loaded again.
      if (p.step == Step::kTranspose && (!staged || written)) return false;
      transposes += p.step == Step::kTranspose;
      if (p.step == Step::kWriteV && transposes < kTransposes) return false;
      if (p.step == Step::kLoadV && transposes < (p.n / 2 + 1) * S::kWidthV) return false;
      written |= p.step == Step::kWriteV;
      // LDS that other waves fill or read: behind the barrier.
      const bool shared =
          p.step == Step::kReadV || p.step == Step::kReadK || p.step == Step::kSetM0;
      if (shared && !met) return false;
      if (p.step == Step::kLoadK && next_blocks != kNextBlockOps) return false;
      uses.see(p);
      if (t == kWaitK && p.step == Step::kScore && !uses.there(Step::kReadK, read_of_score(p.n)))
        return false;
      if (t == kWaitV && p.step == Step::kOutput && !uses.there(Step::kReadV, read_of_output(p.n)))
        return false;
    }
    return table.fits;
  }
  // How often the address that a step uses must have been flipped in its unit before.
  static constexpr int flips_before(int t, Step step) {
    if (!kFlipsFirst) return 0;
    if (step == Step::kReadK) return t == kFlipReadK ? S::kAddressesK : 0;
    if (step == Step::kReadV) return t == kFlipReadV;
    return t == kFlipWriteV;
  }
  static constexpr Step flip_of(Step step) {
    if (step == Step::kReadK) return Step::kFlipReadK;
    return step == Step::kReadV ? Step::kFlipReadV : Step::kFlipWriteV;
  }
  // LDS instructions so far, and how many of them have ended by what was waited for.
  struct Uses {
    int issued = 0, ended = 0;
    int of_k[2 * S::kHalves * S::kReadsK] = {}, of_v[2 * S::kStepsKeys * S::kReadsV] = {};
    constexpr void see(const Placed& p) {
      issued += traits(p.step).unit == Unit::kLds;
      if (p.step == Step::kReadK) of_k[p.n] = issued;
      if (p.step == Step::kReadV) of_v[p.n] = issued;
      if (p.step == Step::kWaitK || p.step == Step::kWaitV) ended = most(ended, issued - p.n);
      if (p.step == Step::kWaitBlock) ended = issued;
    }
    constexpr bool there(Step read, int n) const {
      const int nth = read == Step::kReadK ? of_k[n] : of_v[n];
      return nth > 0 && nth <= ended;
    }
  };
  // In the time of the matrix instructions, or as little more as the vector unit needs: at least
  // that of its steps, and a slot for each matrix instruction.
  static constexpr Timetable place(int t) {
    Timetable before{{}, 0, 0, false};
    if (t == kWaitK || t == kWaitV) before = place(t - 1);
    int slots = kWindows + vector_steps(t).count + 4 * trans_steps().count;
    for (slots = most(slots, kSlots * kWindows); slots <= 4 * kSlots * kWindows; ++slots) {
      const Timetable out = place(t, slots, before);
      if (is_valid(t, before, out)) return out;
    }
    return {{}, 0, 0, false};
  }
  template <int t>
  static constexpr Timetable kTable = place(t);
};
