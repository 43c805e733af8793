// Sizes of the decode kernels, and which lane holds what.
//
// The wave that has kKeys keys multiplies K by Q^T in 16 x 16 tiles. Lane r of group g has of K, of
// each 16 keys, key r and the columns 32 c + 8 g .. + 7; of S^T query row r and keys 4 g .. + 3,
// which is, lane for lane, what P^T V takes. Of V it loads of the keys 4 g .. + 3 the same columns,
// those next to each other that make a row of 16 lanes whole: no lane needs what another one has.
// So column i of the nth product of a panel of 128 columns is the panel's column 8 i + n.
// A cache in packed order has 16 bytes of a key next to the same ones of the next key, and the keys
// of a column of V next to each other: a lane then loads four keys of a column, which is an
// operand, and column i of the nth product is the panel's column 16 n + i. Of elements of 8 bits a
// lane has of K the columns 64 c + 16 g .. + 15; of V in rows it loads 16 columns of two keys, and
// lanes r and r + 8 exchange halves, so that column i of the nth product is the panel's column
// 16 (i % 8) + 8 (i / 8) + n.
#pragma once
#include "tile/element.h"
#include "tile/operand.h"

inline constexpr int kLoadBytes = 16;

enum class Stored { kAsQ, kFp8 };     // elements of the cache
enum class Order { kRows, kPacked };  // of its elements

template <Element kOf, Stored kCacheOf, Order kCacheOrder, int kMaxColumns, int kMaxRows>
struct DecodeShape {
  static constexpr Element kElement = kOf;
  static constexpr bool kFp8 = kCacheOf == Stored::kFp8;
  static constexpr bool kPacked = kCacheOrder == Order::kPacked;
  static constexpr int kBytes = kFp8 ? 1 : 2;          // of an element of the cache
  static constexpr int kOfLoad = kLoadBytes / kBytes;  // columns of K that a lane loads at a time
  static constexpr int kOfStep = 8;                    // columns of a lane in a step of the product
  static constexpr int kColumns = kMaxColumns, kRows = kMaxRows;
  static constexpr int kWaves = 4, kLanes = kWaves * kWaveLanes;
  static constexpr int kTiles = kRows / kMatrix;           // of rows, a matrix instruction each
  static constexpr int kKeys = kColumns <= 128 ? 32 : 16;  // of a wave at once
  static constexpr int kKeyTiles = kKeys / kMatrix;
  static constexpr int kTileKeys = kWaves * kKeys;  // of a workgroup: the unit of work
  static constexpr int kKSteps = kColumns / (kLaneGroups * kOfStep);  // products of 32 columns of K
  static constexpr int kKLoads = kColumns / (kLaneGroups * kOfLoad);  // of a row of K
  static constexpr int kPanel = 128;                                  // columns
  static constexpr int kPanels = (kColumns + kPanel - 1) / kPanel;
  static constexpr int kProducts = kColumns / kMatrix;       // of P V, for 16 keys
  static constexpr int kKeysOfLane = kMatrix / kLaneGroups;  // of 16
  static constexpr int kVRows = kKeysOfLane * kBytes / 2;    // loads of a panel, in rows
  static constexpr int kVLoads = kPacked ? kProducts : kVRows * kPanels;  // of 16 keys
  // Workgroups that ask for as much as memory has, each a CU's: the others may have nothing to do.
  // Where what is computed takes longer than that, all are wanted.
  static constexpr int kBusy = kFp8 || kTiles > 1 ? 256 : kColumns < kPanel ? 128 : 64;
  // An item of n tiles is in so many times the root of n parts at most: the time of a tile, over
  // that of merging a part, is this squared.
  static constexpr float kPartsOfRoot = kTiles > 1 ? 2 : 3;
  static_assert(kColumns % 64 == 0 && kRows % kMatrix == 0);
  static_assert(!kFp8 || kPacked || kColumns % kPanel == 0);

  // Columns of a panel: 128, of the last one 64 or 128.
  static constexpr int columns_of(int panel) {
    return kColumns - panel * kPanel < kPanel ? kColumns - panel * kPanel : kPanel;
  }
  // Columns of V that a lane has in a panel.
  static constexpr int each(int panel) { return columns_of(panel) / kMatrix; }
  static constexpr int v_bytes(int load) {
    return kPacked ? kKeysOfLane * kBytes : each(load % kPanels) * 2;
  }
  // Which key of the lane's of 16 a load of V begins with.
  static __device__ __forceinline__ int v_key(int load) {
    const int nth = load / kPanels;
    return kPacked ? 0 : kFp8 ? 2 * nth + matrix_row() / 8 : nth;
  }
  // In rows, of a panel's columns those of row `row` of the products begin with.
  static __device__ __forceinline__ int column_of_row(int panel, int row) {
    return kFp8 ? row % 8 * kOfLoad + row / 8 * kOfStep : row * each(panel);
  }
  // The first column of the lane in a load, and in a step of the product.
  static __device__ __forceinline__ int column_of_load(int load) {
    return (kLaneGroups * load + lane_group()) * kOfLoad;
  }
  static __device__ __forceinline__ int column_of_step(int step) {
    constexpr int kSteps = kOfLoad / kOfStep;
    return column_of_load(step / kSteps) + step % kSteps * kOfStep;
  }
};
