// Sizes of the decode kernels, and which lane holds what.
//
// The wave that has kKeys keys multiplies K by Q^T in 16 x 16 tiles. Lane r of group g has of K, of
// each 16 keys, key r and the columns 32 c + 8 g .. + 7; of S^T query row r and keys 4 g .. + 3,
// which is, lane for lane, what P^T V takes. Of V it loads of the keys 4 g .. + 3 the same columns,
// those next to each other that make a row of 16 lanes whole: no lane needs what another one has.
// So column i of the nth product of a panel of 128 columns is the panel's column 8 i + n.
#pragma once
#include "tile/element.h"
#include "tile/operand.h"

template <Element kOf, int kMaxColumns, int kMaxRows>
struct DecodeShape {
  static constexpr Element kElement = kOf;
  static constexpr int kColumns = kMaxColumns, kRows = kMaxRows;
  static constexpr int kWaves = 4, kLanes = kWaves * kWaveLanes;
  static constexpr int kTiles = kRows / kMatrix;           // of rows, a matrix instruction each
  static constexpr int kKeys = kColumns <= 128 ? 32 : 16;  // of a wave at once
  static constexpr int kKeyTiles = kKeys / kMatrix;
  static constexpr int kTileKeys = kWaves * kKeys;  // of a workgroup: the unit of work
  static constexpr int kKSteps = kColumns / 32;     // loads of a row of K
  static constexpr int kPanel = 128;                // columns
  static constexpr int kPanels = (kColumns + kPanel - 1) / kPanel;
  static constexpr int kProducts = kColumns / kMatrix;       // of P V, for 16 keys
  static constexpr int kKeysOfLane = kMatrix / kLaneGroups;  // of 16
  static_assert(kColumns % 64 == 0 && kRows % kMatrix == 0);

  // Columns of a panel: 128, of the last one 64 or 128.
  static constexpr int columns_of(int panel) {
    return kColumns - panel * kPanel < kPanel ? kColumns - panel * kPanel : kPanel;
  }
  // Neighbours of V that a lane has in a panel.
  static constexpr int each(int panel) { return columns_of(panel) / kMatrix; }
};
