// An operand that is stored by k: which of it a lane loads, and how it lies in LDS.
#pragma once
#include "gemm_tiles/shape.h"
#include "isa/ordered.h"
#include "tile/buffer.h"

// Straight to LDS a block of 1 KiB is 4 of k by 128 rows, of each 32 rows 256 bytes, 64 each of k.
// A read that transposes takes 4 of k of 16 rows: 32 lanes that are served together take these 256
// bytes, each bank once.
//
// Through registers a lane loads 8 of k of the same few rows, and writes 16 bytes of each, which
// lie as those of an operand that is stored by rows. Of 8 lanes that are served together no two
// meet in a bank: they have 8 of the places of a row, or 4, and rows of which the swizzles differ
// by 4.
template <class S, int kRows>
struct ByK {
  static constexpr int kOfBlock = 128, kBlocks = kRows / kOfBlock;
  static constexpr int kFour = kRows * 8;  // bytes from 4 of k to the next ones
  static constexpr int kFragment = 256;    // ... and from 32 rows
  static constexpr int kOfLane = kRows / 32, kWavesOfRows = 8 / kOfLane, kRowsOfWave = 64;

  int row, k;  // of the lane's first load
  __device__ __forceinline__ ByK(int wave, int lane) {
    if constexpr (S::kDirect) {
      row = lane / 16 * 32 + lane % 4 * 8;
      k = wave * 16 + lane / 4 % 4;
    } else {
      row = wave / kWavesOfRows * kRowsOfWave + lane / kOfLane * kOfLane;
      k = (wave % kWavesOfRows * kOfLane + lane % kOfLane) * 8;
    }
  }
  // Of the ith load.
  __device__ __forceinline__ int row_of(int i) const {
    return S::kDirect ? row + i % kBlocks * kOfBlock : row;
  }
  __device__ __forceinline__ int k_of(int i) const {
    return S::kDirect ? k + i / kBlocks * 4 : k + i;
  }
  // In LDS: where the nth of the lane's rows is written; and what a lane reads first.
  __device__ __forceinline__ uint32_t written(int nth) const {
    return row * S::kRowBytes + (k / 8 ^ S::swizzle(row + nth)) * 16;
  }
  static __device__ __forceinline__ uint32_t read(int fragment, int lane) {
    return fragment * kFragment + lane / 32 * 2 * kFour + lane / 16 % 2 * 32 + lane / 4 % 4 * 64 +
           lane % 4 * 8;
  }
};

// How it goes on along k. Its range ends where the matrix does, so that what lies beyond is read as
// 0: rows of memory are not shorter than what is stored of them.
struct AlongK {
  // From a row of memory to the next one; those of the last one from the tile's first on are so
  // many more, which is 0 or less.
  uint32_t k_bytes;
  int more_of_last;

  template <class S>
  __device__ __forceinline__ uint32_t step() const {
    return k_bytes * S::kStep;
  }
  // Bytes of a step of which `left` of k are left, without a branch or a vector instruction.
  template <class S>
  __device__ __forceinline__ uint32_t range(int left) const {
    const int rows = ordered::s_max_i32<0>(ordered::s_min_i32<S::kStep>(left));
    return ordered::s_max_i32<0>(ordered::s_mul_i32(rows, k_bytes) + more_of_last);
  }
};
