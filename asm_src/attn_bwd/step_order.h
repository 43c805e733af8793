// In which order a wave issues what a step is, worked out at compile time. Plain C++.
//
// Matrix instructions are the clock: window w is from the wth of a step to the next. What else a
// step has is put into windows here, evenly over those that its inputs and its users leave it:
//
//   matrix unit     vector unit and LDS beside it
//   S of n          the tile n + 1, come from memory, to LDS; loads of n + 2
//   dP of n         P, as far as S is there
//   dQ of n - 1     P rounded; dS
//   dV of n         dS rounded, exchanged and to LDS; dQ of n - 1 to memory
//   dK of n         barrier: all of n + 1 and of dS is in LDS; reads of n + 1 begin
//
// Operands come from LDS one read of 16 bytes after the other, each into the registers of the
// kRing-th before it, as soon as its last matrix instruction has been issued.
#pragma once
#include "attn_bwd/shape.h"

enum class Do {
  kRead,  // 16 bytes of operands
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
  kSubtract,
  kMultiply,
  kMaskDs,
  kRoundP,
  kPackP,
  kRoundDs,
  kPackDs,
  kExchange,
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
  // Reads of 16 bytes of each product, and matrix instructions that use one: operands are 8
  // elements a lane where the architecture has such, of sums over rows 4 if a tile has 16 of them.
  static constexpr int kChunks = S::kHeadDim / 32, kChunksV = S::kHeadDimV / 32;
  static constexpr int kPairs = S::kTiles / 2;
  static constexpr int kReadsQ = kChunks * kH, kReadsDo = kChunksV * kH, kReadsDs = kPairs * kH;
  static constexpr int kSplit = S::Target::kOperandElements == 4 ? 2 : 1;
  static constexpr int kUsesOfRow = kT * kSplit, kUsesOfDs = S::kDqTiles * kSplit;
  static constexpr int kUsesOfColumns = kT * 2 / kH;
  static constexpr int kOfS = kReadsQ * kUsesOfRow, kOfDp = kReadsDo * kUsesOfRow;
  static constexpr int kOfDq = kReadsDs * kUsesOfDs;
  static constexpr int kOfDv = kReadsDo * kUsesOfColumns, kOfDk = kReadsQ * kUsesOfColumns;
  static constexpr int kDp = kOfS, kDq = kDp + kOfDp, kDv = kDq + kOfDq, kDk = kDv + kOfDv;
  static constexpr int kWindows = kDk + kOfDk;

  // Reads, in the order of their use, and which matrix instruction is the first to use one.
  static constexpr int kReadDo = kReadsQ, kReadDs = kReadDo + kReadsDo;
  static constexpr int kRing =
      kReadDs < 6 ? kReadDs : 6;  // all of them of rows at the end of a step
  // Places behind dS that have no read, so that a step has a multiple of kRing of them.
  static constexpr int kReads = 2 * (kReadsQ + kReadsDo) + kReadsDs;
  static constexpr int kGap = (kRing - kReads % kRing) % kRing;
  static constexpr int kReadDoColumns = kReadDs + kReadsDs + kGap;
  static constexpr int kReadQColumns = kReadDoColumns + kReadsDo;
  static constexpr int kPlaces = kReadQColumns + kReadsQ;
  static constexpr bool has_read(int n) { return n < kReadDs + kReadsDs || n >= kReadDoColumns; }
  static constexpr int first_use(int n) {
    if (n >= kPlaces) return kWindows + first_use(n - kPlaces);
    if (n < kReadDo) return n * kUsesOfRow;
    if (n < kReadDs) return kDp + (n - kReadDo) * kUsesOfRow;
    if (n < kReadDoColumns)
      return kDq + (n < kReadDs + kReadsDs ? n - kReadDs : kReadsDs) * kUsesOfDs;
    if (n < kReadQColumns) return kDv + (n - kReadDoColumns) * kUsesOfColumns;
    return kDk + (n - kReadQColumns) * kUsesOfColumns;
  }
  // The window from which on the registers of a place are free.
  static constexpr int free_from(int n) { return first_use(n + 1); }

  static constexpr int kOfExchange = 6;          // of a tile
  static constexpr int kElements = 4 * kH * kT;  // scores of a lane
  static constexpr int kLoads = 4 * kH, kPatchPairs = 4 * kH;
  // Moves of addresses in LDS: of reads of dS (2) and by columns, of writes of a tile of rows (5)
  // and of dS, of reads of rows (2).
  static constexpr int kMoveWrites = 3, kMoveWriteDs = 8, kMoveRows = kMoveWriteDs + kT;
  static constexpr int kMoves = kMoveRows + 2;
  static constexpr int kBarrierWindow = kDk + kOfDk / 2;

  // Window of the ith of `count` that are spread over those of a share of the step.
  static constexpr int spread(int from, int to, int i, int count) {
    return from + i * (to - from) / (count > 0 ? count : 1);
  }
  static constexpr int share(int of_120) { return of_120 * kWindows / 120; }

  struct Builder {
    Items items{{}, 0};
    constexpr void put(Do what, int n, int window) { items.at[items.count++] = {what, n, window}; }
  };
  static constexpr bool kConverts = Here::kConvertsPairs;
  static constexpr int kSlots = 4;  // of 4 clk, of a matrix instruction
  static constexpr int slots_of(Do what) {
    if (what == Do::kTurn) return 3;
    return unit_of(what) == Unit::kLds || what == Do::kMaskP || what == Do::kMaskDs ? 2 : 1;
  }
  static constexpr int vector_slots_of(Do what) {
    if (!is_vector(what) || what == Do::kMaskP || what == Do::kMaskDs || what == Do::kWaitLoads ||
        what == Do::kWaitSums)
      return 0;
    return what == Do::kExp ? S::Target::kTransSlots : 1;
  }
  // What has to be before it, if it is in another queue.
  struct Needed {
    Do what;
    int n;
  };
  static constexpr Needed needed(const Item& item) {
    switch (item.what) {
      case Do::kExchange: {
        const int tile = item.n / kOfExchange;
        return {Do::kPackDs, 2 * tile + 1};
      }
      case Do::kWriteRows:
        return {Do::kWaitLoads, 0};
      case Do::kWriteColumns:
        return {Do::kPermute, kH == 1 ? 4 * item.n + 3 : 8 + 2 * item.n + 1};
      case Do::kLoad:
        return {Do::kPermute, 8 * kH - 1};
      case Do::kLoadSums:
        return {Do::kSubtract, kElements - 1};
      case Do::kWriteDs:
        return {Do::kExchange, kOfExchange * item.n + kOfExchange - 1};
      case Do::kAddDq:
        return {Do::kScaleDq, item.n};  // and kAwait, which is in front of it in its queue
      case Do::kRead:
        return item.n < kRing            ? Needed{Do::kBarrier, 0}  // of the next step
               : item.n < kReadDs        ? Needed{Do::kBarrier, -1}
               : item.n < kReadDoColumns ? Needed{Do::kMoveStage, 1}
                                         : Needed{Do::kMoveStage, 2};
      case Do::kMoveStage:
        return item.n < 3              ? Needed{Do::kBarrier, -1}
               : item.n < kMoveWriteDs ? Needed{Do::kWriteColumns, 2 * kH - 1}
               : item.n < kMoveRows    ? Needed{Do::kBarrier, -1}
                                       : Needed{Do::kRead, kReadDs > kRing ? kReadDs - 1 : -1};
      case Do::kTurn:
        return item.n == 2   ? Needed{Do::kAddDq, 4 * kH * S::kDqTiles - 1}
               : item.n == 4 ? Needed{Do::kMaskDs, 0}
                             : Needed{Do::kBarrier, -1};
      default:
        return {Do::kBarrier, -1};
    }
  }
  // Lanes read what others have: two wait states behind the instruction that wrote it.
  static constexpr bool settled(const Items& out, const Item& item, int w) {
    if (item.what != Do::kExchange || item.n % kOfExchange / 2 == 1) return true;
    const int tile = item.n / kOfExchange, op = item.n % kOfExchange;
    const Item writer = op < 2 ? Item{Do::kPackDs, 2 * tile + 1, 0}
                               : Item{Do::kExchange, tile * kOfExchange + 3, 0};
    for (int i = 0; i < out.count; ++i)
      if (out.at[i].what == writer.what && out.at[i].n == writer.n)
        return out.at[i].window + 2 <= w;
    return false;
  }
  // Each not before its window, in queues: exchanges between lanes, all else of the vector unit,
  // waits for operands, reads of LDS, and the rest.
  enum Queue { kOfLanes, kOfVector, kOfWaits, kOfReads, kOfOthers, kQueues };
  static constexpr Queue queue_of(Do what) {
    return what == Do::kExchange   ? kOfLanes
           : is_vector(what)       ? kOfVector
           : what == Do::kWaitRead ? kOfWaits
           : what == Do::kRead     ? kOfReads
                                   : kOfOthers;
  }
  // Time is counted in slots. A matrix instruction takes one, and one more of the vector unit's; a
  // transcendental takes four of the vector unit's, others one.
  static constexpr int kPatience = 3;  // windows
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
      const auto put = [&](Queue of) {
        const Item& item = queue[of].at[next[of]];
        if (next[of] == queue[of].count || item.window > w || !done(needed(item)) ||
            !settled(out, item, w))
          return false;
        const int slots = slots_of(item.what), busy = vector_slots_of(item.what);
        const bool fits =
            now + slots <= end && (busy == 0 || vector_free <= now) && (busy < 2 || now <= end - 2);
        if (!fits && !last) return false;
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
        if (late(kOfReads) && put(kOfReads)) continue;
        if (late(kOfOthers) && put(kOfOthers)) continue;
        if (put(kOfLanes) || put(kOfVector) || put(kOfReads) || put(kOfOthers)) continue;
        if (last) break;
        ++now;
      }
    }
    return out;
  }
  // Pairs to 16 bits, one behind the other: they share registers.
  static constexpr void put_rounded(Builder& b, Do round, Do pack, int from, int to) {
    for (int i = 0; i < kElements; ++i) {
      if (!kConverts) b.put(round, i, spread(from, to, i, kElements));
      if (i % 2) b.put(pack, i / 2, spread(from, to, i, kElements));
    }
  }
  // In so many slots.
  static constexpr Items make(int total) {
    Builder b;
    // The tile of rows that has come: its columns are permuted, then both ways to LDS.
    b.put(Do::kWaitLoads, 0, 0);
    for (int i = 0; i < kLoads; ++i) b.put(Do::kWriteRows, i, spread(1, share(10), i, kLoads));
    for (int i = 0; i < 8 * kH; ++i) b.put(Do::kPermute, i, spread(1, share(14), i, 8 * kH));
    for (int i = 0; i < 2 * kH; ++i)
      b.put(Do::kWriteColumns, i, spread(1, share(14), (i + 1) * 4, 8 * kH) + 1);
    for (int i = 0; i < kLoads; ++i) b.put(Do::kLoad, i, spread(share(18), share(26), i, kLoads));
    // P: as soon as it can be, since dS waits for it.
    b.put(Do::kWaitSums, 0, kDp + 2);
    for (int i = 0; i < kElements; ++i) {
      b.put(Do::kScale, i, spread(kDp + 3, kDq + 3, i, kElements));
      b.put(Do::kExp, i, spread(kDp + 3, kDq + 3, i, kElements) + 1);
    }
    b.put(Do::kMaskP, 0, kDq + 3);
    put_rounded(b, Do::kRoundP, Do::kPackP, kDq + 4, kDq + share(12));
    // dS
    for (int i = 0; i < kElements; ++i) {
      b.put(Do::kSubtract, i, spread(kDq + share(8), kDq + share(20), i, kElements));
      b.put(Do::kMultiply, i, spread(kDq + share(8), kDq + share(20), i, kElements) + 1);
    }
    b.put(Do::kMaskDs, 0, kDq + share(20) + 1);
    put_rounded(b, Do::kRoundDs, Do::kPackDs, kDq + share(20) + 1, kDq + share(30));
    const int of_exchange = kOfExchange * kH * kT;
    for (int i = 0; i < of_exchange; ++i)
      b.put(Do::kExchange, i, spread(kDq + share(25), kDq + share(37), i, of_exchange));
    for (int i = 0; i < kH * kT; ++i)
      b.put(Do::kWriteDs, i,
            spread(kDq + share(25), kDq + share(37), (i + 1) * kOfExchange - 1, of_exchange) + 1);
    // dQ of the tile before
    if (S::kTurns) b.put(Do::kAwait, 0, kDv + share(6));
    const int of_dq = 4 * kH * S::kDqTiles;
    for (int i = 0; i < of_dq; ++i) {
      b.put(Do::kScaleDq, i, spread(kDv + share(6), kDk + share(14), i, of_dq));
      b.put(Do::kAddDq, i, spread(kDv + share(6), kDk + share(14), i, of_dq) + 1);
    }
    for (int i = 0; i < 2 * kH; ++i) b.put(Do::kLoadSums, i, kDq + share(20) + i);
    b.put(Do::kWaitWrites, 0, kBarrierWindow);
    b.put(Do::kBarrier, 0, kBarrierWindow);
    for (int i = 0; i < kMoves; ++i)
      b.put(Do::kMoveStage, i, i < 3 ? 11 + i : spread(share(15), share(25), i, kMoves));
    if (S::kTurns) {
      b.put(Do::kWaitAdds, 0, kDq - 2);
      b.put(Do::kPass, 0, kDq - 2);
      b.put(Do::kPoll, 0, kDq);
    }
    // To the next tiles: rows, sums, dQ; stages, masks.
    for (int i = 0; i < 5; ++i)
      b.put(Do::kTurn, i, i < 2 ? kDk + 2 + 3 * i : kBarrierWindow + 2 * i - 2);
    // Reads last: behind the moves of their addresses.
    for (int n = kRing; n < kPlaces + kRing; ++n) {
      if (!has_read(n % kPlaces)) continue;
      int window = free_from(has_read(n - kRing) ? n - kRing : n - 2 * kRing);
      if (n >= kPlaces && window < kBarrierWindow) window = kBarrierWindow;
      if (window >= kWindows) window = kWindows - 1;  // behind the last matrix instruction
      b.put(Do::kRead, n % kPlaces, window);
    }
    for (int n = 0; n < kPlaces; ++n)
      if (has_read(n)) b.put(Do::kWaitRead, n, (first_use(n) + kWindows - 1) % kWindows);
    return placed(b.items, total);
  }
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
  static constexpr bool is_valid(const Items& items) {
    for (int n = 0; n < kPlaces; ++n) {
      if (!has_read(n)) continue;
      const int read = index_of(items, Do::kRead, n), wait = index_of(items, Do::kWaitRead, n);
      if (wait == items.count || (n >= kRing || first_use(n) == 0 ? read > wait : read < wait))
        return false;
      if (items.at[wait].window != (first_use(n) + kWindows - 1) % kWindows) return false;
    }
    // Masks are behind all that they mask, in front of all that is made of it.
    for (int i = 0; i < items.count; ++i) {
      const Do what = items.at[i].what;
      const int mask_p = index_of(items, Do::kMaskP, 0), mask_ds = index_of(items, Do::kMaskDs, 0);
      if ((what == Do::kExp && i > mask_p) || (what == Do::kMultiply && i > mask_ds)) return false;
      if ((what == Do::kRoundP || what == Do::kPackP) && i < mask_p) return false;
      if ((what == Do::kRoundDs || what == Do::kPackDs) && i < mask_ds) return false;
    }
    int in_last = 0;
    for (int i = 0; i < items.count; ++i) in_last += items.at[i].window == kWindows - 1;
    return in_last < 5 && ends_before(items, Do::kPackP, kDv) &&
           ends_before(items, Do::kPackDs, kDk) && has(items, Do::kBarrier, 0) &&
           has(items, Do::kTurn, 4) && has(items, Do::kAddDq, 4 * kH * S::kDqTiles - 1);
  }
  // In the time of the matrix instructions, or as little more as what is beside them needs.
  static constexpr int least_slots() {
    for (int total = kSlots * kWindows;; total += kWindows / 8)
      if (total > 3 * kSlots * kWindows || is_valid(make(total))) return total;
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
    const int count = between(Unit::kLds, find(Do::kRead, n), find(Do::kWaitRead, n));
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
  static constexpr int behind_sums() {
    return between(Unit::kMemory, find(Do::kLoadSums, 2 * kH - 1), find(Do::kWaitSums, 0));
  }
};
