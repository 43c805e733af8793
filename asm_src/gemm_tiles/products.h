// Which of a launch's products a workgroup works on: of batches, which are as large as each other,
// or of groups of rows of memory of A, of which only the device knows how many each has: rows of A
// or, where both operands are stored by k, of k; or which part of k of the only one.
#pragma once
#include "gemm_tiles/place.h"
#include "gemm_tiles/shape.h"
#include "tile/scan.h"
// clang-format off
#include "args/gemm_tiles.h"
// clang-format on

// 64 groups, one a lane: where its rows begin, and behind its last one; tiles of m of all up to it.
// Groups have no fewer rows than none, and none behind the last one.
template <class S>
struct RowGroups {
  uint32_t begin, end, tiles, tiles_upto;

  __device__ __forceinline__ RowGroups(const GemmTilesArgs& args, int first, uint32_t before) {
    const int nth = first + Lane::in_wave(), most = S::kAByK && S::kBByK ? args.k : args.m;
    int rows = 0;
    if (nth < args.batches) rows = ((const Global<int32_t>*)args.group_rows)[nth];
    // More than 64 times as many fit no 32 bits: what is behind the last row is behind it.
    const uint32_t some = rows < 0 ? 0 : rows < most ? rows : most;
    const uint32_t high = sum_scanned(int(some >> 16)), low = sum_scanned(int(some & 0xffff));
    const uint64_t all = (uint64_t(high) << 16) + low + before;
    const uint64_t from = all - some;
    end = all < uint32_t(most) ? uint32_t(all) : most;
    begin = from < uint32_t(most) ? uint32_t(from) : most;
    tiles = TilePlace::tiles_m<S>(int(end - begin));
    tiles_upto = sum_scanned(int(tiles));
  }
  static __device__ __forceinline__ uint32_t of_lane(uint32_t x, int lane) {
    return __builtin_amdgcn_readlane(x, lane);
  }
  __device__ __forceinline__ uint32_t all_tiles() const {
    return of_lane(tiles_upto, kWaveLanes - 1);
  }
  __device__ __forceinline__ uint32_t all_rows() const { return of_lane(end, kWaveLanes - 1); }
};

// A product of a launch, and its first row, of A or of k, where groups follow each other.
struct Product {
  int nth = 0, row = 0, row_of_k = 0;
  int tile = 0, part = 0;  // of a product in parts

  // Makes `args` those of it: what the loop needs, and what the end needs, which is asked for
  // early: behind the loop it would be waited for.
  template <class S, bool kParts = false>
  __device__ __forceinline__ void begin(GemmTilesArgs& args) const {
    if (args.batches == 1) return;
    if (kParts && args.batches < 0) {
      const int64_t first = int64_t(part) * args.split_steps * S::kStep;
      args.a += first * (S::kAByK ? args.a_stride : 1) * S::Elements::kBytes;
      args.b += first * (S::kBByK ? args.b_stride : 1) * S::Elements::kBytes;
      const int left = args.k - int(first), most = int(args.split_steps) * S::kStep;
      args.k = uniform(left < most ? left : most);
      return;
    }
    const int row_of_a = S::kAByK ? row_of_k : row;
    args.a += (nth * args.a_batch + row_of_a * int64_t(args.a_stride)) * S::Elements::kBytes;
    args.b += nth * args.b_batch * S::Elements::kBytes;
    if (S::kAByK && S::kBByK) args.b += row_of_k * int64_t(args.b_stride) * S::Elements::kBytes;
  }
  template <class S>
  __device__ __forceinline__ void end(GemmTilesArgs& args) const {
    if (args.batches <= 1) return;  // less than 0: parts
    const int64_t out_bytes = args.out_type == 0 ? 4 : 2;
    args.out += (nth * args.out_batch + row * args.out_stride) * out_bytes;
    args.addend += (nth * args.addend_batch + row * args.addend_stride) * out_bytes;
    const int64_t bias_bytes = S::Elements::kIs8Bit ? out_bytes : 2;
    if (args.bias != 0) args.bias += nth * int64_t(args.bias_batch) * bias_bytes;
    if constexpr (S::Elements::kIs8Bit) {
      if (args.scale_a != 0)
        args.scale_a += (nth * args.scale_a_batch + row * int64_t(args.scale_a_step)) * 4;
      if (args.scale_b != 0) args.scale_b += nth * args.scale_b_batch * 4;
    }
  }
};

// Finds the tile and its product, whose rows `args.m` is then; false: there is none for the
// workgroup.
template <class S, bool kRuns = true, bool kParts = false>
__device__ __forceinline__ bool find_tile(GemmTilesArgs& args, TilePlace& place, Product& of) {
  const bool gated = args.up_offset != 0;
  const uint32_t tiles_n = TilePlace::tiles_n<S>(args.n, gated);
  uint32_t nth, tiles_m = TilePlace::tiles_m<S>(args.m);
  if (args.group_rows == 0) {
    const uint32_t tiles = tiles_m * tiles_n;
    const bool in_parts = kParts && args.batches < 0;
    const uint32_t each = in_parts ? -args.batches : args.batches;
    nth = nth_of_xcds<kRuns>(tiles * each, args.chunk);
    if (each > 1) {
      const uint32_t product = nth / tiles;
      nth -= product * tiles;
      if (in_parts) {
        of.part = uniform(product);
        of.tile = uniform(nth);
      } else {
        of.nth = product;
      }
    }
  } else if constexpr (S::kAByK && S::kBByK) {
    const uint32_t tiles = tiles_m * tiles_n;
    nth = nth_of_xcds<kRuns>(tiles * args.batches, args.chunk);
    of.nth = uniform(nth / tiles);
    nth -= of.nth * tiles;
    uint32_t rows = 0;
    for (int first = 0;; first += kWaveLanes) {
      const RowGroups<S> groups(args, first, rows);
      const int lane = of.nth - first;
      if (lane < kWaveLanes) {
        of.row_of_k = groups.of_lane(groups.begin, lane);
        args.k = groups.of_lane(groups.end, lane) - of.row_of_k;
        break;
      }
      rows = groups.all_rows();
    }
  } else {
    uint32_t all = 0, rows = 0;
    for (int first = 0; first < args.batches; first += kWaveLanes) {
      const RowGroups<S> groups(args, first, rows);
      all += groups.all_tiles();
      rows = groups.all_rows();
    }
    if (__builtin_amdgcn_workgroup_id_x() >= all * tiles_n) return false;
    nth = nth_of_xcds<kRuns>(all * tiles_n, args.chunk);
    uint32_t before = 0;
    rows = 0;
    for (;; of.nth += kWaveLanes) {
      const RowGroups<S> groups(args, of.nth, rows);
      const uint64_t upto =
          __builtin_amdgcn_ballot_w64((before + groups.tiles_upto) * tiles_n <= nth);
      if (upto != ~uint64_t(0)) {
        const int lane = __builtin_popcountll(upto);
        tiles_m = groups.of_lane(groups.tiles, lane);
        nth -= (before + groups.of_lane(groups.tiles_upto, lane) - tiles_m) * tiles_n;
        of.row = groups.of_lane(groups.begin, lane);
        args.m = groups.of_lane(groups.end, lane) - of.row;
        of.nth += lane;
        break;
      }
      before += groups.all_tiles();
      rows = groups.all_rows();
    }
  }
  place = TilePlace::of<S>(nth, tiles_m, tiles_n, gated);
  return true;
}
