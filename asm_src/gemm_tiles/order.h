// Where in a step things are: behind which of its matrix instructions.
#pragma once
#include "gemm_tiles/shape.h"

// Reads of LDS are of the next part, in the first half of a part, or in three quarters of it where
// some come in halves. Loads are behind the barrier by which the next step is in LDS.
template <class S>
struct TileOrder {
  static constexpr int kPart = S::kPartSlots, kHalf = kPart / 2, kLast = S::kSlots - kPart;
  static constexpr int kLoads = S::kLoads;

  // Through registers: the barrier behind which nothing of the step is read, and writes of the next
  // one begin; behind kWritten they are there.
  static constexpr int kRead = 2 * kPart + kPart * 3 / 8;
  static constexpr int kWritten = S::kDirect ? kLast : kLast + kPart * 3 / 8;
  static constexpr int store(int n) {
    return kRead + 1 + n * (kLast + kPart / 4 - kRead - 1) / S::kBlocks;
  }

  static constexpr bool kHalves = S::kHalvesA > 1 || S::kHalvesB > 1;
  static constexpr int kReadSpan = kHalves ? kPart * 3 / 4 : kHalf;
  static constexpr int read(int part, int n) {
    const int first = part == S::kParts - 1 ? kWritten : part * kPart;
    return first + n * kReadSpan / (S::kDirect ? S::kReads : 2 * S::kReads);
  }
  static constexpr int turn(int part) { return read(part, S::kReads - 1) + 1; }
  // A load a slot, with three stages less: into the next step, as where there are more loads than
  // blocks. Not beside the barrier nor the branch, which take a slot each.
  static constexpr bool kGoOn = S::kStages > 2 || kLoads > S::kBlocks;
  static constexpr int kFirst = kWritten + 1, kLeft = S::kSlots - kFirst;
  static constexpr int kSpan = S::kStages > 2 ? S::kSlots / 2 : kGoOn ? kLeft + kPart : kLeft - 1;
  static constexpr int nth_slot(int n) { return kFirst + n * kSpan / kLoads; }
  static constexpr int load(int n) { return nth_slot(n) % S::kSlots; }
  // How many are not in the next step.
  static constexpr int kEarly = kGoOn ? (kLeft * kLoads + kSpan - 1) / kSpan : kLoads;
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
