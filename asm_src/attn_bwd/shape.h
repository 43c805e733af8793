// Sizes of one member of the attention backward family, all known at compile time.
#pragma once
#include "arch/target.h"
#include "tile/types.h"

template <int kHeadDim_, int kHeadDimV_, int kWaveTiles_, Element kElement_, bool kOrdered_ = false,
          bool kTurns_ = false>
struct BackwardShape {
  using Target = Here;
  static constexpr Element kElement = kElement_;
  static constexpr int kHeadDim = kHeadDim_, kHeadDimV = kHeadDimV_;
  static constexpr int kWaves = 4, kLanes = kWaves * 64;
  static constexpr int kTile = 16;  // rows and columns of a matrix instruction
  // Tiles of rows that a matrix instruction contracts: one of 16 keys by 16 rows is an operand of
  // 4 rows a lane, two of 8.
  static constexpr int kOperand = Here::kOperandElements;
  static constexpr int kHalves = kOperand / 4, kRows = kTile * kHalves;
  static constexpr int kWaveTiles = kWaveTiles_;  // of keys, whose dK and dV a wave holds
  static constexpr int kTiles = kWaves * kWaveTiles, kKeys = kTile * kTiles;
  // Which tile of a block is one of a wave's. Waves' tiles take turns, so that of dS a wave's next
  // tile lies as far from the one before in every wave.
  static constexpr int tile_of(int wave, int t) { return t * kWaves + wave; }

  static constexpr bool kOrdered = kOrdered_;  // a step has an order of its own
  static constexpr bool kTurns = kTurns_;      // blocks of keys add to a tile of dQ in their order
  // Q and dO go straight to LDS, once, and are read by rows and by columns.
  static constexpr bool kDirect = kOrdered && Here::kTransposesReads;
  // Of a step's products and of what becomes of them, these are a step later: dK and dQ's way to
  // memory; dV and the rounding of dS as well, where the vector unit has about as much to do as the
  // matrix unit.
  static constexpr bool kLaterSums = kOrdered && !kDirect && kHeadDim == 64;
  static constexpr bool kLater = kDirect || kLaterSums;

  // In LDS: a tile of rows of Q or dO by rows and by columns, 16 bytes a chunk either way. If it is
  // there once, in blocks of 1 KB, which a load brings: so many rows, by 16 columns, of which four
  // rows' follow each other. The gap keeps groups of rows in different banks.
  static constexpr int kBlockRows = 512 / kHeadDim, kBlocks = kRows / kBlockRows;
  static constexpr int kBlockGroups = kBlockRows / 4;  // of four rows
  static constexpr int kPitch = 1024 + (kBlockGroups == 1 ? 128 : 0);
  static constexpr int bytes(int head_dim) {
    return kDirect ? kBlocks * kPitch : kRows * head_dim * 2;
  }
  static constexpr int kQ = 0, kQColumns = kDirect ? kQ : bytes(kHeadDim);
  static constexpr int kDo = kQColumns + bytes(kHeadDim);
  static constexpr int kDoColumns = kDirect ? kDo : kDo + bytes(kHeadDimV);
  static constexpr int kStageBytes = kDoColumns + bytes(kHeadDimV);
  // dS: by keys if it is transposed, else by rows. In an order of its own rows have gaps, so that
  // neither what lanes write of four rows nor what they read of a row meets in a bank.
  static constexpr int kDsPitch = 2 * kKeys + (kOrdered && !kDirect ? 32 : 0);
  static constexpr int kDsGap = kOrdered && !kDirect ? 64 : 0;  // behind each four rows
  static constexpr int kDsBytes = kRows * kDsPitch + kRows / 4 * kDsGap;
  // Three stages where a step has an order of its own, else two, or one where there is no room.
  static constexpr bool kTwoStages = 2 * (kStageBytes + kDsBytes) <= Here::kMaxLdsBytes;
  static constexpr int kStages = kOrdered ? 3 : kTwoStages ? 2 : 1;
  static constexpr int kDs = kStages * kStageBytes;
  static constexpr int kWork = kDs + 2 * kDsBytes;  // what a workgroup has to do
  static constexpr int kLdsBytes = kWork + (kOrdered ? 64 : 0);
  static_assert(kLdsBytes <= Here::kMaxLdsBytes);

  // Columns of an operand that lies by columns: lane c has kSteps neighbours, from kSteps * c on.
  static constexpr int steps(int head_dim) { return head_dim / kTile; }
  static constexpr int kDqTiles = kHeadDim / kTile / kWaves;  // of columns of dQ, of a wave
  static_assert(kHeadDim % 64 == 0 && kHeadDimV % 64 == 0);
};
