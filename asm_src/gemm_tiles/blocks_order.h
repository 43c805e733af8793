// Where in a step of products with scales of blocks things are: behind which matrix instruction.
#pragma once
#include "gemm_tiles/blocks_registers.h"

// A fragment's matrix instructions follow each other along k; beside them the partial sums of the
// fragment before are multiplied by its scales and added. A step's operands are read while the step
// before is worked on.
template <class S>
struct BlockOrder {
  using Registers = BlockRegisters<S>;
  static constexpr bool kDirect = S::kDirect;
  static constexpr int kOfFragment = S::kReadsOfRow * S::Elements::kOperands / S::Elements::kReads;
  static constexpr int kSlots = S::kFragments * kOfFragment, kSums = 16;
  static constexpr int kReads = S::kReadsOfRow * (S::kM + S::kN), kLoads = S::kLoads;
  static constexpr int kTurns = Registers::kTurns, kScales = S::kM + Registers::kScalesOfB;
  static constexpr bool kIsShort = Registers::kIsShort;
  static_assert(S::kN == 2 && (S::kM == 4 || S::kM == 2));
  static_assert(kOfFragment == (kDirect ? 2 : 8));

  // Of the sums of the fragment before, those that are added in front of the nth slot of one.
  static constexpr int sums_before(int f, int nth) {
    if (kDirect) return nth == 0 ? 0 : nth == 2 ? kSums : f == 0 ? 2 : 7;
    return nth < 2 ? 0 : (kSums * (nth - 2) + kOfFragment - 3) / (kOfFragment - 2);
  }

  // LDS has the next step. Through registers: behind kRead it has been read by all waves, and the
  // one behind it is written, which is there behind kWritten. Straight to LDS one barrier begins a
  // step: all of what is loaded behind it has been read, what is read is there.
  static constexpr int kRead = kSlots / 2 + 1, kWritten = kSlots - 2;
  static constexpr int read(int n) {
    constexpr int kDirectShort[] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5, 6, 6, 6};
    if (kDirect) return kIsShort ? kDirectShort[n] : n < 2 ? 0 : n / 2 + 1;
    constexpr int kShort[] = {0, 0, 2, 3, 4, 5, 6, 7, 8, 8, 10, 11, 12, 13, 14, 15};
    if (kIsShort) return kShort[n];
    constexpr int kSix[] = {0, 2, 3, 4, 5, 6};
    return n / 6 * kOfFragment + kSix[n % 6];
  }
  static constexpr int store(int n) {
    constexpr int kShort[] = {18, 19, 20, 21, 22, 23, 24, 26};
    return kIsShort ? kShort[n] : kRead + 3 + 2 * n;
  }
  static constexpr int load(int n) {
    constexpr int kSlot[] = {2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 10, 11};
    if (kDirect && kIsShort) return 1 + n / 2;
    return kDirect ? kSlot[n] : 2 + n + n / 6 * 2;
  }
  static constexpr bool has_two(int slot) {
    for (int n = 1; n < kLoads; ++n)
      if (load(n) == slot && load(n - 1) == slot) return true;
    return false;
  }
  static constexpr bool is_first(int n) { return n == 0 || load(n - 1) != load(n); }  // of a slot
  // Behind loads: to the next step, and what of it there is.
  static constexpr int advance(int nth) {
    return kDirect ? kSlots - 3 : kIsShort ? 12 + nth : 18 + nth;
  }
  static constexpr int kEnds = advance(1) + 1;
  // To the next stage: addresses of reads of A, behind their last ones, and of B, in the next step.
  static constexpr int kTurnA = kSlots - 2;
  static constexpr int turn_b(int j) { return j < 2 ? kSlots - 1 : 0; }

  // Scales of the mth fragments along m are multiplied where the first sums are to be added, and
  // taken behind the last time that those before are.
  static constexpr int multiply(int m) { return (m * S::kN + 1) * kOfFragment; }
  struct At {
    int turn, slot;
  };
  static constexpr At take(int n) {
    constexpr int kLast = kTurns - 1;
    constexpr At kShort[] = {{kLast, 26}, {0, 0}, {kLast, 28}, {kLast, 29}};
    constexpr At kDirectShort[] = {{kLast, 4}, {0, 3}, {kLast, kSlots - 1}, {0, 1}};
    if (kIsShort) return kDirect ? kDirectShort[n] : kShort[n];
    constexpr int kFragment[] = {5, 6, 7};
    if (n < 3) return {kLast, kFragment[n] * kOfFragment};
    if (n == 3) return {0, kOfFragment};
    if (n == 4 && kDirect) return {kLast, kSlots - 1};
    return {0, n == 5 && kDirect};
  }
  // Loads of the next ones are behind that; straight to LDS they are there two turns later.
  static constexpr At load_scale(int n) {
    constexpr At kAt[] = {{0, 12}, {0, 15}, {1, 12}, {2, 12}, {1, 15}, {2, 15}};
    constexpr int kShort[] = {25, 27, 28, 29};
    constexpr At kDirectShort[] = {{0, 5}, {1, 5}, {0, 7}, {1, 7}};
    if (kIsShort) return kDirect ? kDirectShort[n] : At{1, kShort[n]};
    constexpr int kSlot[] = {43, 45, 47, 51, 53, 55};
    return kDirect ? kAt[n] : At{0, kSlot[n]};
  }
  static constexpr int scale_loads_before(int turn, int slot) {
    int count = 0;
    for (int n = 0; n < kScales; ++n)
      count += load_scale(n).turn == turn && load_scale(n).slot < slot;
    return count;
  }

  // Of a store, the loads behind that which it needs.
  static constexpr int loads_behind(int turn, int n) {
    const int count = kLoads - 1 - n + scale_loads_before(turn, store(n));
    return kIsShort ? count + kLoads + scale_loads_before((turn + kTurns - 1) % kTurns, kSlots)
                    : count;
  }

  // Sums may be read so many wait states behind their last matrix instruction: its passes, and a
  // few more. An instruction is one, however long it waits.
  static constexpr int kDistance = kDirect ? 20 : 11;
  // Wait states that are missing in front of the first sums that are added: what is sure to be
  // issued before are matrix instructions, sums, reads, loads, and what else is of every turn.
  static constexpr int known(int slot) {
    int count = 1;
    for (int n = 0; n < kReads; ++n) count += read(n) == slot;
    for (int n = 0; n < kLoads; ++n) count += (kDirect ? 2 : 1) * (load(n) == slot);
    for (int m = 0; m < S::kM; ++m) count += 2 * (multiply(m) == slot);
    if (!kDirect) return count + 2 * (slot == kRead);
    for (int j = 0; j < S::kReadsOfRow; ++j) count += (slot == kTurnA) + (slot == turn_b(j));
    count += slot == 0 ? 4 : slot == kSlots - 1;
    count += 4 * (slot == advance(0));
    return count;
  }
  static constexpr int missing(int slot) {
    const int nth = slot % kOfFragment, before = (slot + kSlots - 1) % kSlots;
    const int f = before / kOfFragment;
    if (nth != (kDirect ? 0 : 1)) return 0;
    const int sums = kSums - sums_before(f, kOfFragment - 1);
    return kDistance - sums - known(slot) - known(before) + (kDirect ? 1 : -1);
  }
};
