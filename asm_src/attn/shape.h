// Sizes of one member of the attention forward family, all known at compile time. Plain C++: the
// schedule that follows from them is also printed by a host program.
#pragma once
#include "tile/types.h"

inline constexpr int kWaves = 4;  // of a workgroup: one a SIMD, so that each has 512 registers
inline constexpr int kKeys = 32;  // rows of K and V in a block
inline constexpr int kLog2Keys = 5;
static_assert(1 << kLog2Keys == kKeys);
inline constexpr int kTile = 16;  // rows and columns of a matrix instruction
inline constexpr int kStages = 2;

constexpr int least(int a, int b) { return a < b ? a : b; }
constexpr int most(int a, int b) { return a > b ? a : b; }
constexpr int power_of_two(int least_value) {
  int n = 1;
  while (n < least_value) n *= 2;
  return n;
}

template <int kHeadDim_, int kHeadDimV_, int kTilesQ_, Element kElement_, Rounding kRounding_,
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
  // log2 of a probability at its row's reference, so that one at the bottom of the 16-bit type's
  // range, relative to 1, still has all of its bits.
  static constexpr int kTop = 8;
  // Lazy rescaling: a reference is renewed when a lane's sum over a unit is that of eight
  // probabilities that are 2^kSlack times what they are at the reference.
  static constexpr int kSlack = 3;
  static constexpr float kLimit = float(8 << kSlack << kTop);
  static_assert(kLimit <= 65504);  // in fp16, too

  static constexpr int kTilesQ = kTilesQ_;  // tiles of 16 q rows of a wave
  static constexpr int kWaveRows = kTile * kTilesQ, kRows = kWaves * kWaveRows;

  // 16 bytes of a row of K are the operand of two steps of 16 along head_dim (halves of a bf16x8).
  static constexpr int kStepsD = kHeadDim / 16, kReadsK = kHeadDim / 32;
  // 16 bytes of transposed V are the operands of two 16-wide tiles of head_dim_v.
  static constexpr int kTilesD = kHeadDimV / 16, kReadsV = kHeadDimV / 32;
  static constexpr int kScoreOps = 2 * kStepsD, kOutputOps = 2 * kTilesD;

  // Accumulation registers: O of all tiles, then Q of as many tiles as fit.
  static constexpr int kAccO = kTilesQ * kTilesD * 4, kRegistersQ = kHeadDim / 8;
  static constexpr int kTilesQAcc = least(kTilesQ, (256 - kAccO) / kRegistersQ);
  template <int kTileQ, int kD>
  static constexpr int kAccOutput = (kTileQ * kTilesD + kD) * 4;
  template <int kTileQ, int kOctet>
  static constexpr int kAccQuery = kAccO + kTileQ * kRegistersQ + kOctet * 4;

  // LDS, two stages each. K: rows of head_dim, the 16-byte chunks of a row permuted by the row.
  // V: for 4 keys, for 32 bytes of head_dim_v over 16 lanes: operands of the second product.
  static constexpr int kRowBytesK = 2 * kHeadDim, kRowBytesV = 2 * kHeadDimV;
  // Powers of two, so that XOR changes the stage of an address.
  static constexpr int kStageK = power_of_two(kKeys * kRowBytesK);
  static constexpr int kStageV = power_of_two(kKeys * kRowBytesV);
  static constexpr int kBaseV = kStages * kStageK;
  static constexpr int kBaseVote = kBaseV + kStages * kStageV;  // a word of each wave
  static constexpr int kLdsBytes = kBaseVote + 4 * kWaves;
  static constexpr int kGroupV = 4 * kRowBytesV;  // 4 keys
  static constexpr int kLoadsK =
      kKeys * kRowBytesK / kWaves / 256;          // of a wave and block: 256 bytes each
  static constexpr int kWidthV = kHeadDimV / 32;  // elements of a lane's load of V
  static constexpr int kLoadsV = 4;               // of a wave and block: rows of a lane
  static_assert(kHeadDim % 64 == 0 && (kWidthV == 2 || kWidthV == 4));
  static_assert(kAccO <= 256 && kLdsBytes <= 65536);
  static_assert(kTilesQ >= 4 && kTilesQ % 2 == 0, "the pipeline's stages need four tiles");
};
