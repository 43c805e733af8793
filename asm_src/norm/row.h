// The parts of RMS normalisation: where the columns of a lane are, what it holds of a row, sums
// over a row. Sizes are those of the code object that is compiled.
#pragma once
#include "arch/limits.h"
#include "isa/dpp.h"
#include "isa/global.h"
#include "isa/mfma.h"
#include "isa/ordered_memory.h"
#include "isa/valu.h"
#include "isa/wait.h"
#include "tile/operand.h"
#include "tile/round.h"
// clang-format off
#include "args/rms_norm.h"
// clang-format on

inline constexpr Element kElement = Element::ELEMENT;
inline constexpr int kRows = ROWS, kRowLanes = ROW_LANES, kLanes = kRows * kRowLanes;
inline constexpr int kChunk = CHUNK, kSteps = STEPS, kSlices = SLICES, kOwnSteps = kSteps / kSlices;
inline constexpr int kStepColumns = kRowLanes * kChunk, kColumns = kSteps * kStepColumns;
inline constexpr int kRowWaves = kRowLanes > kWaveLanes ? kRowLanes / kWaveLanes : 1;
// Where registers do not suffice for x, residual and weight at once, the weight comes last.
inline constexpr bool kLateWeight = 4 * (2 * kSteps + kOwnSteps) > 512 / MIN_WAVES * 2 / 3;
static_assert(kLanes % kWaveLanes == 0 && kOwnSteps * kSlices == kSteps);
static_assert(kRowLanes == 8 || kRowLanes == 16 || kRowLanes % kWaveLanes == 0);
static_assert(kRowWaves == 1 || kRows == 1);
static_assert(kChunk == 8 || (kChunk == 1 && kSteps == 1));
static_assert(2 * sizeof(float) * kRowWaves <= kMaxLdsBytes);

// Where the chunks of this lane begin, by step; those of this slice first.
class Columns {
 public:
  __device__ __forceinline__ explicit Columns(int count)
      : count_(count),
        of_lane_(Lane::in_workgroup() % kRowLanes * kChunk),
        slice_(kSlices == 1 ? 0 : __builtin_amdgcn_workgroup_id_y()) {}
  // In bytes from the row's first column.
  __device__ __forceinline__ uint32_t bytes(int s) const {
    const uint32_t first = first_of_step(s) + of_lane_, last = count_ - kChunk;
    return 2 * (first < last ? first : last);
  }
  // Whether every lane of the row has a chunk of its own in this step.
  __device__ __forceinline__ bool whole(int s) const {
    return first_of_step(s) + kStepColumns <= count_;
  }
  // How much of the chunk other lanes have as well: kChunk or more is all of it. Found where it is
  // asked for, since it seldom is.
  __device__ __forceinline__ int twice(int s) const {
    int lane = of_lane_;
    ordered::settle(lane);
    const int beyond = first_of_step(s) + lane + kChunk - count_;
    return beyond < 0 ? 0 : beyond;
  }

 private:
  __device__ __forceinline__ int first_of_step(int s) const {
    return (kSlices == 1 ? s : (s + slice_ * kOwnSteps) % kSteps) * kStepColumns;
  }
  int count_, of_lane_, slice_;
};

// A row of an operand.
struct Row {
  uint64_t base;
  uint32_t number;
  int64_t stride;

  __device__ __forceinline__ Global<uint16_t>* at(uint32_t bytes) const {
    return (Global<uint16_t>*)((Global<uint8_t>*)base + 2 * (int64_t(number) * stride) + bytes);
  }
};

// Columns next to each other, in registers as in memory.
struct Chunk {
  static constexpr int kPairs = (kChunk + 1) / 2;
  u32x4 bits;

  static __device__ __forceinline__ Chunk load(const Global<uint16_t>* from) {
    if constexpr (kChunk == 1) return {{*from, 0, 0, 0}};
    return {global_load_dwordx4_anywhere(from)};
  }
  __device__ __forceinline__ void store(const Row& row, const Columns& columns, int s) const {
    auto* to = row.at(columns.bytes(s));
    if (__builtin_expect(columns.whole(s), true)) return store(to);
    const int twice = columns.twice(s);
    if (twice == 0) return store(to);
    for (int i = 1; i < kChunk; ++i)
      if (i >= twice) to[i] = uint16_t(bits[i / 2] >> 16 * (i % 2));
  }
  // In float32.
  __device__ __forceinline__ f32x2 pair(int i) const {
    if constexpr (kElement == Element::kBf16)
      return {float_of<kElement>(bits[i] & 0xffff),
              __builtin_bit_cast(float, bits[i] & 0xffff0000)};
    else
      return {float_of<kElement>(bits[i]), float_of<kElement>(bits[i] >> 16)};
  }
  __device__ __forceinline__ void set_pair(int i, f32x2 x) {
    bits[i] = round_numbers<kElement, Rounding::kNearestEven>(x[0], x[1]);
  }
  __device__ __forceinline__ Chunk operator+(const Chunk& other) const {
    Chunk sum{};
    for (int i = 0; i < kPairs; ++i)
      if constexpr (kElement == Element::kBf16)
        sum.set_pair(i, pair(i) + other.pair(i));
      else
        sum.bits[i] =
            __builtin_bit_cast(uint32_t, __builtin_bit_cast(f16x2, uint32_t(bits[i])) +
                                             __builtin_bit_cast(f16x2, uint32_t(other.bits[i])));
    return sum;
  }
  __device__ __forceinline__ Chunk scaled(float scale, const Chunk& weight) const {
    Chunk y;
    for (int i = 0; i < kPairs; ++i) y.set_pair(i, pair(i) * scale * weight.pair(i));
    return y;
  }
  // 0 in place of the first `count` elements.
  __device__ __forceinline__ Chunk without(int count) const {
    Chunk rest{};
    for (int i = 0; i < kPairs; ++i) {
      const uint32_t kept = count <= 2 * i ? bits[i] : bits[i] & 0xffff0000;
      rest.bits[i] = count > 2 * i + 1 ? 0 : kept;
    }
    return rest;
  }

 private:
  __device__ __forceinline__ void store(Global<uint16_t>* to) const {
    if constexpr (kChunk == 1)
      *to = uint16_t(bits[0]);
    else
      global_store_dwordx4_anywhere(to, bits);
  }
};

template <int kCount>
__device__ __forceinline__ void load(Chunk (&chunks)[kCount], const Row& row,
                                     const Columns& columns) {
  for (int s = 0; s < kCount; ++s) chunks[s] = Chunk::load(row.at(columns.bytes(s)));
}

// Products of rows of 4 elements by themselves: the squares' sums lie on the diagonals.
class SumOfSquares {
 public:
  __device__ __forceinline__ void add(const Chunk& x, const Columns& columns, int s) {
    Chunk once = x;
    if (!__builtin_expect(columns.whole(s), true)) once = x.without(columns.twice(s));
    for (int half = 0; half < (kChunk == 1 ? 1 : 2); ++half) {
      const bf16x4 four = half_of(once.bits, half);
      if constexpr (kElement == Element::kBf16)
        products_ = v_mfma_f32_4x4x4_16b_bf16(four, four, products_);
      else
        products_ = v_mfma_f32_4x4x4_16b_f16(__builtin_bit_cast(f16x4, four),
                                             __builtin_bit_cast(f16x4, four), products_);
    }
  }
  // Over each 4 lanes.
  __device__ __forceinline__ float of_quad() const {
    return (v_mov_b32_dpp<kQuad<0, 0, 0, 0>>(products_[0]) +
            v_mov_b32_dpp<kQuad<1, 1, 1, 1>>(products_[1])) +
           (v_mov_b32_dpp<kQuad<2, 2, 2, 2>>(products_[2]) +
            v_mov_b32_dpp<kQuad<3, 3, 3, 3>>(products_[3]));
  }

 private:
  f32x4 products_ = {0, 0, 0, 0};
};

// Over the lanes of a row, of what each 4 have. Waves of one row leave theirs in LDS: a place that
// is not written again before all have met once more.
__device__ __forceinline__ float sum_of_row(float of_quad, Local<float>* of_waves) {
  float x = of_quad + v_mov_b32_dpp<kRowHalfMirror>(of_quad);
  if constexpr (kRowLanes >= 16) x += v_mov_b32_dpp<kRowMirror>(x);
  if constexpr (kRowLanes >= kWaveLanes)
    x = (v_readlane_b32(x, 0) + v_readlane_b32(x, 16)) +
        (v_readlane_b32(x, 32) + v_readlane_b32(x, 48));
  if constexpr (kRowWaves == 1) return x;
  of_waves[Lane::wave()] = x;
  s_barrier();
  float sum = 0;
  for (int i = 0; i < kRowWaves; ++i) sum += of_waves[i];
  return sum;
}

// 1 / sqrt(x) within 1 ULP, of denormal numbers, too.
__device__ __forceinline__ float inverse_root(float x) {
  const bool small = x < 0x1p-96f;
  return v_rsq_f32(small ? x * 0x1p96f : x) * (small ? 0x1p48f : 1.0f);
}

// The arguments that no SGPR holds at the start: loaded there, and waited for when a row is there.
class Outputs {
 public:
  __device__ __forceinline__ void load() {
    ordered::s_load_dwordx8<__builtin_offsetof(RmsNormArgs, out)>(
        dwords_, (uint64_t)__builtin_amdgcn_kernarg_segment_ptr());
  }
  __device__ __forceinline__ void wait() {
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    ordered::settle_uniform(dwords_);
  }
  __device__ __forceinline__ Row out(uint32_t row) const { return {at(0), row, int64_t(at(2))}; }
  __device__ __forceinline__ Row sum(uint32_t row) const { return {at(1), row, int64_t(at(3))}; }

 private:
  static_assert(__builtin_offsetof(RmsNormArgs, out) == 56 && sizeof(RmsNormArgs) == 56 + 32);
  __device__ __forceinline__ uint64_t at(int i) const {
    return dwords_[2 * i] | uint64_t(dwords_[2 * i + 1]) << 32;
  }
  u32x8 dwords_;
};
