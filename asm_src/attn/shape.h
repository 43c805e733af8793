// Sizes of one member of the attention forward family, all known at compile time. Plain C++: the
// schedule that follows from them is also printed by a host program.
#pragma once
#include "arch/limits.h"
#include "tile/types.h"

inline constexpr int kWaves = 4;  // of a workgroup: one a SIMD, so that each has 512 registers
inline constexpr int kKeys = 32;  // rows of K and V in a block
inline constexpr int kLog2Keys = 5;
static_assert(1 << kLog2Keys == kKeys);
inline constexpr int kStages = 2;

constexpr int least(int a, int b) { return a < b ? a : b; }
constexpr int most(int a, int b) { return a > b ? a : b; }
constexpr int power_of_two(int least_value) {
  int n = 1;
  while (n < least_value) n *= 2;
  return n;
}

template <int kHeadDim_, int kHeadDimV_, int kWaveRows_, Element kElement_, Rounding kRounding_,
          bool kCapped_ = false>
struct Shape {
  static constexpr int kHeadDim = kHeadDim_, kHeadDimV = kHeadDimV_;
  static constexpr Element kElement = kElement_;
  static constexpr Rounding kRounding = kRounding_;  // of O
  static constexpr bool kCapped = kCapped_;          // softcap: scores are cap * tanh(score / cap)

  // Probabilities are rounded to nearest where the vector unit has the time. Elsewhere they are
  // truncated, and all are greater by a factor: at a mantissa m that is 0.36 m units of the last
  // place, 0.36 to 0.72, instead of half a unit. The error is 6 % greater.
  static constexpr bool kRounds = kHeadDim + kHeadDimV >= 256 && !kCapped;
  static constexpr float kBias =
      kRounds ? 1 : 1 + 0.36f * (kElement == Element::kBf16 ? 0x1p-7f : 0x1p-10f);
  static constexpr float kLog2Bias = kRounds                      ? 0
                                     : kElement == Element::kBf16 ? 0.00405192f
                                                                  : 0.000507098f;
  // Rows and columns of a matrix instruction, and what it takes of the contraction. One of 32 does
  // twice the work in twice the time, and the vector unit loses one slot either way: where that is
  // the limit, half as many are lost. One of 16 needs fewer registers.
  static constexpr int kTile = kHeadDim == 64 ? 32 : 16, kDepth = 256 / kTile;
  static constexpr int kGroups = 64 / kTile;           // of lanes: those that share a row of q
  static constexpr int kAccRegs = kTile * kTile / 64;  // of an accumulator
  static constexpr int kHalves = kKeys / kTile;        // accumulators of the scores of a block
  static constexpr int kStepsKeys = kKeys / kDepth;    // of the second product
  static constexpr int kLaneKeys = kKeys / kGroups;    // of a unit
  // Key of a lane's nth score, from 4 * (its group) on.
  static constexpr int key(int n) { return n / 4 * kDepth + n % 4; }

  // log2 of a probability at its row's reference, so that one at the bottom of the 16-bit type's
  // range, relative to 1, still has all of its bits.
  static constexpr int kTop = 8;
  // Lazy rescaling: a reference is renewed when a lane's sum over a unit is that of
  // probabilities that all are 2^kSlack times what they are at the reference.
  static constexpr int kSlack = 3;
  static constexpr float kLimit = float(kLaneKeys << kSlack << kTop);
  static_assert(kLimit <= 65504);  // in fp16, too

  static constexpr int kWaveRows = kWaveRows_, kRows = kWaves * kWaveRows;
  static constexpr int kTilesQ = kWaveRows / kTile;  // tiles of q rows of a wave

  // 16 bytes of a row of K are the operand of two steps along head_dim (halves of a bf16x8).
  static constexpr int kStepsD = kHeadDim / kDepth, kReadsK = kStepsD / 2;
  // 16 bytes of transposed V are the operands of two tiles of columns.
  static constexpr int kTilesD = kHeadDimV / kTile, kReadsV = kTilesD / 2;
  static constexpr int kScoreOps = kHalves * kStepsD, kOutputOps = kStepsKeys * kTilesD;

  // Accumulation registers: O of all tiles, then Q of as many tiles as fit.
  static constexpr int kAccO = kTilesQ * kTilesD * kAccRegs, kRegistersQ = kReadsK * 4;
  static constexpr int kTilesQAcc = least(kTilesQ, (256 - kAccO) / kRegistersQ);
  template <int kTileQ, int kD>
  static constexpr int kAccOutput = (kTileQ * kTilesD + kD) * kAccRegs;
  template <int kTileQ, int kOctet>
  static constexpr int kAccQuery = kAccO + kTileQ * kRegistersQ + kOctet * 4;

  // LDS, two stages each. K: rows of head_dim as loads bring them, 256 bytes each. Eight lanes that
  // read at once, the same 16-byte chunk of eight rows, must meet different banks. Chunks of a row
  // are permuted by the row; or, where a load brings two rows, neighbours by odd and even ones, and
  // loads are 32 bytes apart: then all chunks of a lane are at constant distances.
  static constexpr bool kPadded = kTile == 32;
  static constexpr int kPermutedK = kPadded ? 1 : 7;  // chunk c of row r lies at c ^ (r & this)
  static constexpr int kAddressesK = kPadded ? 1 : 8 / kGroups;
  static constexpr int kLoadBytesK = 256, kPitchK = kLoadBytesK + (kPadded ? 32 : 0);
  // V: for 4 keys, for two elements of kTile lanes each: operands of the second product.
  static constexpr int kRowBytesK = 2 * kHeadDim, kRowBytesV = 2 * kHeadDimV;
  // Powers of two, so that XOR changes the stage of an address.
  static constexpr int kStageK = power_of_two(kKeys * kRowBytesK / kLoadBytesK * kPitchK);
  static constexpr int kStageV = power_of_two(kKeys * kRowBytesV);
  static constexpr int kBaseV = kStages * kStageK;
  static constexpr int kBaseVote = kBaseV + kStages * kStageV;  // a word of each wave
  static constexpr int kLdsBytes = kBaseVote + 4 * kWaves;
  static constexpr int kGroupV = 4 * kRowBytesV;  // 4 keys
  static constexpr int kOctetV = 16 * kTile;      // of them two tiles of columns
  static constexpr int kLoadsK = kKeys * kRowBytesK / kWaves / kLoadBytesK;  // of a wave and block
  static constexpr int kWidthV = kHeadDimV / 32;  // elements of a lane's load of V
  static constexpr int kLoadsV = 4;               // of a wave and block: rows of a lane
  static_assert(kHeadDim % 64 == 0 && (kWidthV == 2 || kWidthV == 4));
  static_assert(kAccO <= 256 && kLdsBytes <= kMaxLdsBytes);
  static_assert(kWaveRows % (2 * kTile) == 0);  // units alternate between two sets of registers
  static_assert(!kPadded || kLoadBytesK == 2 * kRowBytesK);
};
