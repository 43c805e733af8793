// From memory to LDS: a wave's share of the rows of A and B, a step of k at a time.
//
// A load brings 8 rows of 128 bytes; which 16 of them a lane has is as they lie in LDS
// (`swizzle`), where they are written lane by lane. Of operands that are stored by k: by_k.h.
#pragma once
#include "gemm_tiles/by_k.h"
#include "isa/ordered_memory.h"
#include "isa/ordered_or.h"
#include "isa/uniform.h"
#include "tile/buffer.h"

// A or B. Of each fragment of B, gated, the first half is rows of the gate and the other one those
// `up_offset` further on, their factors.
struct TileOperand {
  uint64_t base;
  int stride, rows, first;  // rows of A or of the gate; the first one of the tile
  int up_offset;

  __device__ __forceinline__ int each() const { return up_offset ? 16 : 32; }  // of a fragment
};

template <class S>
struct TileLoads {
  using AByK = ByK<S, S::kRowsM>;
  using BByK = ByK<S, S::kRowsN>;
  static constexpr bool kTurnsA = S::kAByK && !S::kDirect, kTurnsB = S::kBByK && !S::kDirect;
  static constexpr bool kByRows = !S::kAByK || !S::kBByK;  // of either
  // What a load brings through registers.
  template <bool kTurns, int kOfLane>
  using Brought = uint32_t __attribute__((ext_vector_type(kTurns ? kOfLane / 2 : 4)));

  u32x4 buffer_a, buffer_b;
  uint32_t offset_a[S::kLoadsA], offset_b[S::kLoadsB];
  // Of the lane in LDS, or, direct, of the wave.
  uint32_t write_a[kTurnsA ? AByK::kOfLane : 1], write_b[kTurnsB ? BByK::kOfLane : 1];
  int left;             // elements of k that are not loaded yet
  Stage<S> stage;       // that the next loads go to
  int chunk[2];         // of the lane, of k, in even and odd loads
  uint32_t outside[2];  // what is set in an offset where there are no such elements
  uint32_t outside_b[S::kOddB ? 2 : 1];  // that of B, where `chunk` is by wave
  bool swaps_b = false;
  AlongK along_a, along_b;  // by k
  Brought<kTurnsA, AByK::kOfLane> staged_a[S::kDirect ? 1 : S::kLoadsA];
  Brought<kTurnsB, BByK::kOfLane> staged_b[S::kDirect ? 1 : S::kLoadsB];

  __device__ __forceinline__ void begin(const TileOperand& a, const TileOperand& b, uint32_t lds,
                                        int wave, int lane, int k) {
    left = k;
    const int row = lane / 8;
    for (int odd = 0; odd < 2; ++odd) chunk[odd] = lane % 8 ^ S::swizzle(row + odd * S::kBlockRows);
    const int first_a = wave * S::kBlocksA * S::kBlockRows,
              first_b = wave * S::kBlocksB * S::kBlockRows;
    if constexpr (S::kAByK)
      buffer_a = found_by_k(a, AByK(wave, lane), along_a, offset_a);
    else
      buffer_a = found(a, first_a, row, chunk, offset_a);
    if constexpr (S::kBByK)
      buffer_b = found_by_k(b, BByK(wave, lane), along_b, offset_b);
    else if constexpr (S::kOddB) {
      swaps_b = uniform(wave) % 2 != 0;
      const int chunk_b[2] = {swaps_b ? chunk[1] : chunk[0], swaps_b ? chunk[0] : chunk[1]};
      buffer_b = found(b, first_b, row, chunk_b, offset_b);
    } else
      buffer_b = found(b, first_b, row, chunk, offset_b);
    if constexpr (kTurnsA)
      unroll<AByK::kOfLane>(
          [&]<int i>() { write_a[i] = lds + S::kA + AByK(wave, lane).written(i); });
    else
      write_a[0] = lds + S::kA + first_a * S::kRowBytes + (S::kDirect ? 0 : lane * 16);
    if constexpr (kTurnsB)
      unroll<BByK::kOfLane>(
          [&]<int i>() { write_b[i] = lds + S::kB + BByK(wave, lane).written(i); });
    else
      write_b[0] = lds + S::kB + first_b * S::kRowBytes + (S::kDirect ? 0 : lane * 16);
    if constexpr (S::kDirect) {
      write_a[0] = uniform(write_a[0]);
      write_b[0] = uniform(write_b[0]);
    }
  }
  // Rows that do not exist are the last one: what comes of them is not stored.
  template <int kLoads>
  __device__ __forceinline__ u32x4 found(const TileOperand& x, int first, int row,
                                         const int (&chunk)[2], uint32_t (&offset)[kLoads]) const {
    const int wanted = x.first + first / S::kFragment * x.each();  // whole fragments
    const int base = wanted < x.rows ? wanted : x.rows - 1, last = x.rows - 1 - base;
    unroll<kLoads>([&]<int i>() {
      const int own = first % S::kFragment + i * S::kBlockRows + row, in = own % S::kFragment;
      const int nth = own / S::kFragment * x.each() + (in & (x.each() - 1));
      const int further = in < x.each() ? 0 : x.up_offset;
      offset[i] =
          uint32_t((nth < last ? nth : last) + further) * uint32_t(S::Elements::kBytes * x.stride) +
          16 * chunk[i % 2];
    });
    return uniform_descriptor(
        x.base + uint64_t(uint32_t(base)) * uint32_t(S::Elements::kBytes * x.stride), kAllBytes);
  }
  // Where k is 1 rows of memory have no distance: then the next one is beyond any end.
  template <class Own, int kLoads>
  __device__ __forceinline__ u32x4 found_by_k(const TileOperand& x, const Own& own, AlongK& along,
                                              uint32_t (&offset)[kLoads]) const {
    along.k_bytes = left > 1 ? 2 * x.stride : kMostBytesOfK;
    along.more_of_last = 2 * (x.rows + x.up_offset - x.first) - int(along.k_bytes);
    unroll<kLoads>([&]<int i>() {
      const int at = own.row_of(i), in = at % S::kFragment;
      const int nth = at / S::kFragment * x.each() + (in & (x.each() - 1));
      const int further = in < x.each() ? 0 : x.up_offset;
      offset[i] =
          x.first + nth < x.rows ? own.k_of(i) * along.k_bytes + 2 * (nth + further) : kOutside;
    });
    return uniform_descriptor(x.base + 2 * uint64_t(uint32_t(x.first)), 0);
  }
  // In front of the loads of a step, even or odd ones, or of A and of B: lanes beyond the end of k
  // read 0.
  template <int odd>
  __device__ __forceinline__ void next() {
    ordered::settle_uniform(left);  // not found earlier
    if constexpr (kByRows) {
      outside[odd] = S::Elements::kOf16Bytes * chunk[odd] < left ? 0 : kOutside;
      ordered::settle(outside[odd]);
    }
    if constexpr (odd == 0 && S::kAByK) end(buffer_a, along_a);
    if constexpr (odd == 1 && S::kBByK) end(buffer_b, along_b);
    if constexpr (odd == 1 && S::kOddB)
      unroll<2>([&]<int i>() {
        outside_b[i] = swaps_b ? outside[1 - i] : outside[i];
        ordered::settle(outside_b[i]);
      });
  }
  template <int n>
  __device__ __forceinline__ void mask() {
    if constexpr (n < S::kLoadsA ? S::kAByK : S::kBByK) return;
    constexpr int i = n < S::kLoadsA ? n : n - S::kLoadsA;
    if constexpr (n < S::kLoadsA)
      ordered::v_or_b32_to(offset_a[i], outside[i % 2]);
    else if constexpr (S::kOddB)
      ordered::v_or_b32_to(offset_b[i], outside_b[i % 2]);
    else
      ordered::v_or_b32_to(offset_b[i], outside[i % 2]);
  }
  // In front of a load, and of another instruction between.
  template <int n>
  __device__ __forceinline__ void prepare() {
    if constexpr (S::kDirect) {
      if constexpr (n < S::kLoadsA)
        ordered::s_add_m0<n * S::kBlockBytes>(write_a[0]);
      else
        ordered::s_add_m0<(n - S::kLoadsA) * S::kBlockBytes>(write_b[0]);
    }
  }
  template <int n>
  __device__ __forceinline__ void load() {
    constexpr bool is_a = n < S::kLoadsA;
    constexpr int i = is_a ? n : n - S::kLoadsA;
    const uint32_t offset = is_a ? offset_a[is_a ? i : 0] : offset_b[is_a ? 0 : i];
    const u32x4 buffer = is_a ? buffer_a : buffer_b;
    if constexpr (S::kDirect)
      ordered::buffer_load_dwordx4_lds(offset, buffer);
    else if constexpr (is_a)
      bring(staged_a[i], offset, buffer);
    else
      bring(staged_b[i], offset, buffer);
  }
  // Behind them: of A to the next step, then of B, and to the next stage.
  template <int nth>
  __device__ __forceinline__ void advance() {
    if constexpr (nth == 0) {
      left -= S::kStep;
      move(buffer_a, S::kAByK ? along_a.template step<S>() : S::kRowBytes);
    } else {
      move(buffer_b, S::kBByK ? along_b.template step<S>() : S::kRowBytes);
      ordered::settle_uniform(stage.to_next);
      if constexpr (S::kDirect) {
        write_a[0] += stage.to_next;
        write_b[0] += stage.to_next;
        stage.advance();
        ordered::settle_uniform(write_a[0]);
        ordered::settle_uniform(write_b[0]);
      }
    }
  }
  // Loads that have to have come for a block of LDS.
  static constexpr int needed(int n) {
    if (n < S::kBlocksA) return kTurnsA ? S::kLoadsA : n + 1;
    return kTurnsB ? S::kLoads : S::kLoadsA + n - S::kBlocksA + 1;
  }
  // They have: to LDS.
  template <int n>
  __device__ __forceinline__ void store() {
    if constexpr (n < S::kBlocksA)
      store_of<kTurnsA, n>(staged_a, write_a);
    else
      store_of<kTurnsB, n - S::kBlocksA>(staged_b, write_b);
  }

 protected:
  static __device__ __forceinline__ void move(u32x4& buffer, uint32_t bytes) {
    ordered::settle_uniform(buffer);
    const uint64_t base = (uint64_t(buffer[1]) << 32 | buffer[0]) + bytes;
    buffer[0] = uint32_t(base);
    buffer[1] = uint32_t(base >> 32);
    ordered::settle_uniform(buffer);
  }

 private:
  static constexpr uint32_t kMostBytesOfK = 1 << 25;
  template <bool kTurns, int i, class Staged, class Writes>
  static __device__ __forceinline__ void store_of(Staged& staged, const Writes& write) {
    if constexpr (kTurns) {
      if constexpr (i == 0)
        for (auto& x : staged) ordered::settle(x);
      u32x4 of_row;
      constexpr uint32_t kHalf = i % 2 ? 0x07060302 : 0x05040100;
      unroll<4>([&]<int p>() {
        of_row[p] = ordered::v_perm_b32(staged[2 * p + 1][i / 2], staged[2 * p][i / 2], kHalf);
      });
      ordered::ds_write_b128<i * S::kRowBytes>(write[i], of_row);
    } else {
      ordered::settle(staged[i]);
      ordered::ds_write_b128<i * S::kBlockBytes>(write[0], staged[i]);
    }
  }
  static __device__ __forceinline__ void bring(bf16x8& to, uint32_t offset, u32x4 buffer) {
    ordered::buffer_load_dwordx4<0>(to, offset, buffer);
  }
  static __device__ __forceinline__ void bring(bf16x4& to, uint32_t offset, u32x4 buffer) {
    ordered::buffer_load_dwordx2(to, offset, buffer);
  }
  __device__ __forceinline__ void end(u32x4& buffer, const AlongK& along) const {
    ordered::settle_uniform(buffer);
    buffer[2] = along.range<S>(left);
    ordered::settle_uniform(buffer);
  }
};

// Where a lane reads of LDS what is stored by rows: each read of a row, of a wave's first fragment.
template <class S>
__device__ __forceinline__ void find_reads(uint32_t (&read_a)[S::kReadsOfRow],
                                           uint32_t (&read_b)[S::kReadsOfRow], uint32_t lds,
                                           int wave, int lane) {
  const int row = lane % S::kFragment, group = lane / S::kFragment;
  const uint32_t in_row = (group ^ S::swizzle(row)) * 16;
  const uint32_t of_wave_m = wave / S::kWavesN * S::kM * S::kFragment;
  const uint32_t of_wave_n = wave % S::kWavesN * S::kN * S::kFragment;
  for (int j = 0; j < S::kReadsOfRow; ++j) {
    read_a[j] = lds + S::kA + (of_wave_m + row) * S::kRowBytes + (in_row ^ S::kReadBytes * j);
    read_b[j] = lds + S::kB + (of_wave_n + row) * S::kRowBytes + (in_row ^ S::kReadBytes * j);
  }
}
