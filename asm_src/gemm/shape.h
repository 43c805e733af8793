// Sizes of one member of the decode GEMM family, all known at compile time.
#pragma once
#include "arch/limits.h"
#include "gemm/elements.h"
#include "isa/unroll.h"
#include "tile/operand.h"

inline constexpr int kLine = 64;  // elements of k in a cache line of 128 bytes

// A or B: rows of it, and which one is the tile's first.
struct Operand {
  uint64_t base;
  int stride, rows, first;
};

// How the rows of B of a tile are columns of the result: each is one, or, where the product is
// gated, the first 8 of every 16 are the gate's and the others their factors, which lie `up_offset`
// rows further on in B.
template <int kTile>
struct Rows {
  int up_offset;  // 0: not gated

  __device__ __forceinline__ int each() const {
    return kTile == kMatrix && up_offset ? kTile / 2 : kTile;
  }
  __device__ __forceinline__ int column(int fragment, int row) const {
    return fragment * each() + (row & (each() - 1));
  }
  __device__ __forceinline__ int further(int row) const { return row < each() ? 0 : up_offset; }
};

// A fragment of A or B is what a load brings, 16 bytes a lane: kTile rows, of each 512 / kTile
// elements of k. With fewer rows than 16 a matrix instruction sees the 16 / kTile parts of k as
// rows of their own: of the products of all with all those of the same part count, a block on the
// diagonal each, and are added up at the end.
template <int kTile_, int kTilesM_, int kTilesN_, int kWavesM_, int kWavesK_, int kDepth_,
          class Elements_, bool kNormsRows = false>
struct Shape {
  using Elements = Elements_;
  static constexpr Element kElement = Elements::kResult;  // as which results leave best
  static constexpr int kTile = kTile_;
  static constexpr int kTilesM = kTilesM_, kTilesN = kTilesN_;  // of kTile rows, of a wave
  static constexpr int kPart = 8 * kWaveLanes / kTile;          // of k in a fragment
  static constexpr int kStep = kPart > kLine ? kPart : kLine;   // of k in a step: whole lines
  static constexpr int kParts = kStep / kPart;
  static constexpr int kOperands = Elements::kOperands;  // of a load
  // Waves next to each other along m, and waves that take turns along k.
  static constexpr int kWavesM = kWavesM_, kWavesK = kWavesK_, kWaves = kWavesM * kWavesK;
  static constexpr int kLanes = kWaves * kWaveLanes;
  static constexpr int kDepth = kDepth_;  // steps in flight
  static constexpr int kRowsM = kTile * kTilesM * kWavesM, kRowsN = kTile * kTilesN;

  static constexpr int kLoads = kParts * (kTilesM + kTilesN);  // of a step
  static constexpr int kFragments = kTilesM * kTilesN;  // of kTile x kTile results, of a wave
  // Of products of A by itself, behind the results'.
  static constexpr int kSquares = kNormsRows ? kTilesM : 0;
  // Fragments that each wave along k finishes: o-th of wave w.
  static constexpr int kOwned = (kFragments + kWavesK - 1) / kWavesK;
  static constexpr __device__ int fragment(int o, int wave_k) { return o * kWavesK + wave_k; }
  // body<o>(fragment) for each of them; there may be fewer fragments than waves.
  template <class Body>
  static __device__ __forceinline__ void owned(int wave_k, Body&& body) {
    unroll<kOwned>([&]<int o>() {
      if (const int f = fragment(o, wave_k); f < kFragments) {
        [[clang::always_inline]] body.template operator()<o>(f);
      }
    });
  }
  // A fragment's other waves leave their sums in LDS: 1 KiB each.
  static constexpr int kLdsBytes = kWavesK > 1 ? kWavesM * kFragments * (kWavesK - 1) * 1024 : 16;
  // Of the four neighbours that are a lane's results, in n; whether they are there.
  static __device__ __forceinline__ int neighbours(int lane) { return lane / kMatrix * 4 % kTile; }
  static __device__ __forceinline__ bool has_results(int lane) {
    return kTile == kMatrix || (lane / kMatrix * 4 < kTile && lane % kMatrix < kTile);
  }
  static_assert(kTile == 16 || kTile == 8 || kTile == 4);
  static_assert(kDepth * kLoads <= 63, "more than vmcnt counts");
  static_assert(kLdsBytes <= kMaxLdsBytes);
};
