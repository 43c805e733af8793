// The main loop of products of 6 bits: every instruction where it is written.
#pragma once
#include "gemm_tiles/loop.h"
#include "gemm_tiles/mx_scales.h"
#include "gemm_tiles/mx_six.h"

// Where in a step things are: behind which of its 32 matrix instructions, of which the first half
// takes the first halves of operands. What these lie in is read anew when its last one is issued:
// of A fragment by fragment, of B at the end of a half.
template <class S>
struct SixBitOrder {
  static constexpr int kPart = S::kPartSlots, kOperands = S::kM + S::kN;
  static constexpr int kLateA = S::kM - 1;  // of A, the last one to be read anew
  // The nth operand of those that are read in the half behind: of B, then the last one of A.
  static constexpr int late(int f) { return f < S::kM ? S::kN : f - S::kM; }
  static constexpr bool is_late(int f) { return f >= kLateA; }
  // Third chunks, of the next step in the second half, and of this one in the first; first chunks
  // likewise half a step earlier, all of the next one. Copies of the second chunk make room for it.
  static constexpr int read_last(int f) { return is_late(f) ? late(f) : kPart + (f + 1) * S::kN; }
  static constexpr int read_first(int f) {
    const int early = (f + 1) * S::kN;
    return is_late(f) ? kPart + late(f) : early > kThere ? early : kThere + 1;
  }
  static constexpr int copy_high(int f) { return f; }
  static constexpr int read_middle(int f) { return kPart / 2 + f; }
  static constexpr int copy_low(int f) { return kPart + 5 + f; }
  // The next step is in LDS; this one is not read any more.
  static constexpr int kThere = kPart / 2 - 1, kFree = kPart / 2 + 2;
  static constexpr int kSpan = kPart + 4;
  static constexpr int load(int n) { return kFree + 1 + n * kSpan / S::kLoads; }
  static constexpr int kAdvance[2] = {load(S::kLoads - 1) + 1, load(S::kLoads - 1) + 2};
  static constexpr int kTurnLast = S::kN + 1, kTurnOthers = copy_low(0) + 1;
  static_assert(kAdvance[1] < S::kSlots && copy_low(kOperands - 1) < S::kSlots);

  // Nothing comes between a load and its address.
  static constexpr bool is_empty(int slot) {
    int count = reads(slot, slot + 1);
    for (int f = 0; f < kOperands; ++f) count += copy_high(f) == slot || copy_low(f) == slot;
    return count == 0;
  }
  // Reads from a slot on, up to another one.
  static constexpr int reads(int from, int to) {
    int count = 0;
    for (int f = 0; f < kOperands; ++f) {
      const int at[] = {read_last(f), read_first(f), read_middle(f)};
      for (int one : at) count += from <= one && one < to;
    }
    return count;
  }
};

template <class S>
struct SixBitLoop {
  using Order = SixBitOrder<S>;
  using Scales = MxScales<S>;
  static constexpr int kTurns = Scales::kTurns, kOperands = Order::kOperands;

  SixBitOperand operand[kOperands];  // of A, then of B
  uint32_t read_a[3], read_b[3];     // of each chunk of a lane
  Stage<S> stage;                    // that the third chunk is read from
  SixBitLoads<S> loads;
  Scales scales;

  __device__ __forceinline__ void begin(uint32_t lds, int wave, int lane) {
    const int row = lane % S::kFragment, group = lane / S::kFragment;
    const uint32_t of_a = lds + S::kA + wave / S::kWavesN * S::kM * S::kFragmentBytes;
    const uint32_t of_b = lds + S::kB + wave % S::kWavesN * S::kN * S::kFragmentBytes;
    for (int j = 0; j < 3; ++j) {
      read_a[j] = of_a + S::place(row, 3 * group + j);
      read_b[j] = of_b + S::place(row, 3 * group + j);
    }
    unroll<kOperands>([&]<int f>() {
      operand[f].first = operand[f].middle = operand[f].last = u32x4{};
      operand[f].low = operand[f].high = u32x2{};
    });
  }
  // `between` is done while the first loads are on their way.
  template <class Between>
  __device__ __forceinline__ void run(int steps, Between&& between) {
    start(between);
    int left = steps;
    while (turns<0>(left)) {
    }
    ordered::s_waitcnt<0, 0>();
    scales.settle();
    for (auto& one : operand) {
      ordered::settle(one.first);
      ordered::settle(one.middle);
      ordered::settle(one.last);
    }
    ordered::s_barrier();  // LDS is the epilogue's
  }

 private:
  template <int turn>
  __device__ __forceinline__ bool turns(int& left) {
    unroll<S::kSlots>([&]<int slot>() {
      multiply<turn, slot>();
      between<turn, slot>();
    });
    if (--left == 0) return false;
    if constexpr (turn + 1 < kTurns) return turns<turn + 1>(left);
    return true;
  }
  template <int turn, int slot>
  __device__ __forceinline__ void multiply() {
    constexpr int kPart = slot / S::kPartSlots, f = slot % S::kFragments;
    constexpr int m = f / S::kN, n = f % S::kN, kNth = turn * Scales::kOfStep + kPart;
    constexpr int kWord = kNth / Scales::kOfWord, kByte = kNth % Scales::kOfWord;
    ordered::v_mfma_scale_f32_32x32x64_f8f6f4_into_acc<S::Elements::kFormat, kByte, 16 * f>(
        operand[S::kM + n].template whole<kPart>(), operand[m].template whole<kPart>(),
        scales.scale[S::kM + n][kWord], scales.scale[m][kWord]);
  }
  template <int f, int j>
  __device__ __forceinline__ void read() {
    constexpr int kOffset = (f < S::kM ? f : f - S::kM) * S::kFragmentBytes;
    const uint32_t from = f < S::kM ? read_a[j] : read_b[j];
    u32x4& to = j == 0 ? operand[f].first : j == 1 ? operand[f].middle : operand[f].last;
    ordered::ds_read_b128_to<kOffset>(to, from);
  }
  // What the order has behind a slot's matrix instruction.
  template <int turn, int slot>
  __device__ __forceinline__ void between() {
    if constexpr (slot == Order::kThere) {
      ordered::s_waitcnt<S::kLoads + scale_loads((turn + kTurns - 1) % kTurns),
                         ordered::kAnyLgkm>();
      ordered::s_barrier();  // the next step is in LDS
    }
    if constexpr (slot == Order::kFree) {
      ordered::s_waitcnt<ordered::kAnyVm, Order::reads(S::kN + 1, slot)>();
      ordered::s_barrier();  // this step has been read: its stage may be filled
    }
    unroll<S::kLoads>([&]<int n>() {
      if constexpr (Order::load(n) == slot) loads.template prepare<n>();
    });
    scaling<turn, slot>();
    unroll<kOperands>([&]<int f>() {
      if constexpr (Order::copy_high(f) == slot) operand[f].template copy<1>();
      if constexpr (Order::copy_low(f) == slot) {
        if constexpr (f == 0) {
          ordered::s_waitcnt<ordered::kAnyVm,
                             Order::reads(Order::read_middle(kOperands - 1) + 1, slot)>();
          unroll<kOperands>([&]<int each>() { ordered::settle(operand[each].middle); });
        }
        operand[f].template copy<0>();
      }
    });
    unroll<kOperands>([&]<int f>() {
      if constexpr (Order::read_last(f) == slot) read<f, 2>();
    });
    unroll<kOperands>([&]<int f>() {
      if constexpr (Order::read_first(f) == slot) read<f, 0>();
      if constexpr (Order::read_middle(f) == slot) read<f, 1>();
    });
    unroll<S::kLoads>([&]<int n>() {
      if constexpr (Order::load(n) == slot) {
        if constexpr (Order::is_empty(slot)) ordered::s_nop<1>();
        loads.template load<n>();
      }
    });
    unroll<2>([&]<int nth>() {
      if constexpr (slot == Order::kAdvance[nth]) loads.template advance<nth>();
    });
    if constexpr (slot == Order::kTurnLast) {
      turn_to_next<2>();
      stage.advance();
    }
    if constexpr (slot == Order::kTurnOthers) {
      turn_to_next<0>();
      turn_to_next<1>();
    }
    if constexpr (slot == S::kPartSlots - 1) {
      ordered::s_waitcnt<ordered::kAnyVm, Order::reads(S::kN + 1, S::kPartSlots)>();
      unroll<kOperands>([&]<int f>() { ordered::settle(operand[f].last); });
    }
    if constexpr (slot == S::kSlots - 1) {
      constexpr int kLast = Order::read_first(Order::kLateA);
      ordered::s_waitcnt<ordered::kAnyVm, Order::reads(kLast + 1, S::kSlots)>();
      unroll<kOperands>([&]<int f>() { ordered::settle(operand[f].first); });
    }
  }
  template <int j>
  __device__ __forceinline__ void turn_to_next() {
    ordered::v_add_u32_to(read_a[j], stage.to_next);
    ordered::v_add_u32_to(read_b[j], stage.to_next);
  }

  // Scales of the next turn are loaded in its first two steps, in front of loads of these.
  static constexpr int kScaleTurns = 2, kOfTurn = kOperands / kScaleTurns;
  static constexpr int scale_loads(int turn) { return turn < kScaleTurns ? kOfTurn : 0; }
  template <int turn, int slot>
  __device__ __forceinline__ void scaling() {
    unroll<kOperands>([&]<int f>() {
      if constexpr (turn == f / kOfTurn && slot == Order::kThere + f % kOfTurn + 1) {
        scales.template load<f>();
        if constexpr (f == kOperands - 1) scales.advance();
      }
      if constexpr (turn == kTurns - 1 && slot == S::kPartSlots + f) scales.template take<f, 0>();
      if constexpr (turn == 0 && slot == f / 2) scales.template take<f, 1>();
    });
  }
  // Of the first step first chunks are in registers, half of the second ones, third ones of A as
  // far as they are read in the step before; the next steps are on their way.
  template <class Between>
  __device__ __forceinline__ void start(Between&& between) {
    unroll<kOperands>([&]<int f>() { scales.template load<f>(); });
    unroll<S::kStages>([&]<int>() {
      unroll<S::kLoads>([&]<int n>() {
        loads.template prepare<n>();
        ordered::s_nop<1>();
        loads.template load<n>();
      });
      loads.template advance<0>();
      loads.template advance<1>();
    });
    between();
    zero();
    ordered::s_nop<8>();  // the distance to the first products
    ordered::s_waitcnt<2 * S::kLoads, ordered::kAnyLgkm>();
    ordered::s_barrier();  // the first step is in LDS
    unroll<kOperands>([&]<int f>() { read<f, 1>(); });
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    unroll<kOperands>([&]<int f>() {
      ordered::settle(operand[f].middle);
      operand[f].template copy<0>();
      read<f, 0>();
    });
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    unroll<kOperands>([&]<int f>() { ordered::settle(operand[f].first); });
    unroll<Order::kLateA>([&]<int f>() { read<f, 2>(); });
    turn_to_next<0>();
    turn_to_next<1>();
    unroll<kOperands>([&]<int f>() { scales.template take<f, 0>(); });
  }
  static __device__ __forceinline__ void zero() {
    const bf16x4 zero = ordered::v_mov_b64_zero();
    ordered::s_nop<2>();
    unroll<S::kFragments / 2>(
        [&]<int f>() { ordered::v_mfma_f32_32x32x4_2b_zero_acc<32 * f>(zero); });
  }
};
