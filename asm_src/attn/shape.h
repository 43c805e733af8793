// Sizes of one member of the attention forward family, all known at compile time.
#pragma once
#include "isa/device.h"

enum class Element { kBf16, kF16 };
enum class Rounding { kNearestEven, kNearestAway, kTowardZero };

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
          bool kCapped_ = false, int kSlack_ = 3, Element kProduct_ = kElement_>
struct Shape {
  static constexpr int kHeadDim = kHeadDim_, kHeadDimV = kHeadDimV_;
  static constexpr Element kElement = kElement_;
  static constexpr Rounding kRounding = kRounding_;
  static constexpr bool kCapped = kCapped_;  // softcap: scores are cap * tanh(score / cap)

  // The second product, P V. In fp16, whose 11 bits make P eight times as exact as a bf16's 8, V is
  // converted on its way to LDS. Times kScaleV it is exact from 2^-21 on and below kGreatestV, and
  // good enough where the greatest of its columns is kLeastV or more.
  static constexpr Element kProduct = kProduct_;
  static constexpr bool kConverts = kProduct != kElement;
  static_assert(!kConverts || kElement == Element::kBf16);
  static constexpr float kScaleV = kConverts ? 16 : 1, kGreatestV = 4096, kLeastV = 0x1p-14f;
  static constexpr Rounding kRoundingP = kConverts ? Rounding::kTowardZero : kRounding;
  // log2 of the probability at the reference: fp16 has room for others far below it.
  static constexpr int kTop = kProduct == Element::kF16 ? 8 : 0;
  // When a row's reference is renewed. Exact: when a score is greater, by more than the rounding of
  // their difference. Lazy: when a lane's sum over a unit is that of eight probabilities that are
  // 2^kSlack times what they are at the reference.
  static constexpr int kSlack = kSlack_;
  static constexpr bool kExact = kSlack == 0;
  static constexpr float kLimit = kExact ? kTop + 0x1p-9f : float(8 << kSlack << kTop);
  static_assert(kSlack >= 0 && (kProduct != Element::kF16 || kSlack <= 4));
  // Of bf16 tensors, O is divided by the sum of the probabilities as they were rounded.
  static constexpr bool kSumsRounded = kElement == Element::kBf16;

  static constexpr int kTilesQ = kTilesQ_;  // tiles of 16 q rows of a wave
  static constexpr int kWaveRows = kTile * kTilesQ, kRows = kWaves * kWaveRows;

  // 16 bytes of a row of K are the operand of two steps of 16 along head_dim (halves of an octet).
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
  // The greatest |V| that each lane has seen.
  static constexpr int kBaseFit = kBaseV + kStages * kStageV;
  static constexpr int kLdsBytes = kBaseFit + (kConverts ? 4 * kWaves * kWaveLanes : 0);
  static constexpr int kGroupV = 4 * kRowBytesV;  // 4 keys
  static constexpr int kLoadsK =
      kKeys * kRowBytesK / kWaves / 256;          // of a wave and block: 256 bytes each
  static constexpr int kWidthV = kHeadDimV / 32;  // elements of a lane's load of V
  static_assert(kHeadDim % 64 == 0 && (kWidthV == 2 || kWidthV == 4));
  static_assert(kAccO <= 256 && kLdsBytes <= 65536);
  static_assert(kTilesQ >= 4 && kTilesQ % 2 == 0, "the pipeline's stations need four tiles");
};
