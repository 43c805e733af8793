// The main loop: a wave's own rows of A and B, its own steps of k, straight from memory to
// registers. kDepth steps are in flight; the wait for one leaves the others under way.
#pragma once
#include "gemm/shape.h"
#include "isa/ordered_memory.h"
#include "tile/accumulators.h"
#include "tile/buffer.h"

template <class S>
struct Mainloop {
  // Elements of k, and of strides, are counted by so many: of 8 bits two are one here.
  static constexpr int kUnit = 2 / S::Elements::kBytes;
  // Lane l holds 8 elements of k from 8 * (l / kTile) on, of row l % kTile of a tile, of each part
  // of a step.
  bf16x8 a[S::kDepth][S::kTilesM][S::kParts], b[S::kDepth][S::kTilesN][S::kParts];
  // Of fragment f lane l has n = 4 * (l / 16) + 0..3 of m = l % 16, both modulo kTile.
  using Sums = Accumulators<0, S::kFragments + S::kSquares>;
  template <int f>
  static __device__ __forceinline__ f32x4 fragment() {
    return Sums::template read<f>();
  }

  u32x4 buffer_a, buffer_b;
  uint32_t offset_a[S::kTilesM], offset_b[S::kTilesN];
  int left;  // steps to load
  // Bytes from a step to the next one. An instruction reaches kWindow steps from the offsets on,
  // without a scalar offset, which would count in the range check (tile/buffer.h); then they are
  // moved.
  static constexpr int kApart = 2 * S::kStep * S::kWavesK;
  static constexpr int kWindow = (4096 - 64 * (S::kParts - 1)) / kApart;

  __device__ __forceinline__ u32x4 from_first(const Operand& x) const {
    return uniform_descriptor(x.base + uint64_t(uint32_t(x.first)) * uint32_t(2 * x.stride),
                              left > 0 ? kAllBytes : 0);
  }
  // `further` on from a row of the tile, or from the matrix's last one.
  static __device__ __forceinline__ uint32_t offset(const Operand& x, int row, int further,
                                                    uint32_t of_k) {
    const int last = x.rows - 1 - x.first;
    return ((row < last ? row : last) + further) * uint32_t(2 * x.stride) + of_k;
  }

  // The loads of the first kDepth of `steps` from line `begin` on, every kWavesK-th. The last one,
  // which the end of k may cut, comes earlier: behind the first kDepth - 1. No steps: sums are 0.
  // Rows that do not exist are the last one: their results are not stored.
  template <class Between>
  __device__ __forceinline__ void start(const Operand& of_a, const Operand& of_b,
                                        Rows<S::kTile> rows, int wave_m, int row, int group,
                                        int begin, int steps, int k, Between&& between) {
    static_assert(S::kDepth > 1);
    left = steps - 1;
    const uint32_t of_k = group * 16 + 2 * S::kStep * begin;
    buffer_b = from_first(of_b);
    unroll<S::kTilesN>([&]<int t>() {
      offset_b[t] = offset(of_b, rows.column(t, row), rows.further(row), of_k);
      load_b<0, 0, t>();
    });
    __builtin_amdgcn_sched_barrier(0);  // nothing else is found before
    between();
    buffer_a = from_first(of_a);
    unroll<S::kTilesM>([&]<int t>() {
      offset_a[t] = offset(of_a, (wave_m * S::kTilesM + t) * S::kTile + row, 0, of_k);
      load_a<0, 0, t>();
    });
    advance();
    unroll_from<1, S::kDepth - 1>([&]<int slot>() {
      if constexpr (slot % kWindow == 0) move<kWindow>();
      load<slot, slot % kWindow>();
    });
    constexpr int kMoved = (S::kDepth - 2) / kWindow * kWindow;
    const int last = steps > 0 ? (steps - 1) * S::kWavesK : 0;  // step, from `begin` on
    load_last<S::kDepth - 1>(2 * S::kStep * last - kMoved * kApart,
                             steps > 0 ? k - S::kStep * (begin + last) : 0, group);
    move<S::kDepth - 1 - kMoved>();
    Sums::zero();
  }

  // The halves of a line one after the other: the second one finds in the L1 what the first
  // fetched.
  template <int kSlot, int kSteps, int t>
  __device__ __forceinline__ void load_a() {
    unroll<S::kParts>([&]<int p>() {
      ordered::buffer_load_dwordx4<kSteps * kApart + 64 * p>(a[kSlot][t][p], offset_a[t], buffer_a);
    });
  }
  template <int kSlot, int kSteps, int t>
  __device__ __forceinline__ void load_b() {
    unroll<S::kParts>([&]<int p>() {
      ordered::buffer_load_dwordx4<kSteps * kApart + 64 * p>(b[kSlot][t][p], offset_b[t], buffer_b);
    });
  }
  template <int kSlot, int kSteps>
  __device__ __forceinline__ void load() {
    unroll<S::kTilesN>([&]<int t>() { load_b<kSlot, kSteps, t>(); });
    unroll<S::kTilesM>([&]<int t>() { load_a<kSlot, kSteps, t>(); });
    advance();
  }
  // Steps behind the last one read as 0: the loop has no other end than that of a round.
  __device__ __forceinline__ void advance() {
    --left;
    buffer_a[2] = buffer_b[2] = left > 0 ? kAllBytes : 0;
  }
  template <int kSteps>
  __device__ __forceinline__ void move() {
    for (auto& offset : offset_b) offset += kSteps * kApart;
    for (auto& offset : offset_a) offset += kSteps * kApart;
    for (auto& offset : offset_b) ordered::settle(offset);
    for (auto& offset : offset_a) ordered::settle(offset);
  }

  // Lanes beyond the end of k read 0.
  template <int kSlot>
  __device__ __forceinline__ void load_last(uint32_t at, int elements, int group) {
    const auto load_tiles = [&]<int kTiles>(bf16x8(&x)[kTiles][S::kParts],
                                            const uint32_t (&offset)[kTiles], u32x4 buffer) {
      buffer[2] = kAllBytes;
      uint32_t from[kTiles][S::kParts];
      unroll<kTiles>([&]<int t>() {
        unroll<S::kParts>([&]<int p>() {
          const bool there = S::kPart * p + 8 * group < elements;
          from[t][p] = there ? offset[t] + at : kOutside;
          ordered::settle(from[t][p]);
        });
      });
      unroll<kTiles>([&]<int t>() {
        unroll<S::kParts>(
            [&]<int p>() { ordered::buffer_load_dwordx4<64 * p>(x[t][p], from[t][p], buffer); });
      });
      for (const auto& parts : from)
        for (const uint32_t part : parts) ordered::keep(part);
      ordered::end_clause();
    };
    [[clang::always_inline]] load_tiles(b[kSlot], offset_b, buffer_b);
    [[clang::always_inline]] load_tiles(a[kSlot], offset_a, buffer_a);
  }

  template <int kSlot, int q, int m, int n>
  __device__ __forceinline__ void multiply() {
    constexpr int kPart = q / S::kOperands, kNth = q % S::kOperands;
    S::Elements::template mma_into_acc<Sums::template kRegister<m * S::kTilesN + n>>(
        operand_of<S::kOperands>(b[kSlot][n][kPart], kNth),
        operand_of<S::kOperands>(a[kSlot][m][kPart], kNth));
  }
  template <int kSlot, int q, int m>
  __device__ __forceinline__ void square() {
    const auto x = operand_of<S::kOperands>(a[kSlot][m][q / S::kOperands], q % S::kOperands);
    S::Elements::template mma_into_acc<Sums::template kRegister<S::kFragments + m>>(x, x);
  }
  // A step: waits until all but kLater steps' loads are done; kLoads: each register is loaded again
  // behind its last use.
  template <int kSlot, int kLater, bool kLoads>
  __device__ __forceinline__ void step() {
    ordered::s_waitcnt<kLater * S::kLoads, ordered::kAnyLgkm>();
    constexpr int kLast = S::kOperands * S::kParts - 1, kSteps = kSlot % kWindow;
    unroll<kLast + 1>([&]<int q>() {
      unroll<S::kTilesM>([&]<int m>() {
        unroll<S::kTilesN>([&]<int n>() {
          multiply<kSlot, q, m, n>();
          if constexpr (kLoads && q == kLast && m == S::kTilesM - 1) load_b<kSlot, kSteps, n>();
        });
        if constexpr (S::kSquares > 0) square<kSlot, q, m>();
        if constexpr (kLoads && q == kLast) load_a<kSlot, kSteps, m>();
      });
    });
    if constexpr (kLoads) {
      advance();
      if constexpr (kSlot == S::kDepth - 1)
        move<kSteps + 1>();
      else if constexpr (kSteps == kWindow - 1)
        move<kWindow>();
    }
  }

  __device__ __forceinline__ void run(int steps) {
    const bool is_one_round = steps <= S::kDepth;  // then the last step is in the last slot
    for (; steps > S::kDepth; steps -= S::kDepth)
      unroll<S::kDepth>([&]<int slot>() { step<slot, S::kDepth - 1, true>(); });
    last_round<0>(is_one_round ? S::kDepth : steps);
    ordered::s_nop<8>();
  }
  template <int kSlot>
  __device__ __forceinline__ void last_round(int slots) {
    step<kSlot, S::kDepth - 1 - kSlot, false>();
    if constexpr (kSlot + 1 < S::kDepth)
      if (__builtin_expect(kSlot + 1 < slots, true)) last_round<kSlot + 1>(slots);
  }
};
