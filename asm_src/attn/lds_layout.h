// Where K and V lie in LDS. Plain C++.
#pragma once

inline constexpr int kWaves = 4;      // of a workgroup: one a SIMD, so that each has 512 registers
inline constexpr int kUnitKeys = 32;  // rows of K and V that a unit of the main loop takes

constexpr int least(int a, int b) { return a < b ? a : b; }
constexpr int most(int a, int b) { return a > b ? a : b; }
constexpr int log2_of(int least_value) {
  int n = 0;
  while (1 << n < least_value) ++n;
  return n;
}
constexpr int power_of_two(int least_value) { return 1 << log2_of(least_value); }

// Two stages each of K, as loads bring it, and of V, which is transposed in registers on its way.
// Blocks of kKeys rows.
// kShares: LDS holds another workgroup's, too, and there is nothing but K and V in it.
template <bool kTransposesReads, int kKeys, int kHeadDim, int kHeadDimV, int kTile,
          bool kShares = false>
struct LdsLayout {
  static_assert(kKeys == kUnitKeys);
  static constexpr int kStages = 2;
  // K: rows of head_dim, 256 bytes of a load each. Eight lanes that
  // read at once, the same 16-byte chunk of eight rows, must meet different banks. Chunks of a row
  // are permuted by the row; or, where a load brings two rows, neighbours by odd and even ones, and
  // loads are 32 bytes apart: then all chunks of a lane are at constant distances.
  static constexpr int kGroups = 64 / kTile;
  static constexpr bool kPadded = kTile == 32 && kHeadDim == 64;
  static constexpr int kPermutedK = kPadded ? 1 : 7;  // chunk c of row r lies at c ^ (r & this)
  static constexpr int kAddressesK = kPadded ? 1 : 8 / kGroups;
  static constexpr int kLoadBytesK = 256, kPitchK = kLoadBytesK + (kPadded ? 32 : 0);
  // V: for 4 keys, for two elements of kTile lanes each: operands of the second product.
  static constexpr int kRowBytesK = 2 * kHeadDim, kRowBytesV = 2 * kHeadDimV;
  // Powers of two, so that XOR changes the stage of an address.
  static constexpr int kStageK = power_of_two(kKeys * kRowBytesK / kLoadBytesK * kPitchK);
  static constexpr int kStageV = power_of_two(kKeys * kRowBytesV);
  static constexpr int kBaseV = kStages * kStageK;
  // A word of each wave, behind all stages; or, once the loop is done, in the first one.
  static constexpr int kBaseVote = kShares ? 0 : kBaseV + kStages * kStageV;
  static constexpr int kLdsBytes = kBaseV + kStages * kStageV + (kShares ? 0 : 4 * kWaves);
  static constexpr int kGroupV = 4 * kRowBytesV;  // 4 keys
  static constexpr int kOctetV = 16 * kTile;      // of them two tiles of columns
  static constexpr int kLoadsK = kKeys * kRowBytesK / kWaves / kLoadBytesK;  // of a wave and block
  static constexpr int kWidthV = kHeadDimV / 32;  // elements of a lane's load of V
  static constexpr int kLoadsV = 4;               // of a wave and block: rows of a lane
  static constexpr int kLoadsToLds = kLoadsK;
  static constexpr int kLoadsOfEightRows = 8 * kRowBytesK / (kWaves * kLoadBytesK);
  static_assert(kWidthV == 2 || kWidthV == 4);
  static_assert(!kPadded || kLoadBytesK == 2 * kRowBytesK);
};

// Stages of a block of K and V, as loads of 16 bytes a lane bring them; LDS transposes V as it is
// read. Consecutive stages differ in one bit (a Gray code), so that one XOR takes an address from
// each to the next.
template <int kKeys, int kHeadDim, int kHeadDimV, int kTile>
struct LdsLayout<true, kKeys, kHeadDim, kHeadDimV, kTile, false> {
  static constexpr int kStages = 4, kLoadBytes = 1024;
  static constexpr int kRowBytesK = 2 * kHeadDim, kRowBytesV = 2 * kHeadDimV;
  static constexpr int kStageBytesV = kKeys * kRowBytesK;  // where V begins in a stage
  static constexpr int kStage = power_of_two(kStageBytesV + kKeys * kRowBytesV);
  static constexpr int kBaseVote = kStages * kStage;  // a word of each wave
  static constexpr int kLdsBytes = kBaseVote + 4 * kWaves;
  static constexpr int kLoadsK = kKeys * kRowBytesK / kWaves / kLoadBytes;  // of a wave and block
  static constexpr int kLoadsToLds = kLoadsK + kKeys * kRowBytesV / kWaves / kLoadBytes;
  static constexpr int kLoadsV = 0, kWidthV = 0, kLoadsOfEightRows = 1;  // through registers
  // K: sixteen lanes that read at once, the same 16-byte chunk of sixteen rows that differ modulo
  // 16, must meet different banks: chunks of a row are permuted by the row, the low four bits of
  // their numbers where rows begin at the same bank, three where every second one does.
  static constexpr bool kAlikeRows = kRowBytesK % 256 == 0;
  static constexpr int permutation(int row) { return kAlikeRows ? row % 16 : row / 2 % 8; }
  static constexpr int kAddressesK = kAlikeRows ? 8 : 4;  // steps along head_dim; further at
  static constexpr int kFurtherK = 32 * kAddressesK;      // constant distances of so many bytes
  // V: for 4 keys, for 32 columns each: 64 bytes of a key, then of the next one. 32 lanes read 4
  // keys at once.
  static constexpr int kGroupV = 4 * kRowBytesV, kTileV = 256, kTileRowV = 64;
  static_assert(kTile == 32 && kHeadDim % 64 == 0 && kHeadDimV % 64 == 0);
};
