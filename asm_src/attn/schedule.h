// When every instruction of the main loop is issued, worked out at compile time. Plain C++, no
// device code: build_scripts/schedules.py prints the tables as asm_src/attn/schedules/*.txt.
//
// A wave runs alone on its SIMD, so nothing hides a bubble: the order of its instructions is the
// schedule. The loop works in units of (a tile of q rows, 32 keys). While the vector unit turns the
// scores of unit n into probabilities, the matrix unit computes the scores of unit n + 1 and the
// output of unit n - 1. Units of a block of keys follow each other; K and V operands stay in
// registers for all of them and are replaced one by one, each right behind its last use.
// Which steps each unit has is in attn/unit_steps.h.
//
// Time is counted in issue slots (4 cycles). A matrix instruction (16 cycles, of 32 rows 32) takes
// the first of four or eight and keeps the vector unit out of the second
// (virtual_device/timing/arch.h), which is where memory instructions and waits go; a transcendental
// keeps the vector unit for four.
#pragma once
#include "attn/unit_steps.h"

template <class S>
struct Schedule : UnitSteps<S> {
  using Steps = UnitSteps<S>;
  using Steps::is_score, Steps::op, Steps::read_of_output, Steps::read_of_score;
  using Steps::kBarrier, Steps::kFlipReadK, Steps::kFlipReadV, Steps::kFlipsFirst;
  using Steps::kFlipWriteV, Steps::kNextBlockOps, Steps::next_block, Steps::kSlots, Steps::kSplit,
      Steps::kTransposes;
  using Steps::kLone, Steps::kTransposeV, Steps::kWindows, Steps::kWriteV;
  using Steps::side_steps, Steps::trans_steps, Steps::vector_steps;
  using Steps::waits_k, Steps::waits_v;
  using typename Steps::Done;

  // ---- All of a unit, beside the matrix instructions
  struct Timetable {
    Placed at[352];
    int count, slots;
    bool fits;
  };
  static constexpr int kTransSlots = S::Target::kTransSlots;
  // Whether a transcendental keeps the vector unit while a matrix instruction issues.
  static constexpr bool kOverMatrix = kTransSlots == 4;
  // Matrix instructions for which an LDS instruction is put off.
  static constexpr int kPatience = S::kDirect ? 1 : 3;
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
    const auto vector = vector_steps(t), trans = trans_steps();
    const auto side = side_steps(t);
    Done done{};
    // Where there is room for two more lost slots a matrix instruction, vector steps are spread
    // evenly: then the time depends neither on how many are lost nor on what they are beside.
    const int work = vector.count + kTransSlots * trans.count;
    const bool spreads = S::kTile == 32 && work + 3 * kWindows <= kSlots * kWindows;
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
        const bool wants_trans = !kOverMatrix     ? (x + 1) * kWindows <= (w + 1) * trans.count
                                 : S::kTile == 32 ? now == end - 1 || late
                                                  : since >= 3 || x == 0;
        const bool has_room = kOverMatrix || now + kTransSlots <= end;
        const bool takes_trans = trans_can && has_room && (wants_trans || !vector_can);
        const bool in_pace = (v + kTransSlots * x) * (kWindows - 1) < (w + 1) * work;
        const bool vector_now =
            vector_free <= now && (takes_trans || vector_can) && (in_pace || !spreads);
        bool side_now = can(side, s) && now + slots_of(side.item[s]) <= end;
        // An LDS instruction takes the next slot, too: rather while the vector unit is at work.
        if (side_now && traits(side.item[s].step).unit == Unit::kLds &&
            (v < vector.count || x < trans.count) && vector_free <= now + 1 && !spreads &&
            w < side.item[s].window + kPatience)
          side_now = false;
        if (side_now && traits(side.item[s].step).unit == Unit::kLds &&
            !S::Target::kLdsRightBehindMatrix && traits(last.step).unit == Unit::kMatrix)
          side_now = false;
        if (vector_now) {
          vector_free = now + (takes_trans ? kTransSlots : 1);
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

  // The same with LDS instructions in an order of their own, so that what may follow a matrix
  // instruction at once is not behind one that may not.
  static constexpr Timetable place_apart(int t, int slots, const Timetable& before) {
    Timetable out{{}, 0, slots, false};
    const auto vector = vector_steps(t), trans = trans_steps();
    const auto all = side_steps(t);
    Items<96> lds{}, side{};
    for (int i = 0; i < all.count; ++i)
      (traits(all.item[i].step).unit == Unit::kLds ? lds : side)
          .item[(traits(all.item[i].step).unit == Unit::kLds ? lds : side).count++] = all.item[i];
    Done done{};
    int now = 0, vector_free = 0, v = 0, x = 0, s = 0, d = 0;
    const auto put = [&out, &now, &before, &done](const Item& item) {
      int n = item.n;
      if (item.step == Step::kWaitK) n = behind(before, out, Step::kReadK, n);
      if (item.step == Step::kWaitV) n = behind(before, out, Step::kReadV, n);
      out.at[out.count++] = {item.step, n, now};
      done.see(item.step);
      now += slots_of(item);
    };
    // What a wait waits for comes first, unless the unit before has read it.
    const auto emit = [&](const Item& item) {
      const Step read = item.step == Step::kWaitK ? Step::kReadK : Step::kReadV;
      const bool of_unit = !kLone || item.window == kWindows - 1;
      if (of_unit && (item.step == Step::kWaitK || item.step == Step::kWaitV)) {
        int until = d;
        for (int i = d; i < lds.count; ++i)
          if (lds.item[i].step == read && lds.item[i].n <= item.n) until = i + 1;
        while (d < until) put(lds.item[d++]);
      }
      put(item);
    };
    bool early = true;  // before its window
    for (int w = 0; w < kWindows; ++w) {
      const int begin = w * slots / kWindows, end = (w + 1) * slots / kWindows;
      if (!early) now = most(now, begin);
      emit({is_score(w) ? Step::kScore : Step::kOutput, op(w), w});
      const int matrix = now;  // the slot behind it
      vector_free = most(most(vector_free, now - 1) + 1, now + 1);
      early = false;
      while (now < end && !early) {
        const Placed& last = out.at[out.count - 1];
        const auto can = [&](const auto& items, int n) {
          return n < items.count && items.item[n].window <= w &&
                 !may_not_follow(last, items.item[n]) && done.allows(items.item[n]);
        };
        const bool vector_can = can(vector, v) && vector_free <= now;
        const bool trans_can = can(trans, x) && vector_free <= now && now + kTransSlots <= end &&
                               (x + 1) * kWindows <= (w + 2) * trans.count;
        const bool side_can = can(side, s);
        const bool lds_can = can(lds, d) && now > matrix && now + 2 <= end;
        if (now == matrix && side_can)
          emit(side.item[s++]);
        else if (trans_can) {
          vector_free = now + kTransSlots;
          emit(trans.item[x++]);
        } else if (lds_can &&
                   (vector_free > now || !vector_can || (lds.count - d) * 2 > kWindows - w)) {
          emit(lds.item[d++]);
        } else if (vector_can) {
          vector_free = now + 1;
          emit(vector.item[v++]);
        } else if (side_can) {
          emit(side.item[s++]);
        } else if (now + 1 == end && vector_free <= now && now >= matrix + kSlots - 1) {
          early = true;  // no room for a transcendental
        } else {
          ++now;
        }
      }
      int due = w == kWindows - 1 ? side.count : s;
      for (int i = s; i < side.count && side.item[i].window <= w; ++i)
        if (traits(side.item[i].step).unit == Unit::kWait) due = most(due, i + 1);
      while (s < due) emit(side.item[s++]);
    }
    while (d < lds.count) put(lds.item[d++]);
    out.fits = v == vector.count && x == trans.count && now <= slots;
    return out;
  }

  // What the order must keep, told from the placed steps alone.
  static constexpr bool is_valid(int t, const Timetable& before, const Timetable& table) {
    bool met = t != kBarrier, written = false;
    bool staged = kSplit && t == kWriteV;
    int transposes = t == kTransposeV ? 0 : t == kWriteV ? kTransposes / 2 : kTransposes;
    int next_blocks = 0;
    for (int n = 0; n < kNextBlockOps; ++n) next_blocks += next_block(n) < t * kWindows;
    Done done{};
    Uses uses{};
    if (waits_k(t) || waits_v(t))
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
      // That of several stages is read a barrier later.
      const bool is_read = p.step == Step::kReadV || p.step == Step::kReadK;
      const bool shared = (is_read && !S::kDirect) || p.step == Step::kSetM0;
      if (shared && !met) return false;
      if (p.step == Step::kLoadK && next_blocks != kNextBlockOps) return false;
      uses.see(p);
      if (waits_k(t) && p.step == Step::kScore && !uses.there(Step::kReadK, read_of_score(p.n)))
        return false;
      if (waits_v(t) && p.step == Step::kOutput && !uses.there(Step::kReadV, read_of_output(p.n)))
        return false;
    }
    return true;
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
      if (p.step == Step::kWaitBlock && !kLone) ended = issued;
    }
    constexpr bool there(Step read, int n) const {
      const int nth = read == Step::kReadK ? of_k[n] : of_v[n];
      return nth > 0 && nth <= ended;
    }
  };
  // In the time of the matrix instructions, or as little more as the vector unit needs: at least
  // that of its steps, and a slot for each matrix instruction.
  static constexpr Timetable place_in_least(int t, const Timetable& before) {
    int slots = kWindows + vector_steps(t).count + kTransSlots * trans_steps().count;
    for (slots = most(slots, kSlots * kWindows); slots <= 4 * kSlots * kWindows; ++slots) {
      const Timetable out = S::kDirect ? place_apart(t, slots, before) : place(t, slots, before);
      if (out.fits && is_valid(t, before, out)) return out;
    }
    return {{}, 0, 0, false};
  }
  // A unit that waits for operands waits for reads of the one before. Of those that is known before
  // they are placed what follows them: they have an order of their own.
  template <int t>
  static constexpr Timetable table_of() {
    constexpr Timetable kNone{{}, 0, 0, false};
    if constexpr (kLone && t == 0)
      return place_in_least(t, place_apart(S::kUnits - 1, 2 * kSlots * kWindows, kNone));
    else if constexpr (waits_k(t) || waits_v(t))
      return place_in_least(t, kTable<t - 1>);
    else
      return place_in_least(t, kNone);
  }
  template <int t>
  static constexpr Timetable kTable = table_of<t>();
  // Whether the first unit keeps the order behind the last one, too.
  static constexpr bool closes() {
    if constexpr (kLone)
      return is_valid(0, kTable<S::kUnits - 1>, kTable<0>);
    else
      return true;
  }
};
