// Which tile of the result a workgroup makes.
#pragma once
#include "isa/uniform.h"

inline constexpr int kXcds = 8;

// Workgroups go round robin over the XCDs. An XCD's are a run of the order of tiles, so that its L2
// serves what they share; the order goes down `window` tiles of m, then on by one of n.
struct TilePlace {
  int m, n;  // of the tile's first element

  // Tiles have 2^log_m rows and 2^log_n columns.
  __device__ __forceinline__ TilePlace(int rows, int columns, int log_m, int log_n, int window) {
    const uint32_t tiles_m = uint32_t(rows + (1 << log_m) - 1) >> log_m;
    const uint32_t tiles_n = uint32_t(columns + (1 << log_n) - 1) >> log_n;
    const uint32_t tiles = tiles_m * tiles_n, id = __builtin_amdgcn_workgroup_id_x();
    const uint32_t xcd = id % kXcds, each = tiles / kXcds, more = tiles % kXcds;
    const uint32_t nth = xcd * each + (xcd < more ? xcd : more) + id / kXcds;
    const uint32_t of_window = window * tiles_n;
    const uint32_t first = nth / of_window * window;
    const uint32_t left = tiles_m - first;
    const uint32_t high = left < uint32_t(window) ? left : window, in = nth % of_window;
    m = uniform((first + in % high) << log_m);
    n = uniform(in / high << log_n);
  }
};
