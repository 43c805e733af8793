// Which tile of the result a workgroup makes.
#pragma once
#include "isa/uniform.h"

inline constexpr int kXcds = 8;

// Workgroups go round robin over the XCDs. An XCD's are a run of the order of tiles, so that its L2
// serves what they share.
__device__ __forceinline__ uint32_t nth_of_xcds(uint32_t tiles) {
  const uint32_t id = __builtin_amdgcn_workgroup_id_x();
  const uint32_t xcd = id % kXcds, each = tiles / kXcds, more = tiles % kXcds;
  return xcd * each + (xcd < more ? xcd : more) + id / kXcds;
}

// Tiles of a product: the order goes down `window` tiles of m, then on by one of n.
struct TilePlace {
  int m, n;  // of the tile's first element

  // Tiles of S along n; or, gated, where half of B's rows are factors, of half as many columns.
  template <class S>
  static __device__ __forceinline__ uint32_t tiles_n(int columns, bool gated) {
    constexpr uint32_t kHalf = S::kRowsN / 2;
    const uint32_t halves = uint32_t(columns + kHalf - 1) / kHalf;
    return gated ? halves : (halves + 1) / 2;
  }
  template <class S>
  static __device__ __forceinline__ uint32_t tiles_m(int rows) {
    return uint32_t(rows + S::kRowsM - 1) / S::kRowsM;
  }
  // The nth of a product with so many.
  template <class S>
  static __device__ __forceinline__ TilePlace of(uint32_t nth, uint32_t tiles_m, uint32_t tiles_n,
                                                 bool gated, int window) {
    const uint32_t of_window = window * tiles_n;
    const uint32_t first = nth / of_window * window;
    const uint32_t left = tiles_m - first;
    const uint32_t high = left < uint32_t(window) ? left : window, in = nth % of_window;
    const uint32_t m = first + in % high, n = in / high;
    return {uniform(m * S::kRowsM), uniform(n * (gated ? S::kRowsN / 2 : S::kRowsN))};
  }
};
