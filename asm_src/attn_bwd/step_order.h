// In which order a wave issues what a step is, worked out at compile time. Plain C++.
//
// Matrix instructions are the clock: window w is from the wth of a step to the next. What else a
// step has is put into windows here, evenly over those that its inputs and its users leave it:
//
//   matrix unit     vector unit and LDS beside it
//   S of n          the tile n + 1, come from memory, to LDS; loads of n + 2
//   dP of n         P, as far as S is there
//   dQ of n - 1     P rounded; dS
//   dV of n         dS rounded, and to LDS; dQ of n - 1 to memory
//   dK of n         barrier: all of n + 1 and of dS is in LDS; reads of n + 1 begin
//
// So the vector unit has half of a step for P and dS. With 64 columns, where that is too little,
// dV, dK and dQ's way to memory are a step later, and dS is rounded in that step:
//
//   S of n          dS of n - 1 rounded; the tile n + 1 to LDS; dQ of n - 2 to memory
//   dK of n - 1     P; dS of n - 1 to LDS; loads of n + 2
//   dV of n - 1     P; barrier: all of n + 1 and of dS is in LDS
//   dP of n         P rounded
//   dQ of n - 1     dS; reads of n + 1 begin
//
// Where loads go straight to LDS and reads of LDS transpose (nothing is permuted), dK and dQ's way
// to memory are a step later:
//
//   S of n          dQ of n - 2 to memory; dS of n - 1 to LDS
//   dK of n - 1     P
//   dP of n         P; barrier: all of n + 1 and of dS is in LDS; loads of n + 2
//   dQ of n - 1     P rounded; dS
//   dV of n         dS, rounded; reads of n + 1 begin
//
// Operands come from LDS one read of 16 bytes after the other, each into the registers of the
// kRing-th before it, as soon as its last matrix instruction has been issued.
#pragma once
#include "attn_bwd/shape.h"

enum class Do {
  kRead,      // 16 bytes of operands, or the first 8 if they are transposed
  kReadRest,  // the others
  kPermute,
  kWriteRows,
  kWriteColumns,
  kLoad,  // a tile of rows
  kWaitLoads,
  kWaitSums,
  kLoadSums,
  kScale,
  kExp,
  kMaskP,
  kMultiply,
  kMaskDs,
  kRoundP,
  kPackP,
  kRoundDs,
  kPackDs,
  kWriteDs,
  kScaleDq,
  kAddDq,
  kMoveStage,
  kTurn,
  kWaitRead,
  kWaitAdds,
  kPass,
  kPoll,
  kAwait,
  kWaitWrites,
  kBarrier,
};
enum class Unit { kVector, kLds, kMemory, kNone };
constexpr Unit unit_of(Do what) {
  switch (what) {
    case Do::kRead:
    case Do::kReadRest:
    case Do::kWriteRows:
    case Do::kWriteColumns:
    case Do::kWriteDs:
      return Unit::kLds;
    case Do::kLoad:
    case Do::kLoadSums:
    case Do::kAddDq:
      return Unit::kMemory;
    case Do::kWaitWrites:
    case Do::kBarrier:
    case Do::kTurn:
    case Do::kWaitRead:
    case Do::kWaitAdds:
    case Do::kPass:  // both not always there: no wait counts them
    case Do::kPoll:
    case Do::kAwait:
      return Unit::kNone;
    default:
      return Unit::kVector;
  }
}

constexpr bool is_vector(Do what) { return unit_of(what) == Unit::kVector; }

// Of which a step consists.
enum class Product { kS, kDp, kDq, kDv, kDk };

struct Item {
  Do what;
  int n, window;
};
struct Items {
  Item at[640];
  int count;
};

template <class S>
struct StepOrder {
  static constexpr int kH = S::kHalves, kT = S::kWaveTiles;
  static constexpr bool kDirect = S::kDirect, kLater = S::kLater, kLaterSums = S::kLaterSums;
  // Reads of 16 bytes of each product, and matrix instructions that use one: operands are 8
  // elements a lane where the architecture has such, of sums over rows 4 if a tile has 16 of them.
  static constexpr int kChunks = S::kHeadDim / 32, kChunksV = S::kHeadDimV / 32;
  static constexpr int kPairs = S::kTiles / 2;
  static constexpr int kReadsQ = kChunks * kH, kReadsDo = kChunksV * kH, kReadsDs = kPairs * kH;
  static constexpr int kSplit = S::Target::kOperandElements == 4 ? 2 : 1;
  static constexpr int reads_of(Product of) {
    return of == Product::kDq                        ? kPairs * kH
           : of == Product::kS || of == Product::kDk ? kChunks * kH
                                                     : kChunksV * kH;
  }
  static constexpr int uses_of(Product of) {
    return of == Product::kDq                         ? S::kDqTiles * kSplit
           : of == Product::kDv || of == Product::kDk ? kT * 2 / kH
                                                      : kT * kSplit;
  }
  // In a step follow each other
  static constexpr int kProducts = 5;
  static constexpr Product nth(int n) {
    constexpr Product kOf[3][kProducts] = {
        {Product::kS, Product::kDp, Product::kDq, Product::kDv, Product::kDk},
        {Product::kS, Product::kDk, Product::kDp, Product::kDq, Product::kDv},
        {Product::kS, Product::kDk, Product::kDv, Product::kDp, Product::kDq}};
    return kOf[kLaterSums ? 2 : kLater][n];
  }
  // Places of reads, in the order of their use: a step has a multiple of kRing of them, and some
  // behind a product have no read.
  static constexpr int kReads = 2 * (kChunks + kChunksV) * kH + kPairs * kH;
  static constexpr int kRing = (kChunks + kChunksV) * kH < 6 ? (kChunks + kChunksV) * kH : 6;
  static constexpr int gap_behind(int n) {
    constexpr int kGaps = (kRing - kReads % kRing) % kRing, kBehind = kProducts - 1;
    if (!kLater) return n == 2 ? kGaps : 0;
    return n < kBehind ? kGaps / kBehind + (n < kGaps % kBehind) : 0;
  }
  // A product: its first place, how many have a read, its first window.
  struct Part {
    Product product;
    int place, reads, window, uses;
  };
  static constexpr Part part(int n) {
    const Product of = nth(n);
    if (n == 0) return {of, 0, reads_of(of), 0, uses_of(of)};
    const Part before = part(n - 1);
    return {of, before.place + before.reads + gap_behind(n - 1), reads_of(of),
            before.window + before.reads * before.uses, uses_of(of)};
  }
  static constexpr Part part(Product of) {
    for (int n = 0;; ++n)
      if (nth(n) == of) return part(n);
  }
  static constexpr int kDp = part(Product::kDp).window, kDq = part(Product::kDq).window;
  static constexpr int kDv = part(Product::kDv).window, kDk = part(Product::kDk).window;
  static constexpr int end_of(Product of) {
    return part(of).window + part(of).reads * part(of).uses;
  }
  static constexpr int kWindows = end_of(nth(kProducts - 1));
  // The last one whose matrix instruction begins with -delta.
  static constexpr int kSumsRead = kDp + (kH - 1) * uses_of(Product::kDp) + kT - 1;
  static constexpr int kPlaces = part(kProducts - 1).place + part(kProducts - 1).reads;
  static_assert(kPlaces % kRing == 0);
  static constexpr Part part_of_place(int n) {
    int i = kProducts - 1;
    while (part(i).place > n) --i;
    return part(i);
  }
  static constexpr Part part_of_window(int w) {
    int i = kProducts - 1;
    while (part(i).window > w) --i;
    return part(i);
  }
  static constexpr bool is_row(int n) {
    const Product of = part_of_place(n).product;
    return of == Product::kS || of == Product::kDp;
  }
  static constexpr int kLastRow = part(Product::kDp).place + part(Product::kDp).reads - 1;
  static constexpr bool has_read(int n) {
    return n - part_of_place(n).place < part_of_place(n).reads;
  }
  static constexpr bool is_in_two(int n) { return kDirect && !is_row(n) && has_read(n); }
  // Which matrix instruction is the first to use one.
  static constexpr int first_use(int n) {
    if (n >= kPlaces) return kWindows + first_use(n - kPlaces);
    const Part of = part_of_place(n);
    return of.window + (has_read(n) ? n - of.place : of.reads) * of.uses;
  }
  // The window from which on the registers of a place are free.
  static constexpr int free_from(int n) { return first_use(n + 1); }

  // The address of dQ moves from row to row, where there are no registers for one each.
  static constexpr bool kMovesDq = kDirect && S::kDqTiles > 1;
  static constexpr int kElements = 4 * kH * kT;  // scores of a lane
  // Of a wave: of blocks, or of rows by four columns of a lane.
  static constexpr int kLoads = kDirect ? 2 * S::kBlocks / S::kWaves : S::kHeadDim / 32;
  static constexpr int kRowWrites = kLoads / 2, kPermutes = 2 * kLoads;
  static constexpr int kDsWrites = kDirect ? kT : 4 * kT;  // 16 bytes, or 2
  // Moves of addresses in LDS: of reads of dS and by columns, of writes of a tile of rows and of
  // dS, of reads of rows.
  static constexpr int kMoveColumns = kDirect ? 2 : 1, kMoveWrites = kMoveColumns + 1;
  static constexpr int kMoveWriteDs = kMoveWrites + (kDirect ? 0 : kRowWrites + 1);
  static constexpr int kMoveRows = kMoveWriteDs + 1, kMoves = kMoveRows + 1;

  // Window of the ith of `count` that are spread over those of a share of the step.
  static constexpr int spread(int from, int to, int i, int count) {
    return from + i * (to - from) / (count > 0 ? count : 1);
  }
  struct Span {
    int from, to;
  };
  static constexpr int spread(Span span, int i, int count) {
    return spread(span.from, span.to, i, count);
  }

  // Windows from which on and up to which: P, P rounded, dS, dS rounded, dS to LDS, dQ to memory;
  // and of others the first one.
  static constexpr int share(int of_120) { return of_120 * kWindows / 120; }
  struct Times {
    Span p, packed_p, ds, packed_ds, write_ds, add;
    int barrier, passed, polled, load_lse, load_delta, first_turn, second_turn, later_turns;
    int move_columns, move_rows;
    Span move_writes;
  };
  static constexpr Times times() {
    constexpr int kAfterS = end_of(Product::kS) + 3;
    constexpr Span kMoveWindows = {share(15), share(25)};
    if constexpr (kLaterSums) {  // as early as may be: of tiles of keys the first ones are done
                                 // first
      constexpr Span kAdd = {S::kTurns ? share(4) : 1, kDq - 30};
      return {.p = {kAfterS - kT, kAfterS - kT + 16},
              .packed_p = {kDp, kDp + 8},
              .ds = {kDq + 3 - kT, kDq + 8},
              .packed_ds = {1, 10},  // of the step before
              .write_ds = {6, 30},
              .add = kAdd,
              .barrier = kDp - 4,
              .passed = 1,
              .polled = kDq - 11,
              .load_lse = kAfterS - kT + 20,
              .load_delta = kDp + kT + 2,
              .first_turn = kDp - 2 + kLoads,
              .second_turn = kDp + kT + 4,
              .later_turns = kWindows - 16,
              .move_columns = kDp,
              .move_rows = kDp,
              .move_writes = {kDp, kDp}};
    } else if constexpr (kLater) {
      constexpr int kDs = kDv + share(14), kBarrier = kDp + (kDq - kDp) / 4;
      constexpr int kFirstAdd = S::kTurns ? share(4) : 1, kLastAdd = kDq - 30;
      return {.p = {kAfterS, kDq - 14},
              .packed_p = {kDq - 13, kDq},
              .ds = {kDq + share(1), kDs},
              .packed_ds = {kDs + 1, kDv + share(18)},
              .write_ds = {2, share(14)},
              .add = {kFirstAdd, kLastAdd < kFirstAdd ? kFirstAdd : kLastAdd},
              .barrier = kBarrier,
              .passed = 1,
              .polled = kDq - 11,
              .load_lse = kDq - 10,
              .load_delta = kDs,
              .first_turn = kBarrier + 2 + kLoads,
              .second_turn = kDs + 2 * kH + 1,
              .later_turns = kWindows - 16,
              .move_columns = end_of(Product::kDk),
              .move_rows = kDq,
              .move_writes = kMoveWindows};
    } else {
      constexpr int kDs = kDq + share(20), kBarrier = kDk + (kWindows - kDk) / 2;
      return {.p = {kAfterS, kDq + 3},
              .packed_p = {kDq + 4, kDq + share(12)},
              .ds = {kDq + share(8), kDs},
              .packed_ds = {kDs + 1, kDq + share(30)},
              .write_ds = {kDq + share(25), kDq + share(37)},
              .add = {kDv + share(6), kDk + share(14)},
              .barrier = kBarrier,
              .passed = kDq - 2,
              .polled = kDq,
              .load_lse = kDs,
              .load_delta = kDs,
              .first_turn = kDk + 2,
              .second_turn = kDk + 5,
              .later_turns = kBarrier - 2,
              .move_columns = 11 + kMoveColumns,
              .move_rows = spread(kMoveWindows, kMoveRows, kMoves),
              .move_writes = kMoveWindows};
    }
  }
  static constexpr Times kTimes = times();
  // lse is waited for in front of P, what dP begins with in front of dP; or both at once.
  static constexpr int sums_wait(int n) { return kLater && n == 0 ? kTimes.p.from - 1 : kDp - 1; }

  struct Builder {
    Items items{{}, 0};
    constexpr void put(Do what, int n, int window) { items.at[items.count++] = {what, n, window}; }
  };
  static constexpr bool kConverts = Here::kConvertsPairs;
  static constexpr int kSlots = 4;  // of 4 clk, of a matrix instruction
  static constexpr int slots_of(Do what) {
    if (what == Do::kTurn) return 3;
    if (kDirect && what == Do::kLoad) return 3;
    if (kMovesDq && what == Do::kScaleDq) return 2;
    return unit_of(what) == Unit::kLds || what == Do::kMaskP || what == Do::kMaskDs ? 2 : 1;
  }
  static constexpr int vector_slots_of(Do what) {
    if (!is_vector(what) || what == Do::kMaskP || what == Do::kMaskDs || what == Do::kWaitLoads ||
        what == Do::kWaitSums)
      return 0;
    if (kMovesDq && what == Do::kScaleDq) return 2;
    return what == Do::kExp ? S::Target::kTransSlots : 1;
  }
  // What is by columns is read of the step before, then of this one.
  static constexpr Part kBefore = part(kLaterSums ? Product::kDv : Product::kDk);
  static constexpr int kLastBefore = kBefore.place + kBefore.reads - 1;
  // What has to be before it, if it is in another queue.
  struct Needed {
    Do what;
    int n;
  };
  // Those of the first places are of the step before.
  static constexpr Needed last_read_of(int place) {
    return {is_in_two(place) ? Do::kReadRest : Do::kRead, place >= kRing ? place : -1};
  }
  static constexpr Needed needed(const Item& item) {
    switch (item.what) {
      case Do::kWriteRows:
        return {Do::kWaitLoads, 0};
      case Do::kWriteColumns:
        return {Do::kPermute, (item.n + 1) * kPermutes / 2 - 1};
      case Do::kLoad:
        return kDirect ? Needed{Do::kBarrier, 0} : Needed{Do::kPermute, kPermutes - 1};
      case Do::kLoadSums:
        return item.n < kH ? Needed{Do::kScale, kElements - 1} : Needed{Do::kBarrier, -1};
      case Do::kWriteDs:
        if (kDirect) return {Do::kBarrier, -1};  // of the step before
        return {Do::kPackDs, item.n / 2};
      case Do::kScaleDq:
        return {Do::kAddDq, kMovesDq ? item.n - 1 : -1};  // which has the same address
      case Do::kAddDq:
        return {Do::kScaleDq, item.n};  // and kAwait, which is in front of it in its queue
      case Do::kRead: {
        const Product of = part_of_place(item.n).product;
        if (item.n < kRing && kLaterSums && !is_row(item.n)) return {Do::kMoveStage, kMoveColumns};
        if (item.n < kRing) return {Do::kBarrier, 0};  // of the next step
        if (is_row(item.n) || (kLater && of == Product::kDk) || (kLaterSums && of == Product::kDv))
          return {Do::kBarrier, -1};
        if (kLater && of == Product::kDq) return {Do::kBarrier, 0};
        return {Do::kMoveStage, of == Product::kDq ? kMoveColumns - 1 : kMoveColumns};
      }
      case Do::kWaitWrites:
        return kLaterSums ? last_read_of(kLastBefore) : Needed{Do::kBarrier, -1};
      case Do::kMoveStage:
        if (kLater && item.n == kMoveColumns) return last_read_of(kLastBefore);
        if (kLater && item.n == kMoveWriteDs) return {Do::kWriteDs, kDsWrites - 1};
        return item.n < kMoveWrites    ? Needed{Do::kBarrier, -1}
               : item.n < kMoveWriteDs ? Needed{Do::kWriteColumns, 1}
               : item.n < kMoveRows    ? Needed{Do::kBarrier, -1}
                                       : last_read_of(kLastRow);
      case Do::kTurn:
        return item.n == 0 && kLater   ? Needed{Do::kLoad, kLoads - 1}
               : item.n == 1 && kLater ? Needed{Do::kLoadSums, 2 * kH - 1}
               : item.n == 2           ? Needed{Do::kAddDq, 4 * kH * S::kDqTiles - 1}
               : item.n == 3           ? Needed{Do::kMaskDs, 0}
                                       : Needed{Do::kBarrier, -1};
      default:
        return {Do::kBarrier, -1};
    }
  }
  // Each not before its window, in queues: the vector unit, waits for operands, reads of LDS, and
  // the rest.
  enum Queue { kOfVector, kOfWaits, kOfReads, kOfOthers, kQueues };
  static constexpr Queue queue_of(Do what) {
    return kDirect && what == Do::kWaitLoads            ? kOfOthers
           : what == Do::kWaitSums                      ? kOfWaits
           : is_vector(what)                            ? kOfVector
           : what == Do::kWaitRead                      ? kOfWaits
           : what == Do::kRead || what == Do::kReadRest ? kOfReads
                                                        : kOfOthers;
  }
  // Time is counted in slots. A matrix instruction takes one, and one more of the vector unit's; a
  // transcendental takes four of the vector unit's, others one.
  static constexpr int kPatience = 3, kLead = 6;  // windows
  static constexpr Items placed(const Items& items, int total) {
    Items queue[kQueues]{}, out{{}, 0};
    for (int w = 0; w < kWindows; ++w)
      for (int i = 0; i < items.count; ++i)
        if (items.at[i].window == w) {
          Items& to = queue[queue_of(items.at[i].what)];
          to.at[to.count++] = items.at[i];
        }
    int next[kQueues]{};
    const auto done = [&](const Needed& first) {
      if (first.n < 0) return true;
      const Queue of = queue_of(first.what);
      for (int i = 0; i < next[of]; ++i)
        if (queue[of].at[i].what == first.what && queue[of].at[i].n == first.n) return true;
      return false;
    };
    int vector_free = 0;
    for (int w = 0; w < kWindows; ++w) {
      const bool last = w == kWindows - 1;
      const int begin = w * total / kWindows, end = (w + 1) * total / kWindows;
      int now = begin + 1;
      vector_free = (vector_free > begin ? vector_free : begin) + 1;
      if (vector_free < begin + 2) vector_free = begin + 2;
      bool memory = false;
      // Is a transcendental to begin in this window, which so long an instruction would put off?
      const auto keeps_slot = [&](int until) {
        if (!kLaterSums || next[kOfVector] == queue[kOfVector].count) return false;
        const Item& item = queue[kOfVector].at[next[kOfVector]];
        return item.what == Do::kExp && item.window <= w && vector_free <= end - 2 &&
               until > vector_free;
      };
      const auto put = [&](Queue of, bool urgent = false) {
        const Item& item = queue[of].at[next[of]];
        const bool too_near = !S::Target::kLdsRightBehindMatrix &&
                              unit_of(item.what) == Unit::kLds && now < begin + 2 && !last;
        if (next[of] == queue[of].count || item.window > w || too_near || !done(needed(item)))
          return false;
        const int slots = slots_of(item.what), busy = vector_slots_of(item.what);
        const bool fits =
            now + slots <= end && (busy == 0 || vector_free <= now) && (busy < 2 || now <= end - 2);
        if (!fits && !last) return false;
        if (of != kOfVector && of != kOfWaits && !urgent && !last && keeps_slot(now + slots))
          return false;
        if (unit_of(item.what) == Unit::kMemory) {
          if (memory && !last) return false;
          memory = true;
        }
        now += slots;
        if (busy > 0) vector_free = now - 1 + busy;
        out.at[out.count++] = {item.what, item.n, w};
        ++next[of];
        return true;
      };
      while (put(kOfWaits)) {
      }
      while (now < end || last) {
        // What has been put off goes first.
        const auto late = [&](Queue of) {
          return next[of] < queue[of].count && queue[of].at[next[of]].window + kPatience < w;
        };
        if ((late(kOfReads) || is_urgent(queue[kOfReads], next[kOfReads], w)) &&
            put(kOfReads, true))
          continue;
        if (late(kOfOthers) && put(kOfOthers)) continue;
        if (put(kOfVector) || put(kOfReads) || put(kOfOthers)) continue;
        if (last) break;
        ++now;
      }
    }
    return out;
  }
  // A read whose matrix instruction is near.
  static constexpr bool is_urgent(const Items& reads, int next, int w) {
    if (!kLater || next == reads.count) return false;
    const Item& item = reads.at[next];
    return first_use(item.n < kRing && item.window > kWindows / 2 ? item.n + kPlaces : item.n) <=
           w + kLead;
  }
  // Pairs to 16 bits, one behind the other: they share registers. Of bfloat16 the halves of a pair
  // are rounded at once.
  static constexpr bool kRoundsPairs = S::kElement == Element::kBf16;
  static constexpr void put_rounded(Builder& b, Do round, Do pack, Span span) {
    for (int i = 0; i < kElements; ++i) {
      if (!kConverts && (!kRoundsPairs || i % 2)) b.put(round, i, spread(span, i, kElements));
      if (i % 2) b.put(pack, i / 2, spread(span, i, kElements));
    }
  }
  // The tile of rows that has come: its columns are permuted, then both ways to LDS. dS by rows.
  static constexpr void put_patches(Builder& b) {
    b.put(Do::kWaitLoads, 0, 0);
    for (int i = 0; i < kRowWrites; ++i)
      b.put(Do::kWriteRows, i, spread(1, share(10), i, kRowWrites));
    for (int i = 0; i < kPermutes; ++i) b.put(Do::kPermute, i, spread(1, share(14), i, kPermutes));
    for (int i = 0; i < 2; ++i) b.put(Do::kWriteColumns, i, spread(1, share(14), i + 1, 2) + 1);
    for (int i = 0; i < kLoads; ++i) b.put(Do::kLoad, i, spread(share(18), share(26), i, kLoads));
  }
  static constexpr void put_direct(Builder& b) {
    b.put(Do::kWaitLoads, 0, kTimes.barrier);
    for (int i = 0; i < kLoads; ++i) b.put(Do::kLoad, i, kTimes.barrier + 1 + i);
  }
  static constexpr Items all() {
    Builder b;
    if (kDirect)
      put_direct(b);
    else
      put_patches(b);
    for (int i = 0; i < kDsWrites; ++i)
      b.put(Do::kWriteDs, i, spread(kTimes.write_ds, i, kDsWrites));
    // P: as soon as it can be, since dS waits for it.
    for (int i = 0; i < (kLater ? 2 : 1); ++i) b.put(Do::kWaitSums, i, sums_wait(i));
    for (int i = 0; i < kElements; ++i) {
      b.put(Do::kScale, i, spread(kTimes.p, i, kElements));
      b.put(Do::kExp, i, spread(kTimes.p, i, kElements) + 1);
    }
    b.put(Do::kMaskP, 0, kTimes.p.to);
    put_rounded(b, Do::kRoundP, Do::kPackP, kTimes.packed_p);
    // dS
    for (int i = 0; i < kElements; ++i)
      b.put(Do::kMultiply, i, spread(kTimes.ds, i, kElements) + 1);
    b.put(Do::kMaskDs, 0, kTimes.ds.to + 1);
    put_rounded(b, Do::kRoundDs, Do::kPackDs, kTimes.packed_ds);
    // dQ of the tile before
    if (S::kTurns) b.put(Do::kAwait, 0, kTimes.add.from);
    const int of_dq = 4 * kH * S::kDqTiles;
    for (int i = 0; i < of_dq; ++i) {
      b.put(Do::kScaleDq, i, spread(kTimes.add, i, of_dq));
      b.put(Do::kAddDq, i, spread(kTimes.add, i, of_dq) + 1);
    }
    for (int i = 0; i < 2 * kH; ++i)
      b.put(Do::kLoadSums, i, i < kH ? kTimes.load_lse + i : kTimes.load_delta + i);
    b.put(Do::kWaitWrites, 0, kTimes.barrier);
    b.put(Do::kBarrier, 0, kTimes.barrier);
    for (int i = 0; i < kMoves; ++i)
      b.put(Do::kMoveStage, i,
            i < kMoveColumns    ? 11 + i
            : i == kMoveColumns ? kTimes.move_columns
            : i >= kMoveRows    ? kTimes.move_rows
                                : spread(kTimes.move_writes, i, kMoves));
    if (S::kTurns) {
      b.put(Do::kWaitAdds, 0, kTimes.passed);
      b.put(Do::kPass, 0, kTimes.passed);
      if (!kLater) b.put(Do::kPoll, 0, kTimes.polled);
    }
    // To the next tiles: rows, sums, dQ; stages, masks.
    for (int i = 0; i < 5; ++i)
      b.put(Do::kTurn, i,
            i == 0                          ? kTimes.first_turn
            : i == 1                        ? kTimes.second_turn
            : i == 2 && kLater && S::kTurns ? kTimes.polled
                                            : kTimes.later_turns + 2 * i);
    // Of the dQ that the next step adds.
    if (S::kTurns && kLater) b.put(Do::kPoll, 0, kTimes.polled);
    // Reads last: behind the moves of their addresses.
    for (int n = kRing; n < kPlaces + kRing; ++n) {
      if (!has_read(n % kPlaces)) continue;
      int window = free_from(has_read(n - kRing) || kLater ? n - kRing : n - 2 * kRing);
      if (n >= kPlaces && window < kTimes.barrier) window = kTimes.barrier;
      if (window >= kWindows) window = kWindows - 1;  // behind the last matrix instruction
      b.put(Do::kRead, n % kPlaces, window);
      if (is_in_two(n % kPlaces)) b.put(Do::kReadRest, n % kPlaces, window);
    }
    for (int n = 0; n < kPlaces; ++n)
      if (has_read(n)) b.put(Do::kWaitRead, n, (first_use(n) + kWindows - 1) % kWindows);
    return b.items;
  }
  // In so many slots.
  static constexpr Items make(int total) { return placed(all(), total); }
  // The last of each is in front of the matrix instructions that need it.
  static constexpr bool ends_before(const Items& items, Do what, int window) {
    for (int i = 0; i < items.count; ++i)
      if (items.at[i].what == what && items.at[i].window >= window) return false;
    return true;
  }
  static constexpr int index_of(const Items& items, Do what, int n) {
    for (int i = 0; i < items.count; ++i)
      if (items.at[i].what == what && items.at[i].n == n) return i;
    return items.count;
  }
  static constexpr bool has(const Items& items, Do what, int n) {
    return index_of(items, what, n) < items.count;
  }
  static constexpr int last_read(const Items& items, int n) {
    return index_of(items, is_in_two(n) ? Do::kReadRest : Do::kRead, n);
  }
  static constexpr bool is_valid(const Items& items) {
    for (int n = 0; n < kPlaces; ++n) {
      if (!has_read(n)) continue;
      const int read = last_read(items, n), wait = index_of(items, Do::kWaitRead, n);
      if (wait == items.count || (n >= kRing || first_use(n) == 0 ? read > wait : read < wait))
        return false;
      if (items.at[wait].window != (first_use(n) + kWindows - 1) % kWindows) return false;
    }
    for (int i = 0; i < items.count; ++i)
      if (items.at[i].what == Do::kWaitSums && items.at[i].window != sums_wait(items.at[i].n))
        return false;
    // Masks are behind all that they mask, in front of all that is made of it.
    for (int i = 0; i < items.count; ++i) {
      const Do what = items.at[i].what;
      const int mask_p = index_of(items, Do::kMaskP, 0), mask_ds = index_of(items, Do::kMaskDs, 0);
      if ((what == Do::kExp && i > mask_p) || (what == Do::kMultiply && i > mask_ds)) return false;
      if ((what == Do::kRoundP || what == Do::kPackP) && i < mask_p) return false;
      if ((what == Do::kRoundDs || what == Do::kPackDs) && (i < mask_ds) != kLaterSums)
        return false;
    }
    int in_last = 0;
    for (int i = 0; i < items.count; ++i) in_last += items.at[i].window == kWindows - 1;
    const bool is_in_time =
        kLater ? ends_before(items, Do::kAddDq, kDq - 1) &&
                     index_of(items, Do::kWriteDs, kDsWrites - 1) <
                         index_of(items, Do::kWaitWrites, 0) &&
                     index_of(items, Do::kMoveStage, kMoveColumns - 1) <
                         index_of(items, Do::kBarrier, 0) &&
                     index_of(items, Do::kMoveStage, kMoveRows) < index_of(items, Do::kRead, 0)
               : ends_before(items, Do::kPackDs, kDk);
    if (kLaterSums && !ends_before(items, Do::kPackDs, kDk)) return false;
    return in_last < 5 && is_in_time && (kLaterSums || ends_before(items, Do::kPackP, kDv)) &&
           index_of(items, Do::kMoveStage, kMoves - 1) < index_of(items, Do::kTurn, 3) &&
           has(items, Do::kPackDs, 2 * kH * kT - 1) && has(items, Do::kBarrier, 0) &&
           has(items, Do::kTurn, 4) && has(items, Do::kAddDq, 4 * kH * S::kDqTiles - 1);
  }
  // In the time of the matrix instructions, or as little more as what is beside them needs.
  static constexpr int least_slots() {
    constexpr int kMore = kLaterSums ? 2 : kWindows / 8;
    const Items items = all();
    int least = kWindows;  // with all of them and no gap; some may be behind the last window
    for (int i = 0; i < items.count; ++i) least += slots_of(items.at[i].what);
    int total = kSlots * kWindows;
    while (total < least - 20) total += kMore;
    while (total <= 3 * kSlots * kWindows && !is_valid(make(total))) total += kMore;
    return total;
  }
  static constexpr int kTotal = least_slots();
  static constexpr Items kItems = make(kTotal);

  // ---- Waits
  static constexpr int find(Do what, int n) { return index_of(kItems, what, n); }
  // Of a unit, between item i and item `until` behind it, which may be of the next step.
  static constexpr int between(Unit unit, int i, int until) {
    int count = 0;
    for (int j = i + 1; until > i ? j < until : j < kItems.count; ++j)
      count += unit_of(kItems.at[j].what) == unit;
    if (until <= i)
      for (int j = 0; j < until; ++j) count += unit_of(kItems.at[j].what) == unit;
    return count;
  }
  static constexpr int first_of_window(int w) {
    int i = 0;
    while (i < kItems.count && kItems.at[i].window < w) ++i;
    return i;
  }
  // LDS operations that may be under way when a matrix instruction needs this read.
  static constexpr int behind_read(int n) {
    const int count = between(Unit::kLds, last_read(kItems, n), find(Do::kWaitRead, n));
    return count < 14 ? count : 14;
  }
  static constexpr int behind_writes() {
    const int barrier = find(Do::kWaitWrites, 0);
    for (int i = barrier, count = 0; i >= 0; --i) {
      const Do what = kItems.at[i].what;
      if (what == Do::kWriteDs || what == Do::kWriteRows || what == Do::kWriteColumns)
        return count < 14 ? count : 14;
      count += unit_of(what) == Unit::kLds;
    }
    return 0;
  }
  static constexpr int behind_loads() {
    return between(Unit::kMemory, find(Do::kLoad, kLoads - 1), find(Do::kWaitLoads, 0));
  }
  static constexpr int behind_adds() {
    return between(Unit::kMemory, find(Do::kAddDq, 4 * kH * S::kDqTiles - 1),
                   find(Do::kWaitAdds, 0));
  }
  static constexpr int behind_poll() {
    return between(Unit::kMemory, find(Do::kPoll, 0), find(Do::kAwait, 0));
  }
  // Of lse, then of both; where they are waited for one after the other, of delta.
  static constexpr int behind_sums(int n) {
    return between(Unit::kMemory, find(Do::kLoadSums, kLater && n == 0 ? kH - 1 : 2 * kH - 1),
                   find(Do::kWaitSums, n));
  }
};
