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
// Time is counted in issue slots (4 cycles). A matrix instruction takes four slots with 16 rows,
// eight with 32. It issues in the first and blocks the vector unit in the second (mfma_lost_slots
// of virtual_device/arch/timing.h), which is where memory instructions and waits go. A
// transcendental takes the vector unit for four. Window w of a unit begins with its w-th matrix
// instruction and ends before the next.
#pragma once
#include "attn/unit_steps.h"

template <class S>
struct Schedule : UnitSteps<S> {
  using Steps = UnitSteps<S>;
  using Steps::is_score, Steps::kBarrier, Steps::kFlipReadK, Steps::kFlipReadV, Steps::kFlipWriteV,
      Steps::kFlipsFirst, Steps::kLone, Steps::kNextBlockOps, Steps::kSlots, Steps::kSplit,
      Steps::kTransposeV, Steps::kTransposes, Steps::kWindows, Steps::kWriteV, Steps::next_block,
      Steps::op, Steps::read_of_output, Steps::read_of_score, Steps::side_steps, Steps::trans_steps,
      Steps::vector_steps, Steps::waits_k, Steps::waits_v;
  using typename Steps::Done;

  // ---- What the rules of a member depend on
  static constexpr int kTransSlots = S::Target::kTransSlots;  // of the vector unit
  // Whether a transcendental keeps the vector unit while a matrix instruction issues.
  static constexpr bool kOverMatrix = kTransSlots == 4;
  static constexpr bool kRows32 = S::kTile == 32;  // of a matrix instruction; otherwise 16
  // Whether LDS instructions have a queue of their own, so that what may follow a matrix
  // instruction at once is not behind one that may not.
  static constexpr bool kLdsApart = S::kDirect;

  // ---- A unit as far as it is placed, beside its matrix instructions
  struct Timetable {
    Placed at[352];
    int count, slots;
    bool fits;
  };
  static constexpr bool is_lds(Step step) { return traits(step).unit == Unit::kLds; }
  static constexpr int slots_of(const Item& item) {                // of the wave
    if (item.step == Step::kNextBlock) return item.n < 2 ? 2 : 1;  // the first two add 64 bits
    if (item.step == Step::kExceeds) return 2;                     // and is there such a lane
    return is_lds(item.step) ? 2 : 1;
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
        count += is_lds(p.step);
      }
    }
    return 0;
  }
  // Steps wait in queues, each in its order; kMatrix is the next matrix instruction.
  enum Queue { kTrans, kVector, kLds, kOther, kQueues, kMatrix = kQueues };
  struct Queues {
    Items<160> of[kQueues];
  };
  static constexpr Queues queues(int t) {
    Queues out{{trans_steps(), vector_steps(t)}};
    const auto side = side_steps(t);
    for (int i = 0; i < side.count; ++i) {
      const Item& item = side.item[i];
      out.of[kLdsApart && is_lds(item.step) ? kLds : kOther].add(item.step, item.n, item.window);
    }
    return out;
  }
  struct State {
    const Queues& queue;
    const Timetable& before;  // of the unit before, if this one waits for its reads
    Timetable out;
    int next[kQueues] = {};
    bool ready[kQueues + 1] = {};   // may the first one left of a queue be issued now?
    int w = 0, begin = 0, end = 0;  // matrix instruction, the slot behind it, that of the next one
    int now = 0, vector_free = 0;   // slots
    int since_trans = 3;            // vector instructions
    Done done{};

    constexpr int count(Queue of) const { return queue.of[of].count; }
    constexpr int left(Queue of) const { return count(of) - next[of]; }
    constexpr const Item& first(Queue of) const { return queue.of[of].item[next[of]]; }
    constexpr bool has_room(int slots) const { return now + slots <= end; }
    constexpr int work() const { return count(kVector) + kTransSlots * count(kTrans); }
    // Where there is room for two more lost slots a matrix instruction, vector steps are spread
    // evenly: then the time depends neither on how many are lost nor on what they are beside.
    constexpr bool spreads() const {
      return kOverMatrix && kRows32 && work() + 3 * kWindows <= kSlots * kWindows;
    }
    constexpr bool in_pace() const {
      const int issued = next[kVector] + kTransSlots * next[kTrans];
      return !spreads() || issued * (kWindows - 1) < (w + 1) * work();
    }
    // By what it needs, its unit, and the slots up to the next matrix instruction.
    constexpr bool is_ready(Queue of) const {
      if (left(of) == 0 || first(of).window > w || !done.allows(first(of)) ||
          may_not_follow(out.at[out.count - 1], first(of)))
        return false;
      if (of == kTrans || of == kVector) return vector_free <= now && in_pace();
      return has_room(slots_of(first(of))) &&
             (S::Target::kLdsRightBehindMatrix || now > begin || !is_lds(first(of).step));
    }
    constexpr void take(Queue from) {
      if (from == kTrans) vector_free = now + kTransSlots, since_trans = 0;
      if (from == kVector) vector_free = now + 1, ++since_trans;
      const Item& item = queue.of[from].item[next[from]++];
      const bool waits_k = item.step == Step::kWaitK;
      if (!waits_k && item.step != Step::kWaitV) return issue(item);
      // Behind the reads that it is for, unless those are the unit before's.
      const Step read = waits_k ? Step::kReadK : Step::kReadV;
      for (int i = next[kLds]; i < count(kLds) && !kLone; ++i)
        if (const Item& one = queue.of[kLds].item[i]; one.step == read && one.n <= item.n)
          while (next[kLds] <= i) take(kLds);
      issue({item.step, behind(before, out, read, item.n), 0});
    }
    constexpr void issue(const Item& item) {
      out.at[out.count++] = {item.step, item.n, now};
      done.see(item.step);
      now += slots_of(item);
    }
    constexpr void begin_window(int nth) {
      w = nth;
      issue({is_score(w) ? Step::kScore : Step::kOutput, op(w), w});
      begin = now;
      end = (w + 1) * out.slots / kWindows;
      vector_free = most(vector_free, now) + 1;
    }
    // What the next matrix instruction waits for, the barrier, and what comes before them cannot be
    // put off.
    constexpr void end_window() {
      const auto& other = queue.of[kOther];
      int due = w == kWindows - 1 ? other.count : next[kOther];
      for (int i = due; i < other.count && other.item[i].window <= w; ++i)
        if (traits(other.item[i].step).unit == Unit::kWait) due = i + 1;
      while (next[kOther] < due) take(kOther);
    }
  };

  // ---- The rules: which instruction comes next. It is that of the first rule that holds and whose
  // queue is ready; if there is none the slot stays empty.
  struct Rule {
    bool is_used;  // by this member
    Queue from;
    bool (*holds)(const State&);
  };
  static constexpr Rule kRules[] = {
      // A transcendental right before a matrix instruction: its four slots then include the one in
      // which the matrix instruction issues, which no vector instruction could have used.
      {kOverMatrix && kRows32, kTrans, [](const State& s) { return s.now == s.end - 1; }},
      // From a third of the unit on, wherever fewer have been issued than an even share: all should
      // be out before the last window.
      {kOverMatrix && kRows32, kTrans,
       [](const State& s) {
         return s.w >= kWindows / 3 && s.next[kTrans] * (kWindows - 1) < s.w * s.count(kTrans);
       }},
      // With 16 rows every transcendental overlaps a matrix instruction, so its place does not
      // matter. They are spread, three vector instructions apart.
      {kOverMatrix && !kRows32, kTrans, [](const State& s) { return s.since_trans >= 3; }},
      // Rather a transcendental too early than an idle vector unit.
      {kOverMatrix, kTrans, [](const State& s) { return !s.ready[kVector]; }},
      // A transcendental that must end before the next matrix instruction: wherever it has room,
      // but at most a window ahead of an even share, so that they do not all come first.
      {!kOverMatrix, kTrans,
       [](const State& s) {
         return s.has_room(kTransSlots) &&
                (s.next[kTrans] + 1) * kWindows <= (s.w + 2) * s.count(kTrans);
       }},
      // If more than one LDS instruction is left for every two windows, they go before vector
      // steps: what is left at the end of the unit has no matrix instruction beside it.
      {kLdsApart, kLds, [](const State& s) { return 2 * s.left(kLds) > kWindows - s.w; }},
      // The vector unit is what limits the loop, wherever the matrix unit does not.
      {true, kVector, [](const State&) { return true; }},
      // No vector step is ready: an LDS instruction. It takes two slots and may delay the next
      // vector step by one, which the units of gfx950 have to spare.
      {kLdsApart, kLds, [](const State&) { return true; }},
      // No vector step is ready: the slot is free for a scalar or memory instruction, or a wait.
      {true, kOther, [](const State& s) { return !is_lds(s.first(kOther).step); }},
      // gfx942: an LDS instruction takes two slots, so it goes only while the vector unit is busy
      // for both, or has nothing left. With `spreads` there are slots enough.
      {!kLdsApart, kOther,
       [](const State& s) {
         return s.vector_free > s.now + 1 || s.spreads() || s.left(kVector) + s.left(kTrans) == 0;
       }},
      // The queue must not be held up: an LDS instruction that is three windows late goes as soon
      // as no vector step is ready.
      {!kLdsApart, kOther, [](const State& s) { return s.w >= s.first(kOther).window + 3; }},
      // One slot is left, too short for a transcendental or an LDS instruction, and the matrix unit
      // is free: its next instruction comes a slot early.
      {!kOverMatrix, kMatrix,
       [](const State& s) {
         return s.now + 1 == s.end && s.vector_free <= s.now && s.now >= s.begin + kSlots - 1;
       }},
  };
  static constexpr const Rule* next_rule(const State& s) {
    for (const Rule& rule : kRules)
      if (rule.is_used && s.ready[rule.from] && rule.holds(s)) return &rule;
    return nullptr;
  }
  // In `slots`; fits if they suffice.
  static constexpr Timetable place(const Queues& queue, int slots, const Timetable& before) {
    State s{queue, before, {{}, 0, slots, false}};
    s.ready[kMatrix] = true;
    for (int w = 0; w < kWindows; s.end_window(), ++w) {
      s.begin_window(w);
      while (s.now < s.end) {
        for (int of = 0; of < kQueues; ++of) s.ready[of] = s.is_ready(Queue(of));
        const Rule* rule = next_rule(s);
        if (rule == nullptr)
          ++s.now;
        else if (rule->from == kMatrix)
          s.end = s.now;
        else
          s.take(rule->from);
      }
    }
    while (s.left(kLds) > 0) s.take(kLds);
    s.out.fits = s.left(kVector) + s.left(kTrans) == 0 && s.now <= slots;
    return s.out;
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
    const Queues queue = queues(t);
    int slots = kWindows + queue.of[kVector].count + kTransSlots * queue.of[kTrans].count;
    for (slots = most(slots, kSlots * kWindows); slots <= 4 * kSlots * kWindows; ++slots) {
      const Timetable out = place(queue, slots, before);
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
      return place_in_least(t, place(queues(S::kUnits - 1), 2 * kSlots * kWindows, kNone));
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
