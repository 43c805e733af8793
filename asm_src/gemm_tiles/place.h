// Which tile of the result a workgroup makes.
#pragma once
#include "isa/uniform.h"

inline constexpr int kXcds = 8;

// Workgroups go round robin over the XCDs. What an XCD works on at a time is a run of `chunk` tiles
// of the order, so that its L2 serves what they share, and the XCDs' runs follow each other, so
// that the cache of all of them serves what those share. What fills no further round of runs is cut
// into equal ones; where a launch has no runs all of it.
template <bool kRuns>
__device__ __forceinline__ uint32_t nth_of_xcds(uint32_t tiles, uint32_t chunk) {
  const uint32_t id = __builtin_amdgcn_workgroup_id_x();
  const uint32_t xcd = id % kXcds;
  uint32_t of_xcd = id / kXcds, before = 0;
  if (kRuns && tiles >= kXcds * chunk) {  // no divisions for a single round
    const uint32_t round = of_xcd / chunk, whole = tiles / (kXcds * chunk);
    if (round < whole) return (round * kXcds + xcd) * chunk + of_xcd - round * chunk;
    before = whole * kXcds * chunk;
    of_xcd -= whole * chunk;
  }
  const uint32_t left = tiles - before, each = left / kXcds, more = left % kXcds;
  return before + xcd * each + (xcd < more ? xcd : more) + of_xcd;
}

// Tiles of a product: the order goes down kWindow tiles of m, then on by one of n.
struct TilePlace {
  int m, n;  // of the tile's first element
  static constexpr uint32_t kWindow = 8;

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
                                                 bool gated) {
    const uint32_t of_window = kWindow * tiles_n;
    const uint32_t first = nth / of_window * kWindow;
    const uint32_t left = tiles_m - first;
    const uint32_t high = left < kWindow ? left : kWindow, in = nth % of_window;
    const uint32_t m = first + in % high, n = in / high;
    return {uniform(m * S::kRowsM), uniform(n * (gated ? S::kRowsN / 2 : S::kRowsN))};
  }
};
