// The main loop of products with scales of blocks: every instruction where it is written.
#pragma once
#include "gemm_tiles/blocks_order.h"
#include "gemm_tiles/blocks_scales.h"
#include "isa/ordered_acc.h"
#include "isa/ordered_lanes.h"

// From a stage of three to the next one, in bytes: three in turn come to 0. Reads are of the one
// behind that which loads go to.
template <class S>
struct BlockStages {
  static_assert(!S::kDirect || S::kStages == 3);
  int of_loads = -2 * S::kStageBytes, of_reads = S::kStageBytes;

  __device__ __forceinline__ void advance() {
    const int next = -(of_loads + of_reads);
    of_loads = of_reads;
    of_reads = next;
    ordered::settle_uniform(of_loads);
    ordered::settle_uniform(of_reads);
  }
};

// A wave's share of A and B, a step at a time; what is on its way through registers is in
// accumulation registers.
template <class S>
struct BlockLoads : TileLoads<S> {
  using Registers = BlockRegisters<S>;
  BlockStages<S> stages;

  // To the next step: A, and B and the stage.
  template <int nth>
  __device__ __forceinline__ void advance() {
    if constexpr (!S::kDirect || nth == 0) {
      TileLoads<S>::template advance<nth>();
    } else {
      advance_b();
      to_stage(stages.of_loads);
    }
  }
  __device__ __forceinline__ void advance_b() { this->move(this->buffer_b, S::kRowBytes); }
  __device__ __forceinline__ void to_stage(int further) {
    this->write_a[0] += further;
    this->write_b[0] += further;
    ordered::settle_uniform(this->write_a[0]);
    ordered::settle_uniform(this->write_b[0]);
  }
  // Of two steps that are on their way each has a set of registers.
  template <int set, int n>
  __device__ __forceinline__ void load() {
    constexpr int kTo = Registers::staged(set, n);
    if constexpr (S::kDirect)
      TileLoads<S>::template load<n>();
    else if constexpr (n < S::kLoadsA)
      ordered::buffer_load_acc<kTo, 4>(this->offset_a[n], this->buffer_a);
    else
      ordered::buffer_load_acc<kTo, 4>(this->offset_b[n - S::kLoadsA], this->buffer_b);
  }
  template <int set, int n>
  __device__ __forceinline__ void store() const {
    constexpr int kFrom = Registers::staged(set, n);
    if constexpr (n < S::kLoadsA)
      ordered::ds_write_b128_acc<kFrom, n * S::kBlockBytes>(this->write_a[0]);
    else
      ordered::ds_write_b128_acc<kFrom, (n - S::kLoadsA) * S::kBlockBytes>(this->write_b[0]);
  }
};

template <class S>
struct BlockLoop {
  using Order = BlockOrder<S>;
  using Registers = BlockRegisters<S>;
  static constexpr int kTurns = Registers::kTurns;

  float total[S::kFragments][Order::kSums];
  f32x16 partial[2];  // of even and of odd fragments
  uint32_t read_a[S::kReadsOfRow], read_b[S::kReadsOfRow];
  BlockLoads<S> loads;
  BlockScales<S> scales;

  __device__ __forceinline__ void begin(uint32_t lds, int wave, int lane) {
    find_reads<S>(read_a, read_b, lds, wave, lane);
    unroll<S::kFragments>(
        [&]<int f>() { unroll<Order::kSums>([&]<int i>() { total[f][i] = 0; }); });
    unroll<2>([&]<int i>() { partial[i] = f32x16{}; });
  }
  __device__ __forceinline__ void run(int steps) {
    start();
    int left = steps;
    while (turns<0>(left)) {
    }
    ordered::s_nop<16>();
    ordered::s_nop<4>();
    add<S::kFragments - 1, 0, Order::kSums>();
    ordered::s_waitcnt<0, 0>();
    ordered::s_barrier();  // LDS is the epilogue's
    unroll<S::kFragments>([&]<int f>() {
      unroll<Order::kSums>([&]<int i>() {
        v_accvgpr_write_b32<Order::kSums * f + i>(__builtin_bit_cast(uint32_t, total[f][i]));
      });
    });
  }

 private:
  // Steps until the scales that are at hand are used; whether there are more.
  template <int turn>
  __device__ __forceinline__ bool turns(int& left) {
    unroll<Order::kSlots>([&]<int slot>() {
      multiply<turn, slot>();
      between<turn, slot>();
    });
    if (--left == 0) return false;
    if constexpr (turn + 1 < kTurns) return turns<turn + 1>(left);
    return true;
  }
  template <int turn, int slot>
  __device__ __forceinline__ void multiply() {
    constexpr int f = slot / Order::kOfFragment, i = slot % Order::kOfFragment, kSet = turn % 2;
    constexpr int kEach = Registers::kOfFragment / Order::kOfFragment;
    constexpr int kA = Registers::a(kSet, f / S::kN) + i * kEach;
    constexpr int kB = Registers::b(kSet, f % S::kN) + i * kEach;
    if constexpr (S::Elements::kIsWide)
      ordered::v_mfma_f32_32x32x64_f8f6f4_of_acc<i == 0, kB, kA>(partial[f % 2]);
    else
      ordered::v_mfma_f32_32x32x16_fp8_fp8_of_acc<i == 0, kB, kA>(partial[f % 2]);
  }
  // Partial sums of a fragment times its scales.
  template <int f, int from, int to>
  __device__ __forceinline__ void add() {
    unroll_from<from, to>([&]<int i>() {
      ordered::v_fmac_f32(total[f][i], partial[f % 2][i], scales.template of_sum<i>());
    });
  }
  template <int turn, int n>
  __device__ __forceinline__ void read() {
    constexpr int kSet = (turn + 1) % 2, f = n / S::kReadsOfRow, j = n % S::kReadsOfRow;
    if constexpr (f < S::kM)
      ordered::ds_read_b128_acc<Registers::a(kSet, f) + 4 * j, f * S::kFragment * S::kRowBytes>(
          read_a[j]);
    else
      ordered::ds_read_b128_acc<Registers::b(kSet, f - S::kM) + 4 * j,
                                (f - S::kM) * S::kFragment * S::kRowBytes>(read_b[j]);
  }
  // What the order has behind a slot's matrix instruction.
  template <int turn, int slot>
  __device__ __forceinline__ void between() {
    constexpr int f = slot / Order::kOfFragment, i = slot % Order::kOfFragment;
    constexpr int kBefore = (f + S::kFragments - 1) % S::kFragments;  // whose sums are added
    constexpr bool kSumsFirst = S::kDirect && i == 1 && slot != Order::advance(0);
    barriers<turn, slot>();
    if constexpr (S::kDirect)
      unroll<S::kLoads>([&]<int n>() {
        if constexpr (Order::load(n) == slot && Order::is_first(n)) loads.template prepare<n>();
      });
    constexpr int kFrom = Order::sums_before(f, i), kTo = Order::sums_before(f, i + 1);
    if constexpr (kSumsFirst) add<kBefore, kFrom, kTo>();
    memory<turn, slot>();
    scaling<turn, slot>();
    addresses<slot>();
    if constexpr (constexpr int kStates = Order::missing(slot); kStates > 0)
      ordered::s_nop<kStates>();
    if constexpr (!kSumsFirst) add<kBefore, kFrom, kTo>();
    if constexpr (S::kDirect && slot == Order::kSlots - 1) ordered::s_waitcnt<ordered::kAnyVm, 0>();
  }
  template <int turn, int slot>
  __device__ __forceinline__ void barriers() {
    if constexpr (S::kDirect) {
      if constexpr (slot == 0) {
        // Of the step before all loads may be under way.
        constexpr int kBefore = (turn + kTurns - 1) % kTurns;
        constexpr int kMore = Order::scale_loads_before(kBefore, Order::kSlots);
        ordered::s_waitcnt<(S::kStages - 2) * S::kLoads + kMore, ordered::kAnyLgkm>();
        // What this step reads is in LDS, and the stage that it fills has been read.
        ordered::s_barrier();
      }
    } else if constexpr (slot == Order::kRead || slot == Order::kWritten) {
      ordered::s_waitcnt<ordered::kAnyVm, 0>();
      ordered::s_barrier();  // kRead: LDS has been read and may be written; kWritten: it is
    }
  }
  template <int turn, int slot>
  __device__ __forceinline__ void memory() {
    unroll<Order::kReads>([&]<int n>() {
      if constexpr (Order::read(n) == slot && !is_between(n)) read<turn, n>();
    });
    unroll<S::kLoads>([&]<int n>() {
      if constexpr (!S::kDirect && Order::store(n) == slot) {
        ordered::s_waitcnt<Order::loads_behind(turn, n), ordered::kAnyLgkm>();
        loads.template store<turn, n>();
      }
      if constexpr (Order::load(n) == slot) {
        if constexpr (S::kDirect && !Order::is_first(n)) {
          loads.template prepare<n>();
          unroll<Order::kReads>([&]<int m>() {
            if constexpr (Order::read(m) == slot && is_between(m)) read<turn, m>();
          });
        }
        loads.template load<turn + 1, n>();
      }
    });
    unroll<Order::kScales>([&]<int n>() {
      if constexpr (Order::load_scale(n).turn == turn && Order::load_scale(n).slot == slot) {
        scales.template load<n>();
        scales.template advance<n>();
      }
    });
  }
  // Two loads and their addresses.
  static constexpr bool is_between(int n) {
    return S::kDirect && Order::has_two(Order::read(n)) && Order::read(n - 1) == Order::read(n);
  }
  template <int turn, int slot>
  __device__ __forceinline__ void scaling() {
    unroll<Order::kScales>([&]<int n>() {
      if constexpr (Order::take(n).turn == turn && Order::take(n).slot == slot)
        scales.template take<n>();
    });
    unroll<S::kM>([&]<int m>() {
      if constexpr (Order::multiply(m) == slot) scales.template multiply<m, turn>();
    });
  }
  // Of the next step.
  template <int slot>
  __device__ __forceinline__ void addresses() {
    if constexpr (S::kDirect) {
      if constexpr (slot == Order::kTurnA) turn(read_a);
      unroll<S::kReadsOfRow>([&]<int j>() {
        if constexpr (slot == Order::turn_b(j)) turn(read_b[j]);
      });
      if constexpr (slot == 0) loads.stages.advance();
    }
    if constexpr (slot == Order::advance(0)) loads.template advance<0>();
    if constexpr (slot == Order::advance(1)) loads.template advance<1>();
    if constexpr (slot == Order::kEnds) end();
  }
  __device__ __forceinline__ void turn(uint32_t& address) {
    ordered::v_add_u32_to(address, loads.stages.of_reads);
  }
  __device__ __forceinline__ void turn(uint32_t (&addresses)[S::kReadsOfRow]) {
    unroll<S::kReadsOfRow>([&]<int j>() { turn(addresses[j]); });
  }
  // Lanes beyond the end of k ask outside, once and for all: of most steps there are none.
  __device__ __forceinline__ void end() {
    if (__builtin_expect(loads.left >= S::kStep, 1)) return;
    loads.template next<0>();
    loads.template next<1>();
    unroll<S::kLoads>([&]<int n>() { loads.template mask<n>(); });
  }
  template <int step>
  __device__ __forceinline__ void load_step() {
    unroll<S::kLoads>([&]<int n>() {
      loads.template prepare<n>();
      if constexpr (S::kDirect) ordered::s_nop<1>();
      loads.template load<step, n>();
    });
    loads.template advance<0>();
    if constexpr (S::kDirect) {
      loads.advance_b();
      loads.to_stage(step + 1 < S::kStages ? S::kStageBytes : (1 - S::kStages) * S::kStageBytes);
    } else {
      loads.template advance<1>();
    }
    end();
  }
  template <int step>
  __device__ __forceinline__ void store_step() {
    unroll<S::kLoads>([&]<int n>() { loads.template store<step, n>(); });
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    ordered::s_barrier();  // the step is in LDS
  }
  // The first step's operands are in registers, the next one in LDS, or on its way.
  __device__ __forceinline__ void start() {
    constexpr int kBefore = kTurns - 1;  // its next step has the first set of operands
    unroll<Order::kScales>([&]<int n>() {
      scales.template load<n>();
      scales.template advance<n>();
    });
    end();
    if constexpr (S::kDirect) {
      unroll<S::kStages>([&]<int step>() { load_step<step>(); });
      ordered::s_waitcnt<(S::kStages - 1) * S::kLoads, ordered::kAnyLgkm>();
      ordered::s_barrier();  // the first step is in LDS
    } else {
      unroll<Registers::kSteps>([&]<int step>() { load_step<step>(); });
      ordered::s_waitcnt<(Registers::kSteps - 1) * S::kLoads, ordered::kAnyLgkm>();
      store_step<0>();
      load_step<Registers::kSteps>();
    }
    unroll<Order::kReads>([&]<int n>() { read<kBefore, n>(); });
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    if constexpr (S::kDirect) {
      turn(read_a);
      unroll<S::kReadsOfRow>([&]<int j>() {
        if constexpr (Order::turn_b(j) != 0) turn(read_b[j]);
      });
    } else {
      ordered::s_waitcnt<(Registers::kSteps - 1) * S::kLoads, ordered::kAnyLgkm>();
      ordered::s_barrier();  // all waves have read the first step
      store_step<1>();
    }
    unroll<Order::kScales>([&]<int n>() {
      if constexpr (Order::take(n).turn == kBefore) scales.template take<n>();
    });
    unroll<S::kFragments>(
        [&]<int f>() { unroll<Order::kSums>([&]<int i>() { ordered::settle(total[f][i]); }); });
    unroll<2>([&]<int i>() { ordered::settle(partial[i]); });
  }
};
