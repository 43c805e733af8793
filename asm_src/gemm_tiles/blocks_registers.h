// Accumulation registers of products with scales of blocks, by number: operands of two steps, what
// is on its way through registers, and scales that are loaded ahead. A step of 128 x 128 is short.
#pragma once
#include "gemm_tiles/shape.h"

template <class S>
struct BlockRegisters {
  static constexpr int kOfFragment = 16, kOfRead = 4, kScalesOfB = 2;
  // Steps whose scales are loaded at once: of rows that lie apart each load takes as many lines of
  // L1 as lanes have rows, whatever there is of them, which is half of MI355X's shorter step.
  static constexpr bool kIsShort = S::kFragments == 4;
  static constexpr int kTurns = S::kDirect || kIsShort ? 4 : 2;
  static constexpr int kSet = (S::kM + S::kN) * kOfFragment;
  // What is on its way: of a short step that of two, since memory does not answer within one.
  static constexpr int kSteps = S::kDirect ? 0 : kIsShort ? 2 : 1;
  static constexpr int kStaged = 2 * kSet, kScales = kStaged + kSteps * 4 * S::kLoads;
  static constexpr int kLast = kScales + (S::kM + kScalesOfB) * kTurns - 1;
  static_assert(kLast < 256);

  static constexpr int a(int set, int m) { return set * kSet + m * kOfFragment; }
  static constexpr int b(int set, int n) { return a(set, S::kM + n); }
  static constexpr int staged(int set, int n) {
    return kStaged + 4 * (set % (kSteps ? kSteps : 1) * S::kLoads + n);
  }
  static constexpr int scale(int n) { return kScales + n * kTurns; }
};
