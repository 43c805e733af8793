// Operands of 6 bits: sizes, and the way from memory to LDS and from there to registers.
//
// A step is 128 elements of k, 96 bytes of each row, 6 chunks of 16. Of 32 rows (a fragment) these
// are three loads straight to LDS, 1 KiB each: chunks 0 to 3 of 16 rows, of the other 16, and
// chunks 4 and 5 of all. Lane l reads three chunks of row l % 32, those from 3 (l / 32) on: 64
// elements, one half for each of two matrix instructions, the second chunk for both.
#pragma once
#include "gemm_tiles/loads.h"
#include "gemm_tiles/mx_element.h"

template <int kM_, int kN_, int kWavesM_, class Elements_>
struct SixBitShape : TileShape<kM_, kN_, kWavesM_, 2, Elements_, false, false> {
  using Base = TileShape<kM_, kN_, kWavesM_, 2, Elements_, false, false>;
  static constexpr int kRowBytes = 96, kChunks = 6, kStages = 3;
  static constexpr bool kPlainAdds = false;  // the compiler finds no registers for it
  static constexpr int kLoadBytes = 1024, kLoadsOfFragment = 3;
  static constexpr int kFragmentBytes = kLoadsOfFragment * kLoadBytes;
  // Each wave loads a quarter of the fragments of A and of B.
  static constexpr int kLoadedA = Base::kRowsM / Base::kFragment / Base::kWaves;
  static constexpr int kLoadedB = Base::kRowsN / Base::kFragment / Base::kWaves;
  static constexpr int kLoadsA = kLoadedA * kLoadsOfFragment, kLoadsB = kLoadedB * kLoadsOfFragment;
  static constexpr int kLoads = kLoadsA + kLoadsB;
  static constexpr int kA = 0, kB = Base::kRowsM * kRowBytes;
  static constexpr int kStageBytes = kB + Base::kRowsN * kRowBytes;
  static constexpr int kLdsBytes = kStages * kStageBytes;
  static constexpr int kParts = 2, kPartSlots = Base::kFragments, kSlots = kParts * kPartSlots;
  static_assert(kLoadedA > 0 && kLoadedB > 0 && kLdsBytes <= kMaxLdsBytes);

  // Where in 3 KiB a chunk of a row is. Four lanes that follow each other load the same row, or two
  // of the last load; of 16 lanes that are served together no two meet in a bank.
  static constexpr __device__ int place(int row, int chunk) {
    if (chunk < 4) return row / 16 * kLoadBytes + (row % 16 * 4 + (chunk ^ row / 4 % 4)) * 16;
    return 2 * kLoadBytes + (row * 2 + ((chunk - 4) ^ row / 16)) * 16;
  }
};

// A wave's share of the rows of A and B, a step at a time.
template <class S>
struct SixBitLoads {
  u32x4 buffer_a, buffer_b;
  uint32_t offset_a[S::kLoadsA], offset_b[S::kLoadsB];
  uint32_t write_a, write_b;  // of the wave in LDS
  int left;                   // steps that are not loaded yet
  Stage<S> stage;             // that the next loads go to

  __device__ __forceinline__ void begin(const TileOperand& a, const TileOperand& b, uint32_t lds,
                                        int wave, int lane, int steps) {
    left = uniform(steps);
    buffer_a = found<S::kLoadedA>(a, wave, lane, offset_a);
    buffer_b = found<S::kLoadedB>(b, wave, lane, offset_b);
    write_a = uniform(lds + S::kA + wave * S::kLoadedA * S::kFragmentBytes);
    write_b = uniform(lds + S::kB + wave * S::kLoadedB * S::kFragmentBytes);
  }
  template <int n>
  __device__ __forceinline__ void prepare() {
    if constexpr (n < S::kLoadsA)
      ordered::s_add_m0<n * S::kLoadBytes>(write_a);
    else
      ordered::s_add_m0<(n - S::kLoadsA) * S::kLoadBytes>(write_b);
  }
  template <int n>
  __device__ __forceinline__ void load() {
    if constexpr (n < S::kLoadsA)
      ordered::buffer_load_dwordx4_lds(offset_a[n < S::kLoadsA ? n : 0], buffer_a);
    else
      ordered::buffer_load_dwordx4_lds(offset_b[n < S::kLoadsA ? 0 : n - S::kLoadsA], buffer_b);
  }
  // Behind them: of A to the next step, then of B, and to the next stage. There is nothing behind
  // the last step.
  template <int nth>
  __device__ __forceinline__ void advance() {
    if constexpr (nth == 0) {
      --left;
      move(buffer_a);
    } else {
      move(buffer_b);
      ordered::settle_uniform(stage.to_next);
      write_a += stage.to_next;
      write_b += stage.to_next;
      stage.advance();
      ordered::settle_uniform(write_a);
      ordered::settle_uniform(write_b);
    }
  }

 private:
  __device__ __forceinline__ void move(u32x4& buffer) {
    ordered::settle_uniform(buffer);
    const uint64_t base = (uint64_t(buffer[1]) << 32 | buffer[0]) + S::kRowBytes;
    buffer[0] = uint32_t(base);
    buffer[1] = uint32_t(base >> 32);
    buffer[2] = left > 0 ? kAllBytes : 0;
    ordered::settle_uniform(buffer);
  }
  template <int kCount, int kLoads>
  __device__ __forceinline__ u32x4 found(const TileOperand& x, int wave, int lane,
                                         uint32_t (&offset)[kLoads]) const {
    const int wanted = x.first + wave * kCount * x.each();
    const int base = wanted < x.rows ? wanted : x.rows - 1, last = x.rows - 1 - base;
    unroll<kLoads>([&]<int n>() {
      constexpr int kNth = n % S::kLoadsOfFragment;
      const int in = kNth == 2 ? lane / 2 : kNth * 16 + lane / 4;
      const int chunk = kNth == 2 ? 4 + (lane % 2 ^ in / 16) : lane % 4 ^ in / 4 % 4;
      const int nth = n / S::kLoadsOfFragment * x.each() + (in & (x.each() - 1));
      const int further = in < x.each() ? 0 : x.up_offset;
      offset[n] = uint32_t((nth < last ? nth : last) + further) * uint32_t(x.stride) + 16 * chunk;
    });
    return uniform_descriptor(x.base + uint64_t(uint32_t(base)) * uint32_t(x.stride),
                              left > 0 ? kAllBytes : 0);
  }
};

// What the matrix instructions of a step take of a fragment: the three chunks of a lane, of which
// the second one comes to a place of its own and is copied, one half for each.
struct SixBitOperand {
  using u32x6 = uint32_t __attribute__((ext_vector_type(6)));

  u32x4 first, middle, last;
  u32x2 low, high;

  template <int nth>
  __device__ __forceinline__ void copy() {
    if constexpr (nth == 0)
      ordered::v_mov_b64(low, __builtin_shufflevector(middle, middle, 0, 1));
    else
      ordered::v_mov_b64(high, __builtin_shufflevector(middle, middle, 2, 3));
  }
  template <int nth>
  __device__ __forceinline__ u32x6 whole() const {
    const u32x2 two = nth == 0 ? low : high;
    const u32x4 wide = __builtin_shufflevector(two, two, 0, 1, -1, -1);
    if constexpr (nth == 0)
      return __builtin_shufflevector(first, wide, 0, 1, 2, 3, 4, 5);
    else
      return __builtin_shufflevector(wide, last, 0, 1, 4, 5, 6, 7);
  }
};
