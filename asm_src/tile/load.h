// Global memory -> registers, and for the tiles of K and V on to LDS.
#pragma once
#include "isa/global.h"
#include "isa/valu.h"
#include "tile/lds_tile.h"

// Rows of bf16 in global memory, at least one. Rows at num_rows and beyond are never touched.
struct RowSource {
  const Global<uint16_t>* base;
  int64_t stride;  // elements
  int num_rows;
};

// One lane's walk over the rows of a source. Rows that do not exist read as 0.
struct RowCursor {
  const Global<uint16_t>* address;   // the lane's columns of its next row
  const Global<uint16_t>* fallback;  // some row that exists
  int64_t stride;                    // elements
  int num_rows;                      // from the lane's next row on; 0 or negative: none

  __device__ __forceinline__ RowCursor(const RowSource& source, int row, int col)
      : address(source.base + row * source.stride + col),
        fallback(source.base),
        stride(source.stride),
        num_rows(source.num_rows - row) {}

  // Every kStep-th row, kCount of them, when all exist.
  template <int kStep, int kCount, class Vec, class Load>
  __device__ __forceinline__ void load_all(Vec (&rows)[kCount], Load load_row) const {
    for (int i = 0; i < kCount; ++i) rows[i] = load_row(address + i * (kStep * stride));
  }
  // The same when some may not. No branch on the lane: with one here, the compiler would wait for
  // the loads in flight in load_all as well.
  template <int kStep, int kCount, class Vec, class Load>
  __device__ __forceinline__ void load_some(Vec (&rows)[kCount], Load load_row) const {
    for (int i = 0; i < kCount; ++i) {
      const bool exists = i * kStep < num_rows;
      const Vec row = load_row(exists ? address + i * (kStep * stride) : fallback);
      rows[i] = exists ? row : Vec{};
    }
  }
  __device__ __forceinline__ void advance(int rows) {
    address += rows * stride;
    num_rows -= rows;
  }
};

// A tile on its way to LDS, spread over the registers of a workgroup; rows stay rows.
template <class Tile, int kLanes>
struct RowStage {
  static constexpr int kLanesPerRow = Tile::kCols / kOctet;
  static constexpr int kRowsPerLoad = kLanes / kLanesPerRow;
  static constexpr int kNumLoads = Tile::kRows / kRowsPerLoad;
  static_assert(kNumLoads * kRowsPerLoad == Tile::kRows);

  RowCursor cursor;
  u32x4 octets[kNumLoads];

  __device__ __forceinline__ explicit RowStage(const RowSource& source)
      : cursor(source, row(), octet() * kOctet) {}
  static __device__ __forceinline__ int row() { return Lane::in_workgroup() / kLanesPerRow; }
  static __device__ __forceinline__ int octet() { return Lane::in_workgroup() % kLanesPerRow; }

  // The next tile; num_rows (uniform) are left in the source.
  __device__ __forceinline__ void load(int num_rows) {
    if (num_rows >= Tile::kRows)
      cursor.load_all<kRowsPerLoad>(octets, global_load_dwordx4);
    else
      cursor.load_some<kRowsPerLoad>(octets, global_load_dwordx4);
    cursor.advance(Tile::kRows);
  }
  __device__ __forceinline__ void store(Tile tile) const {
    for (int i = 0; i < kNumLoads; ++i) tile.write(row() + i * kRowsPerLoad, octet(), octets[i]);
  }
};

// The same for a tile that is transposed on the way: rows of the source become the contraction. A
// lane takes 8 rows x 4 columns, so that each column leaves as one octet.
template <class Tile, int kLanes>
struct TransposeStage {
  static constexpr int kLaneCols = 4;
  static constexpr int kLanesPerRow = Tile::kRows / kLaneCols;
  static constexpr int kNumLoads = kOctet;
  static_assert(kLanes / kLanesPerRow * kOctet == Tile::kCols);

  RowCursor cursor;
  u32x2 rows[kNumLoads];

  __device__ __forceinline__ explicit TransposeStage(const RowSource& source)
      : cursor(source, octet() * kOctet, col()) {}

  static __device__ __forceinline__ int octet() { return Lane::in_workgroup() / kLanesPerRow; }
  static __device__ __forceinline__ int col() {
    return Lane::in_workgroup() % kLanesPerRow * kLaneCols;
  }

  __device__ __forceinline__ void load(int num_rows) {
    if (num_rows >= Tile::kCols)
      cursor.load_all<1>(rows, global_load_dwordx2);
    else
      cursor.load_some<1>(rows, global_load_dwordx2);
    cursor.advance(Tile::kCols);
  }
  __device__ __forceinline__ void store(Tile tile) const {
    for (int pair = 0; pair < kLaneCols / 2; ++pair) {
      u32x4 even, odd;
      for (int i = 0; i < 4; ++i) {
        const uint32_t first = rows[2 * i][pair], second = rows[2 * i + 1][pair];
        even[i] = v_perm_b32<0x05040100>(second, first);
        odd[i] = v_perm_b32<0x07060302>(second, first);
      }
      tile.write(col() + 2 * pair, octet(), even);
      tile.write(col() + 2 * pair + 1, octet(), odd);
    }
  }
};
