// Where in a step things are: behind which of its matrix instructions.
#pragma once
#include "gemm_tiles/shape.h"

// Reads of LDS are of the next part, in the first half of a part, or in three quarters of it where
// some come in halves; where a wave has one row of fragments, and nearly as many reads as matrix
// instructions, they are ahead by as much as LDS can do. Loads are behind the barrier by which the
// next step is in LDS.
template <class S>
struct TileOrder {
  // Two steps a turn of the loop: a branch that is taken costs more than a slot.
  static constexpr bool kPairs = S::kDirect && !S::Elements::kIsWide && !S::kAByK && !S::kBByK;
  static constexpr int kPart = S::kPartSlots, kHalf = kPart / 2, kLast = S::kSlots - kPart;
  static constexpr int kLoads = S::kLoads;

  // Through registers: at kRead all waves have read this step from LDS (a barrier), and the next
  // one is written, a write in each slot; at kWritten all of it is there (a second barrier).
  static constexpr bool kByRows = !S::kAByK && !S::kBByK;
  static constexpr bool kAhead = !S::kDirect && S::kM == 1;
  static constexpr int kSets = kAhead ? S::kParts : 2;  // of operands
  static constexpr int kRead =
      kAhead ? (S::kParts - 1) * S::kReads + 2 : 2 * kPart + kPart * (kByRows ? 7 : 6) / 16;
  static constexpr int kStores = !kByRows         ? kLast + kPart / 4 - kRead
                                 : kLoads < kPart ? kLoads
                                                  : kPart;
  static constexpr int store(int n) { return kRead + 1 + n * (kStores - 1) / S::kBlocks; }
  static constexpr int kArrive = kAhead ? 5 : 8;  // the last writes
  static constexpr int kThere = kRead + (kByRows ? kLoads + kArrive : kPart);
  static constexpr int kLatest = kLast + kHalf;
  static constexpr int kWritten = S::kDirect ? kLast : kThere < kLatest ? kThere : kLatest;

  static constexpr bool kHalves = S::kHalvesA > 1 || S::kHalvesB > 1;
  static constexpr int kReadSpan = kHalves ? kPart * 3 / 4 : kHalf;
  static constexpr int read(int part, int n) {
    if (kAhead && part > 0) return (part - 1) * S::kReads + n;
    const int first = part == 0 ? kWritten + (S::kDirect && kByRows) : (part - 1) * kPart;
    return first + n * kReadSpan / (S::kDirect ? S::kReads : 2 * S::kReads);
  }
  // Reads up to a slot that are behind those of a part.
  static constexpr int reads_behind(int part, int slot) {
    int count = 0;
    for (int later = part + 1; part > 0 && later < S::kParts; ++later)
      for (int n = 0; n < S::kReads; ++n) count += read(later, n) <= slot;
    return count;
  }
  static constexpr int turn(int part) { return read(part, S::kReads - 1) + 1; }
  // A load a slot or less, on into the next step but for some. Not beside the barrier nor the
  // branch, which take a slot each.
  static constexpr bool kGoOn = S::kStages > 2 || kLoads > S::kBlocks;
  static constexpr int kFirst = kWritten + (kAhead ? 4 : 1), kEnd = S::kSlots - 1;
  static constexpr int kByK = kGoOn ? S::kSlots - kFirst + kPart : kEnd - kFirst;
  static constexpr int kOfTwo = S::Elements::kIsWide ? kEnd - kFirst : S::kSlots * 3 / 8;
  static constexpr int kSpan = S::kStages > 2 ? S::kSlots / 2
                               : !kByRows     ? kByK
                               : !S::kDirect  ? S::kSlots / 4
                                              : kOfTwo;
  static constexpr int nth_slot(int n) {
    const int slot = kFirst + n * kSpan / kLoads;
    return slot == kEnd && kByRows && !S::kDirect && !S::kShares ? slot + 1 : slot;
  }
  static constexpr int load(int n) { return nth_slot(n) % S::kSlots; }
  // How many are not in the next step.
  static constexpr int early() {
    int count = 0;
    while (count < kLoads && nth_slot(count) < S::kSlots) ++count;
    return count;
  }
  static constexpr int kEarly = early();
  // Between loads: to the next step, and what of it there is.
  static constexpr int kBetween =
      (kGoOn ? (kLast + S::kSlots / 2) % S::kSlots : 0) + (kHalves ? kReadSpan
                                                           : kGoOn ? 0
                                                                   : kHalf);
  static constexpr int kApart = S::Elements::kIsWide ? 0 : 1;  // two in a slot of 64 clk
  static constexpr int kAdvance[2] = {kBetween, kBetween + kApart};
  static constexpr int kNext[2] = {kBetween + 1 + kApart, kBetween + 1 + 2 * kApart};
  static constexpr int kMask = kBetween + 2 + 2 * kApart;
  static constexpr int mask(int n) { return kMask + n * (kLast - kMask) / kLoads; }
};
