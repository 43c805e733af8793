// Which tile of the result a workgroup makes.
#pragma once
#include "isa/uniform.h"

inline constexpr int kXcds = 8;

// Workgroups go round robin over the XCDs. An XCD's are a run of the order of tiles, so that its L2
// serves what they share; the order goes down `window` tiles of m, then on by one of n.
struct TilePlace {
  int m, n;  // of the tile's first element

  // Of tiles of S, or, gated, where half of B's rows are factors, of half as many columns.
  template <class S>
  static __device__ __forceinline__ TilePlace of(int rows, int columns, bool gated, int window) {
    constexpr uint32_t kHalf = S::kRowsN / 2;
    const uint32_t tiles_m = uint32_t(rows + S::kRowsM - 1) / S::kRowsM;
    const uint32_t halves = uint32_t(columns + kHalf - 1) / kHalf;
    const uint32_t tiles_n = gated ? halves : (halves + 1) / 2;
    TilePlace place = nth_of(tiles_m, tiles_n, window);
    place.m = uniform(place.m * S::kRowsM);
    place.n = uniform(place.n * (gated ? kHalf : S::kRowsN));
    return place;
  }

 private:
  static __device__ __forceinline__ TilePlace nth_of(uint32_t tiles_m, uint32_t tiles_n,
                                                     int window) {
    const uint32_t tiles = tiles_m * tiles_n, id = __builtin_amdgcn_workgroup_id_x();
    const uint32_t xcd = id % kXcds, each = tiles / kXcds, more = tiles % kXcds;
    const uint32_t nth = xcd * each + (xcd < more ? xcd : more) + id / kXcds;
    const uint32_t of_window = window * tiles_n;
    const uint32_t first = nth / of_window * window;
    const uint32_t left = tiles_m - first;
    const uint32_t high = left < uint32_t(window) ? left : window, in = nth % of_window;
    return {int(first + in % high), int(in / high)};
  }
};
