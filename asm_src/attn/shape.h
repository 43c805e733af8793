// Sizes of one member of the attention forward family, all known at compile time. Plain C++: the
// schedule that follows from them is also printed by a host program.
#pragma once
#include "arch/target.h"
#include "attn/lds_layout.h"
#include "tile/types.h"

// Rows and columns of a matrix instruction, and what it takes of the contraction. One of 32 does
// twice the work in twice the time, and the vector unit loses one slot either way: where that is
// the limit, half as many are lost. One of 16 needs fewer registers.
template <class Target>
constexpr int tile_rows(int head_dim) {
  return head_dim == 64 || Target::kOperandElements == 8 ? 32 : 16;
}

// Workgroups that are on a CU at a time: two where waves have 32 rows, each with half of the
// registers and of LDS. What is before and after the loop of one is then beside the other's loop.
template <class Target>
constexpr int residents(int wave_rows) {
  return !Target::kTransposesReads && wave_rows == 32 ? 2 : 1;
}

template <int kHeadDim_, int kHeadDimV_, int kWaveRows_, Element kElement_, Rounding kRounding_,
          bool kCapped_ = false, class Target_ = Cdna3, int kKeys_ = kUnitKeys,
          int kTile_ = tile_rows<Target_>(kHeadDim_)>
struct Shape : LdsLayout<Target_::kTransposesReads, kKeys_, kHeadDim_, kHeadDimV_, kTile_,
                         (residents<Target_>(kWaveRows_) > 1)> {
  using Target = Target_;
  static constexpr int kHeadDim = kHeadDim_, kHeadDimV = kHeadDimV_;
  static constexpr int kKeys = kKeys_, kLog2Keys = log2_of(kKeys);  // rows of K and V in a block
  static constexpr Element kElement = kElement_;
  static constexpr Rounding kRounding = kRounding_;  // of O
  static constexpr bool kCapped = kCapped_;          // softcap: scores are cap * tanh(score / cap)

  // Probabilities are rounded to nearest where the vector unit has the time. Elsewhere they are
  // truncated, and all are greater by a factor: at a mantissa m that is 0.36 m units of the last
  // place, 0.36 to 0.72, instead of half a unit. The error is 6 % greater.
  static constexpr bool kConverts = Target::kConvertsPairs;  // rounds and packs in one instruction
  static constexpr bool kRounds = !kConverts && kHeadDim + kHeadDimV >= 256 && !kCapped;
  static constexpr bool kNearest = kConverts || kRounds;
  // That of float16 times 16 is exact, times its inverse 1: the mean of equal weights stays a tie.
  static constexpr float kBias =
      kNearest ? 1 : 1 + (kElement == Element::kBf16 ? 0.36f * 0x1p-7f : 183 * 0x1p-19f);
  static constexpr float kLog2Bias = kNearest                     ? 0
                                     : kElement == Element::kBf16 ? 0.00405192f
                                                                  : 33 * 0x1p-16f;
  static constexpr int kTile = kTile_;
  static constexpr int kResidents = residents<Target>(kWaveRows_);
  using Layout =
      LdsLayout<Target::kTransposesReads, kKeys, kHeadDim, kHeadDimV, kTile, (kResidents > 1)>;
  static constexpr bool kDirect = Target::kTransposesReads;  // gfx950: V goes straight to LDS
  static constexpr int kGroups = 64 / kTile;  // of lanes: those that share a row of q
  static constexpr int kDepth = kGroups * Target::kOperandElements;
  static constexpr int kAccRegs = kTile * kTile / 64;    // of an accumulator
  static constexpr int kHalves = kUnitKeys / kTile;      // accumulators of the scores of a unit
  static constexpr int kStepsKeys = kUnitKeys / kDepth;  // of the second product
  static constexpr int kLaneKeys = kUnitKeys / kGroups;  // of a unit
  // Key of a lane's nth score, from 4 * (its group) on.
  static constexpr int key(int n) { return n / 4 * 4 * kGroups + n % 4; }

  // Columns of V and O. The nth tile has every kTilesD-th one from the nth on: registers of the
  // same number of all accumulators are neighbours. Or, where V goes straight to LDS, kTile
  // consecutive ones.
  // A lane has pieces of 8 columns of O, the first one from here on; direct ones once halves have
  // been exchanged, of which a quarter is from 4 * (its group) on before. The lanes of a row have
  // neighbouring pieces: 64 bytes that a store writes whole where there are four of them. Or
  // neighbouring pairs of pieces, and a store writes whole what the lanes of two rows exchange.
  static constexpr bool kPairsPieces = !kDirect && kGroups == 2 && kHeadDimV == 4 * kTile_;
  static constexpr int column_of_group(int group) { return (kPairsPieces ? 16 : 8) * group; }
  static constexpr int column_of_piece(int piece) {
    return kPairsPieces ? piece / 2 * 32 + piece % 2 * 8 : 8 * kGroups * piece;
  }
  static constexpr bool kWholeSectors = !kDirect && kGroups == 4;
  // Of V: which kTilesD columns are row `row` of an operand, so that it is so. Rows 4 g to 4 g + 3
  // of an accumulator are registers of group g.
  static constexpr int columns_of_row(int row) {
    return kWholeSectors ? row % 4 * 4 + row / 4 : row;
  }

  // log2 of a probability at its row's reference. One of bfloat16 at the bottom of the type's
  // range, relative to 1, still has all of its bits then. One of float16 has them down to 2^-14, as
  // in the plain pipeline, and further where P is truncated: those below have no bias that makes up
  // for it. What is above it in the type's range is for scores beyond the reference.
  static constexpr bool kWide = kElement == Element::kBf16;
  static constexpr int kTop = kWide ? 8 : kNearest ? 0 : 6;
  // Lazy rescaling: a reference is renewed when a lane's sum over a unit of keys reaches a limit.
  // bfloat16 has the exponents of float32, so that what limits P are the sums of its products with
  // V, of all keys: they stay finite for V up to 2^kLog2FastV, which is 1e18; of what is greater
  // tiles are done again. P of float16 ends at 65504.
  static constexpr int kLog2FastV = 60;
  static constexpr int log2_limit(int log2_keys) {
    return 126 - kLog2FastV - log2_keys + log2_of(kLaneKeys);
  }
  // Between blocks after so many keys references are raised, the first time and each further time:
  // of rows of which a lane's probabilities so far, had all of its keys the same, would be no less
  // than 2^kTop by a factor. They are 2^kTop to twice that then, the greatest ones of others
  // greater: none lose bits that they have in the plain pipeline.
  static constexpr int kFirstRaise = 256, kNextRaise = 1024;
  static constexpr int kLog2FirstOutgrown = kWide ? 14 : 1, kLog2NextOutgrown = kWide ? 26 : 1;

  static constexpr int kWaveRows = kWaveRows_, kRows = kWaves * kWaveRows;
  static constexpr int kTilesQ = kWaveRows / kTile;  // tiles of q rows of a wave
  // Units of a block: all tiles with its first keys, then with the next ones.
  static constexpr int kUnits = kTilesQ * kKeys / kUnitKeys;
  // Sets of registers for scores and probabilities that units take by turns: two, or as many as
  // come out even at the end of a block.
  static constexpr int kSets = kUnits % 2 == 0 ? 2 : kUnits;
  static constexpr int set_of(int unit) { return (unit + kUnits) % kSets; }
  // With one tile every unit has keys of its own: K is read from LDS a block ahead, so that loads
  // of V may come a block later than those of K.
  static constexpr bool kLagsV = kDirect && kTilesQ == 1;
  static constexpr int tile_of(int unit) { return (unit + kUnits) % kTilesQ; }
  static constexpr int first_key(int unit) { return unit / kTilesQ * kUnitKeys; }

  // Where the last part of a tile to arrive merges all: up to so many of them; 0: another launch
  // does. Their maxima and sums fit in LDS, and a lane's elements of a row in registers thrice.
  static constexpr int kMostMerged =
      !kDirect && kHeadDim == 128 && kHeadDimV == 128 && kTile == 16 && !kCapped && kResidents == 1
          ? 8
          : 0;

  // 16 bytes of a row of K are the operand of a step along head_dim, or of two (halves of a
  // bf16x8).
  static constexpr int kOperandsOf16 = 8 / Target::kOperandElements;
  static constexpr int kStepsD = kHeadDim / kDepth, kReadsK = kStepsD / kOperandsOf16;
  // 16 bytes of transposed V are the operands of as many tiles of columns.
  static constexpr int kTilesD = kHeadDimV / kTile, kReadsV = kTilesD / kOperandsOf16;
  static constexpr int kScoreOps = kHalves * kStepsD, kOutputOps = kStepsKeys * kTilesD;

  // Accumulation registers: O of all tiles, then Q of as many tiles as fit.
  static constexpr int kAccO = kTilesQ * kTilesD * kAccRegs, kRegistersQ = kReadsK * 4;
  static constexpr int kTilesQAcc = least(kTilesQ, (256 - kAccO) / kRegistersQ);
  template <int kTileQ, int kD>
  static constexpr int kAccOutput = (kTileQ * kTilesD + kD) * kAccRegs;
  template <int kTileQ, int kOctet>
  static constexpr int kAccQuery = kAccO + kTileQ * kRegistersQ + kOctet * 4;

  static_assert(kResidents == 1 || kAccO + kTilesQAcc * kRegistersQ == 96);
  static_assert(kHeadDim % 64 == 0 && (!kWholeSectors || kTilesD == 8));
  static_assert(kAccO <= 256 && Layout::kLdsBytes <= Target::kMaxLdsBytes);
  static_assert(kMostMerged * kWaves * kWaveRows * 8 + 256 <= Layout::kLdsBytes);
  static_assert(kWaveRows % kTile == 0 && kKeys == 1 << kLog2Keys && kSets > 1);
};
