// Sizes of one member of the decode GEMM family, all known at compile time.
#pragma once
#include "isa/device.h"
#include "isa/unroll.h"

enum class Element { kBf16, kF16 };

inline constexpr int kTile = 16;  // rows and columns of a matrix instruction
inline constexpr int kLine = 64;  // elements of k in a cache line of 128 bytes: a step

// A or B: rows of it, and which one is the tile's first.
struct Operand {
  uint64_t base;
  int stride, rows, first;
};

// How the rows of B of a tile are columns of the result: each is one, or, where half of them are
// factors `up` rows further on in B, those that the activation is of are the first 8 of every 16.
struct Rows {
  int up;  // 0: no factors

  __device__ __forceinline__ int each() const { return up ? kTile / 2 : kTile; }
  __device__ __forceinline__ int column(int fragment, int row) const {
    return fragment * each() + (row & (each() - 1));
  }
  __device__ __forceinline__ int further(int row) const { return row < each() ? 0 : up; }
};

template <int kTilesM_, int kTilesN_, int kWavesM_, int kWavesK_, int kDepth_, Element kElement_>
struct Shape {
  static constexpr Element kElement = kElement_;
  static constexpr int kTilesM = kTilesM_, kTilesN = kTilesN_;  // of 16 rows, of a wave
  // Waves next to each other along m, and waves that take turns along k.
  static constexpr int kWavesM = kWavesM_, kWavesK = kWavesK_, kWaves = kWavesM * kWavesK;
  static constexpr int kLanes = kWaves * kWaveLanes;
  static constexpr int kDepth = kDepth_;  // steps in flight
  static constexpr int kRowsM = kTile * kTilesM * kWavesM, kRowsN = kTile * kTilesN;

  static constexpr int kLoads = 2 * (kTilesM + kTilesN);  // of a step: 16 bytes a lane
  static constexpr int kFragments = kTilesM * kTilesN;    // of 16 x 16 results, of a wave
  // Fragments that each wave along k finishes: o-th of wave w.
  static constexpr int kOwned = (kFragments + kWavesK - 1) / kWavesK;
  static constexpr __device__ int fragment(int o, int wave_k) { return o * kWavesK + wave_k; }
  // body(o, fragment) for each of them; there may be fewer fragments than waves.
  template <class Body>
  static __device__ __forceinline__ void owned(int wave_k, Body&& body) {
    unroll<kOwned>([&]<int o>() {
      if (const int f = fragment(o, wave_k); f < kFragments) body(o, f);
    });
  }
  // A fragment's other waves leave their sums in LDS: 1 KiB each.
  static constexpr int kLdsBytes = kWavesM * kFragments * (kWavesK - 1) * 1024;
  static_assert(kDepth * kLoads <= 63, "more than vmcnt counts");
  static_assert(kLdsBytes <= 65536 && kWavesK > 1);
};
