// Sizes of one member of the family for many rows, all known at compile time.
#pragma once
#include "arch/limits.h"
#include "gemm_tiles/element.h"
#include "isa/unroll.h"

// A workgroup of four waves, two along m and two along n, or all along m, makes a tile of the
// result. A wave has
// kM x kN fragments of 32 x 32 of it. A step is a cache line of each row, 128 bytes along k; a
// part of it is what the operands of a fragment's matrix instructions are read for at once.
//
// An operand is stored by rows, each of k, or by k: each of its rows of memory is one of k, of all
// rows of the operand.
template <int kM_, int kN_, int kWavesM_, int kStages_, class Elements_, bool kAByK_, bool kBByK_>
struct TileShape {
  using Elements = Elements_;
  static constexpr int kM = kM_, kN = kN_, kFragments = kM * kN;
  static constexpr bool kAByK = kAByK_, kBByK = kBByK_;
  static_assert(!(kAByK || kBByK) || Elements::kBytes == 2);
  static constexpr int kFragment = 32, kWaves = 4, kWavesM = kWavesM_, kWavesN = kWaves / kWavesM;
  static constexpr int kLanes = kWaves * kWaveLanes;
  static constexpr int kRowsM = kWavesM * kM * kFragment, kRowsN = kWavesN * kN * kFragment;
  static constexpr int kRowBytes = 128, kStep = kRowBytes / Elements::kBytes;
  static constexpr int kReadBytes = 32;  // of a row that a read brings: 16 of each of two lanes
  static constexpr int kReadsOfRow = kRowBytes / kReadBytes;
  static constexpr int kParts = kReadsOfRow / Elements::kReads;

  // Where loads go straight to LDS a step is read while the next ones are on their way.
  static constexpr bool kDirect = Here::kTransposesReads;
  // Blocks of a step, 1 KiB each: 8 rows. Each wave has a quarter of those of A and of B, and loads
  // them one by one; but through registers, by k, all of them by loads of 8 rows of k.
  static constexpr int kBlockRows = 8, kBlockBytes = kBlockRows * kRowBytes;
  static constexpr int kBlocksA = kRowsM / kWaves / kBlockRows;
  static constexpr int kBlocksB = kRowsN / kWaves / kBlockRows, kBlocks = kBlocksA + kBlocksB;
  static constexpr int kLoadsA = kAByK && !kDirect ? 8 : kBlocksA;
  static constexpr int kLoadsB = kBByK && !kDirect ? 8 : kBlocksB, kLoads = kLoadsA + kLoadsB;
  // Reads of LDS, of a part of a step: what is read transposed comes in halves.
  static constexpr int kHalvesA = kAByK && kDirect ? 2 : 1;
  static constexpr int kHalvesB = kBByK && kDirect ? 2 : 1;
  static constexpr int kReadsA = kM * kHalvesA * Elements::kReads;
  static constexpr int kReads = kReadsA + kN * kHalvesB * Elements::kReads;
  static constexpr int kStages = kStages_;
  static_assert(kDirect ? kStages > 1 : kStages == 1);
  static constexpr int kA = 0, kB = kRowsM * kRowBytes, kStageBytes = kB + kRowsN * kRowBytes;
  static constexpr int kLdsBytes = kStages * kStageBytes;

  // Matrix instructions of a part, and of a step: the slots that everything else is placed in.
  static constexpr int kPartSlots = kFragments * Elements::kOperands, kSlots = kParts * kPartSlots;
  // Where in the 128 bytes of a row of a step those 16 are that are the first of k: the others are
  // at their number XOR this. Of lanes that are served together no two meet in a bank.
  static constexpr __device__ int swizzle(int row) { return (kDirect ? row / 2 : row) % 8; }
  static constexpr bool kShares = kFragments <= 4;  // the CU with another workgroup
  static constexpr int kLastAcc = 16 * kFragments - 1;
  // Columns of fragments that leave together: lanes share a row of these, so that it is whole
  // lines.
  static constexpr int kTogether = (kN & (kN - 1)) == 0 ? kN : 2;
  static constexpr int kGroups = (kN + kTogether - 1) / kTogether;
  // What is added has code without branches: where it all stays within the instruction cache.
  static constexpr bool kPlainAdds = kGroups == 1 || !Elements::kIs8Bit;
  // Of every second wave the rows of B begin in the middle of a period of the swizzle.
  static constexpr bool kOddB = kDirect && !kBByK && kBlocksB % 2 != 0;
  static_assert(!kDirect || kAByK || kBlocksA % 2 == 0);
  static_assert(kLdsBytes <= kMaxLdsBytes && kLastAcc < 256);
};

// A stage of the LDS, as the bytes from it to the next one: of the last one back to the first.
template <class S>
struct Stage {
  static constexpr int kBack = (1 - S::kStages) * S::kStageBytes;
  int to_next = S::kStages == 1 ? 0 : S::kStageBytes, left = S::kStages - 2;

  __device__ __forceinline__ void advance() {
    if constexpr (S::kStages == 2) {
      to_next = -to_next;
    } else {
      to_next = left == 0 ? kBack : S::kStageBytes;
      left = left == 0 ? S::kStages - 1 : left - 1;
    }
  }
};
