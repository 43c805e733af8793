// The main loop: every instruction where it is written, LDS and memory between matrix instructions.
#pragma once
#include "gemm_tiles/loads.h"
#include "gemm_tiles/order.h"
#include "isa/ordered_lanes.h"

template <class S>
struct TileLoop {
  using Order = TileOrder<S>;
  // Lane l has row l % 32 of a fragment, of a read's 32 bytes 16 from 16 (l / 32) on. Of a fragment
  // of the result lane l has m = l % 32, n = 8 i + 4 (l / 32) + 0..3 in registers 4 i .. 4 i + 3.
  using Elements = S::Elements;
  Elements::Operand a[Order::kSets][S::kM], b[Order::kSets][S::kN];
  // Of each read of a row; of what is read transposed one of all.
  static constexpr bool kOneA = S::kHalvesA == 2, kOneB = S::kHalvesB == 2;
  uint32_t read_a[S::kReadsOfRow], read_b[S::kReadsOfRow];
  Stage<S> stage;  // that is read
  TileLoads<S> loads;

  __device__ __forceinline__ void begin(uint32_t lds, int wave, int lane) {
    find_reads<S>(read_a, read_b, lds, wave, lane);
    if constexpr (kOneA)
      read_a[0] = lds + S::kA + TileLoads<S>::AByK::read(wave / S::kWavesN * S::kM, lane);
    if constexpr (kOneB)
      read_b[0] = lds + S::kB + TileLoads<S>::BByK::read(wave % S::kWavesN * S::kN, lane);
  }
  template <int part, int n>
  __device__ __forceinline__ void read() {
    constexpr int kSet = part % Order::kSets;
    if constexpr (n < S::kReadsA)
      read_of<typename TileLoads<S>::AByK, kOneA, part, n>(a[kSet], read_a);
    else
      read_of<typename TileLoads<S>::BByK, kOneB, part, n - S::kReadsA>(b[kSet], read_b);
  }
  template <class Own, bool kOne, int part, int n, class Operands>
  static __device__ __forceinline__ void read_of(Operands& x,
                                                 const uint32_t (&from)[S::kReadsOfRow]) {
    if constexpr (kOne) {
      constexpr int f = n / 2, half = n % 2;
      const u32x2 four =
          ordered::ds_read_b64_tr_b16<(4 * part + half) * Own::kFour + f * Own::kFragment>(from[0]);
      x[f].of[0][2 * half] = four[0];
      x[f].of[0][2 * half + 1] = four[1];
    } else {
      constexpr int f = n / Elements::kReads, kNth = n % Elements::kReads;
      ordered::ds_read_b128<f * S::kFragment * S::kRowBytes>(x[f].of[kNth],
                                                             from[part * Elements::kReads + kNth]);
    }
  }
  template <int slot>
  __device__ __forceinline__ void multiply() {
    constexpr int kPart = slot / S::kPartSlots, kSet = kPart % Order::kSets;
    constexpr int kNth = slot % S::kPartSlots / S::kFragments, f = slot % S::kFragments;
    constexpr int m = f / S::kN, n = f % S::kN;
    Elements::template mma<16 * f, kNth>(b[kSet][n], a[kSet][m]);
  }
  // What the order has behind a slot's matrix instruction.
  template <int slot>
  __device__ __forceinline__ void between() {
    constexpr int kPart = slot / S::kPartSlots, kNext = (kPart + 1) % S::kParts;
    if constexpr (!S::kDirect) {
      if constexpr (slot == Order::kRead) {
        ordered::s_waitcnt<ordered::kAnyVm, 0>();
        ordered::s_barrier();  // no wave reads this step in LDS any more: the next may be written
      }
      unroll<S::kBlocks>([&]<int n>() {
        if constexpr (Order::store(n) == slot) {
          constexpr int kNeeded = TileLoads<S>::needed(n);
          if constexpr (n == 0 || TileLoads<S>::needed(n - 1) != kNeeded)
            ordered::s_waitcnt<S::kLoads - kNeeded, ordered::kAnyLgkm>();
          loads.template store<n>();
        }
      });
    }
    if constexpr (slot == Order::kWritten) {
      if constexpr (S::kDirect)
        ordered::s_waitcnt<(S::kStages - 2) * S::kLoads, ordered::kAnyLgkm>();
      else
        ordered::s_waitcnt<ordered::kAnyVm, 0>();
      ordered::s_barrier();  // the next step is in LDS, whichever wave brought it
    }
    constexpr bool kAlone = reads(slot) == 0;
    unroll<S::kLoads>([&]<int n>() {
      if constexpr (Order::load(n) == slot && !kAlone && is_first_load(n))
        loads.template prepare<n>();
    });
    unroll<S::kParts>([&]<int part>() {
      unroll<S::kReads>([&]<int n>() {
        if constexpr (Order::read(part, n) == slot) read<part, n>();
      });
    });
    unroll<S::kLoads>([&]<int n>() {
      if constexpr (Order::load(n) == slot) {
        if constexpr (kAlone || !is_first_load(n)) {
          loads.template prepare<n>();
          if constexpr (S::kDirect) ordered::s_nop<1>();
        }
        loads.template load<n>();
      }
    });
    if constexpr (S::kDirect && slot == Order::turn(kNext)) turn<kNext>();
    unroll<2>([&]<int nth>() {
      if constexpr (slot == Order::kAdvance[nth]) loads.template advance<nth>();
      if constexpr (slot == Order::kNext[nth]) loads.template next<nth>();
    });
    unroll<S::kLoads>([&]<int n>() {
      if constexpr (Order::mask(n) == slot) loads.template mask<n>();
    });
    if constexpr (slot % S::kPartSlots == S::kPartSlots - 1)
      wait_for_part<kNext, Order::reads_behind(kNext, slot)>();
  }
  static constexpr bool is_first_load(int n) {
    return n == 0 || Order::load(n - 1) != Order::load(n);
  }
  static constexpr int reads(int slot) {
    int count = 0;
    for (int part = 0; part < S::kParts; ++part)
      for (int n = 0; n < S::kReads; ++n) count += Order::read(part, n) == slot;
    return count;
  }
  // Through registers the last part has been waited for, and writes are under way.
  template <int part, int kBehind = 0>
  __device__ __forceinline__ void wait_for_part() {
    constexpr int kSet = part % Order::kSets;
    if constexpr (S::kDirect || part != S::kParts - 1)
      ordered::s_waitcnt<ordered::kAnyVm, kBehind>();
    for (auto& x : a[kSet]) settle(x);
    for (auto& x : b[kSet]) settle(x);
  }
  static __device__ __forceinline__ void settle(Elements::Operand& x) {
    for (auto& one : x.of) ordered::settle(one);
  }
  // To where a part of the next step will be.
  template <int part>
  __device__ __forceinline__ void turn() {
    unroll_from<part * Elements::kReads, (part + 1) * Elements::kReads>([&]<int nth>() {
      if constexpr (!kOneA) ordered::v_add_u32_to(read_a[nth], stage.to_next);
      if constexpr (!kOneB) ordered::v_add_u32_to(read_b[nth], stage.to_next);
    });
    if constexpr (part == S::kParts - 1) {
      if constexpr (kOneA) ordered::v_add_u32_to(read_a[0], stage.to_next);
      if constexpr (kOneB) ordered::v_add_u32_to(read_b[0], stage.to_next);
      stage.advance();
    }
  }
  // `between` is done while the first loads are on their way.
  template <class Between>
  __device__ __forceinline__ void run(int steps, Between&& between) {
    start(between);
    if constexpr (Order::kPairs) {
      if (steps % 2 != 0) step();
      for (int left = steps / 2; left > 0; --left) {
        step();
        step();
      }
    } else {
      for (int left = steps; left > 0; --left) step();
    }
    ordered::s_waitcnt<0, 0>();
    if constexpr (!S::kDirect) {
      for (auto& x : loads.staged_a) ordered::settle(x);
      for (auto& x : loads.staged_b) ordered::settle(x);
    }
    ordered::s_barrier();  // LDS is the epilogue's
  }
  __device__ __forceinline__ void step() {
    unroll<S::kSlots>([&]<int slot>() {
      multiply<slot>();
      between<slot>();
    });
  }
  // The first step is in LDS, its first part in registers, the next ones on their way.
  template <class Between>
  __device__ __forceinline__ void start(Between&& between) {
    constexpr int kSteps = S::kDirect ? S::kStages - 1 : 1;
    unroll<kSteps>([&]<int>() {
      load<S::kLoads>();
      loads.template advance<0>();
      loads.template advance<1>();
    });
    if constexpr (S::kDirect) {
      load<Order::kEarly>();
      between();
      zero();
      ordered::s_nop<8>();  // the distance to the first products
      ordered::s_waitcnt<(kSteps - 1) * S::kLoads + Order::kEarly, ordered::kAnyLgkm>();
    } else {
      between();
      zero();
      ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      unroll<S::kBlocks>([&]<int n>() { loads.template store<n>(); });
      ordered::s_waitcnt<ordered::kAnyVm, 0>();
      load<Order::kEarly>();
    }
    ordered::s_barrier();  // the first step is in LDS
    unroll<S::kReads>([&]<int n>() { read<0, n>(); });
    if constexpr (S::kDirect) turn<0>();
    // In place of additions that are not there: wait states behind `zero`.
    if constexpr (kOneA || kOneB) ordered::s_nop<2>();
    wait_for_part<0>();
  }
  static __device__ __forceinline__ void zero() {
    const bf16x4 zero = ordered::v_mov_b64_zero();
    ordered::s_nop<2>();
    // Two fragments at a time: of an odd number the last two overlap.
    unroll<(S::kFragments + 1) / 2>([&]<int pair>() {
      constexpr int f = 2 * pair + 1 < S::kFragments ? 2 * pair : S::kFragments - 2;
      ordered::v_mfma_f32_32x32x4_2b_zero_acc<16 * f>(zero);
    });
  }
  template <int kCount>
  __device__ __forceinline__ void load() {
    loads.template next<0>();
    loads.template next<1>();
    unroll<S::kLoads>([&]<int n>() {
      loads.template mask<n>();
      if constexpr (n < kCount) {
        loads.template prepare<n>();
        if constexpr (S::kDirect) ordered::s_nop<1>();
        loads.template load<n>();
      }
    });
  }
};
