// From memory to LDS: a wave's share of the rows of A and B, a step of k at a time.
//
// A load brings 8 rows of 128 bytes; which 16 of them a lane has is as they lie in LDS
// (`swizzle`), where they are written lane by lane.
#pragma once
#include "gemm_tiles/shape.h"
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
  u32x4 buffer_a, buffer_b;
  uint32_t offset_a[S::kLoadsA], offset_b[S::kLoadsB];
  uint32_t write_a, write_b;  // of the lane in LDS, or, direct, of the wave
  int left;                   // elements of k that are not loaded yet
  Stage<S> stage;             // that the next loads go to
  int chunk[2];               // of the lane, of k, in even and odd loads
  uint32_t outside[2];        // what is set in an offset where there are no such elements
  bf16x8 staged[S::kDirect ? 1 : S::kLoads];

  __device__ __forceinline__ void begin(const TileOperand& a, const TileOperand& b, uint32_t lds,
                                        int wave, int lane, int k) {
    left = k;
    const int row = lane / 8;
    for (int odd = 0; odd < 2; ++odd) chunk[odd] = lane % 8 ^ S::swizzle(row + odd * S::kBlockRows);
    const int first_a = wave * S::kLoadsA * S::kBlockRows,
              first_b = wave * S::kLoadsB * S::kBlockRows;
    buffer_a = found(a, first_a, row, offset_a);
    buffer_b = found(b, first_b, row, offset_b);
    write_a = lds + S::kA + first_a * S::kRowBytes + (S::kDirect ? 0 : lane * 16);
    write_b = lds + S::kB + first_b * S::kRowBytes + (S::kDirect ? 0 : lane * 16);
    if constexpr (S::kDirect) {
      write_a = uniform(write_a);
      write_b = uniform(write_b);
    }
  }
  // Rows that do not exist are the last one: what comes of them is not stored.
  template <int kLoads>
  __device__ __forceinline__ u32x4 found(const TileOperand& x, int first, int row,
                                         uint32_t (&offset)[kLoads]) const {
    const int wanted = x.first + first / S::kFragment * x.each();
    const int base = wanted < x.rows ? wanted : x.rows - 1, last = x.rows - 1 - base;
    unroll<kLoads>([&]<int i>() {
      const int own = i * S::kBlockRows + row, in = own % S::kFragment;
      const int nth = own / S::kFragment * x.each() + (in & (x.each() - 1));
      const int further = in < x.each() ? 0 : x.up_offset;
      offset[i] =
          uint32_t((nth < last ? nth : last) + further) * uint32_t(S::Elements::kBytes * x.stride) +
          16 * chunk[i % 2];
    });
    return uniform_descriptor(
        x.base + uint64_t(uint32_t(base)) * uint32_t(S::Elements::kBytes * x.stride), kAllBytes);
  }
  // In front of the loads of a step, even or odd ones: lanes beyond the end of k read 0.
  template <int odd>
  __device__ __forceinline__ void next() {
    ordered::settle_uniform(left);  // not found earlier
    outside[odd] = S::Elements::kOf16Bytes * chunk[odd] < left ? 0 : kOutside;
    ordered::settle(outside[odd]);
  }
  template <int n>
  __device__ __forceinline__ void mask() {
    constexpr int i = n < S::kLoadsA ? n : n - S::kLoadsA;
    if constexpr (n < S::kLoadsA)
      ordered::v_or_b32_to(offset_a[i], outside[i % 2]);
    else
      ordered::v_or_b32_to(offset_b[i], outside[i % 2]);
  }
  // In front of a load, and of another instruction between.
  template <int n>
  __device__ __forceinline__ void prepare() {
    if constexpr (S::kDirect) {
      if constexpr (n < S::kLoadsA)
        ordered::s_add_m0<n * S::kBlockBytes>(write_a);
      else
        ordered::s_add_m0<(n - S::kLoadsA) * S::kBlockBytes>(write_b);
    }
  }
  template <int n>
  __device__ __forceinline__ void load() {
    constexpr bool is_a = n < S::kLoadsA;
    constexpr int i = is_a ? n : n - S::kLoadsA;
    const uint32_t offset = is_a ? offset_a[is_a ? i : 0] : offset_b[is_a ? 0 : i];
    const u32x4 buffer = is_a ? buffer_a : buffer_b;
    if constexpr (S::kDirect) {
      ordered::buffer_load_dwordx4_lds(offset, buffer);
    } else {
      ordered::buffer_load_dwordx4<0>(staged[n], offset, buffer);
    }
  }
  // Behind them: of A to the next step, then of B, and to the next stage.
  template <int nth>
  __device__ __forceinline__ void advance() {
    if constexpr (nth == 0) {
      left -= S::kStep;
      move(buffer_a);
    } else {
      move(buffer_b);
      ordered::settle_uniform(stage.to_next);
      if constexpr (S::kDirect) {
        write_a += stage.to_next;
        write_b += stage.to_next;
        stage.advance();
        ordered::settle_uniform(write_a);
        ordered::settle_uniform(write_b);
      }
    }
  }
  // A load has come: to LDS.
  template <int n>
  __device__ __forceinline__ void store() {
    constexpr bool is_a = n < S::kLoadsA;
    ordered::settle(staged[n]);
    ordered::ds_write_b128<(is_a ? n : n - S::kLoadsA) * S::kBlockBytes>(is_a ? write_a : write_b,
                                                                         staged[n]);
  }

 private:
  static __device__ __forceinline__ void move(u32x4& buffer) {
    ordered::settle_uniform(buffer);
    const uint64_t base = (uint64_t(buffer[1]) << 32 | buffer[0]) + S::kRowBytes;
    buffer[0] = uint32_t(base);
    buffer[1] = uint32_t(base >> 32);
    ordered::settle_uniform(buffer);
  }
};
