// Scales of blocks: of A one for 128 of k of a row, of B one for 128 of k of 128 rows.
#pragma once
#include "gemm_tiles/blocks_registers.h"
#include "gemm_tiles/loads.h"
#include "isa/acc.h"
#include "isa/ordered_blocks.h"

struct BlockScaleOperand {
  uint64_t base;
  int step;  // scales from a row of them to the next one
};

// Those of kTurns steps are loaded at once, to accumulation registers, while those of the steps
// before are in use. Lane l has the scales of A's row l % 32 of each fragment; those of B are the
// same in all lanes: for the gate's rows and for their factors', which are the same if there are
// none.
template <class S>
struct BlockScales {
  using Registers = BlockRegisters<S>;
  static constexpr int kTurns = Registers::kTurns, kOfB = Registers::kScalesOfB;
  static constexpr int kOfA = S::kM, kLoads = kOfA + kOfB;
  static constexpr int kBlock = 128;  // rows and elements of k

  float scale[kLoads][kTurns];
  float product[kOfB];  // of the fragment whose partial sums are added
  uint32_t offset_a[kOfA], offset_b;
  u32x4 buffer_a, buffer_b[kOfB];

  __device__ __forceinline__ void begin(const BlockScaleOperand& a, const BlockScaleOperand& b,
                                        int first_row, int rows, const int (&first_b)[kOfB],
                                        int rows_of_b, int lane, int k) {
    const int blocks = (k + kBlock - 1) / kBlock, last_b = (rows_of_b - 1) / kBlock;
    const int base = first_row < rows ? first_row : rows - 1, left = rows - 1 - base;
    constexpr int kMost = S::kM * S::kFragment - 1;
    const int last = left < kMost ? left : kMost;
    unroll<kOfA>([&]<int m>() {
      const int row = m * S::kFragment + lane % S::kFragment;
      offset_a[m] = 4 * uint32_t(a.step) * uint32_t(row < last ? row : last);
    });
    buffer_a = uniform_descriptor(a.base + 4 * uint64_t(uint32_t(base)) * uint32_t(a.step),
                                  4 * (uint32_t(a.step) * uint32_t(last) + blocks));
    unroll<kOfB>([&]<int i>() {
      const int nth = first_b[i] / kBlock, row = nth < last_b ? nth : last_b;
      buffer_b[i] =
          uniform_descriptor(b.base + 4 * uint64_t(uint32_t(row)) * uint32_t(b.step), 4 * blocks);
    });
    offset_b = 0;
    for (float& one : product) one = 0;
  }
  // Of the next kTurns steps.
  template <int n>
  __device__ __forceinline__ void load() {
    if constexpr (n < kOfA)
      ordered::buffer_load_acc<Registers::scale(n), kTurns>(offset_a[n], buffer_a);
    else
      ordered::buffer_load_acc<Registers::scale(n), kTurns>(offset_b, buffer_b[n - kOfA]);
  }
  // Behind a load.
  template <int n>
  __device__ __forceinline__ void advance() {
    if constexpr (n < kOfA)
      ordered::v_add_u32_constant_to<4 * kTurns>(offset_a[n]);
    else if constexpr (n == kLoads - 1)
      ordered::v_add_u32_constant_to<4 * kTurns>(offset_b);
  }
  // What was loaded is in use from here on.
  template <int n>
  __device__ __forceinline__ void take() {
    unroll<kTurns>([&]<int turn>() {
      ordered::v_accvgpr_read_b32_to<Registers::scale(n) + turn>(scale[n][turn]);
    });
  }
  // Of the mth fragments of a step.
  template <int m, int turn>
  __device__ __forceinline__ void multiply() {
    unroll<kOfB>(
        [&]<int i>() { ordered::v_mul_f32_to(product[i], scale[m][turn], scale[kOfA + i][turn]); });
  }
  // By which the ith of a lane's 16 sums of a fragment is multiplied: half of them are of factors.
  template <int i>
  __device__ __forceinline__ float of_sum() const {
    return product[i / (16 / kOfB)];
  }
};
