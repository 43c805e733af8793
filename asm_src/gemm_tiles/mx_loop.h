// The main loop of products with scales of 32 elements of k: that of loop.h, with scales.
#pragma once
#include "gemm_tiles/loop.h"
#include "gemm_tiles/mx_scales.h"

template <class S>
struct MxLoop : TileLoop<S> {
  using Base = TileLoop<S>;
  using Order = TileOrder<S>;
  using Scales = MxScales<S>;
  static constexpr int kTurns = Scales::kTurns, kScales = Scales::kFragments;
  static_assert(S::kDirect);

  Scales scales;

  template <class Between>
  __device__ __forceinline__ void run(int steps, Between&& between) {
    load_all();
    Base::start(between);
    unroll<kScales>([&]<int f>() { scales.template take<f, 0>(); });
    int left = steps;
    while (turns<0>(left)) {
    }
    ordered::s_waitcnt<0, 0>();
    scales.settle();
    ordered::s_barrier();  // LDS is the epilogue's
  }

 private:
  // Steps until the scales that are at hand are used; whether there are more.
  template <int turn>
  __device__ __forceinline__ bool turns(int& left) {
    unroll<S::kSlots>([&]<int slot>() {
      multiply<turn, slot>();
      scaling<turn, slot>();
      if constexpr (slot == Order::kWritten)
        barrier<turn>();
      else
        this->template between<slot>();
    });
    if (--left == 0) return false;
    if constexpr (turn + 1 < kTurns) return turns<turn + 1>(left);
    return true;
  }
  template <int turn, int slot>
  __device__ __forceinline__ void multiply() {
    constexpr int kPart = slot / S::kPartSlots, kSet = kPart % 2, f = slot % S::kFragments;
    constexpr int m = f / S::kN, n = f % S::kN, kNth = turn * Scales::kOfStep + kPart;
    constexpr int kWord = kNth / Scales::kOfWord, kByte = kNth % Scales::kOfWord;
    S::Elements::template mma<16 * f, kByte>(
        this->b[kSet][n], this->a[kSet][m], scales.scale[S::kM + n][kWord], scales.scale[m][kWord]);
  }
  // Scales of the next turn are loaded in the middle of one, between loads of steps, and are there
  // behind the barrier of the next step. Half of them are taken in the last step, in which no
  // matrix instruction needs those before any more, the other ones in the first step of their turn.
  static constexpr int kLoadTurn = kTurns / 2 - 1;
  static constexpr int kBehind = Order::nth_slot(S::kLoads - 1) + 1 - S::kSlots;
  static constexpr int kTaken = S::Elements::kIsWide ? S::kPartSlots / 2 : S::kPartSlots;
  static constexpr int kFirst = kBehind > kTaken ? kBehind : kTaken;
  static constexpr int load_slot(int f) {
    return kFirst + f * (Order::kWritten - kFirst) / kScales;
  }
  static constexpr int take_slot(int word, int f) {
    const int slot = f * (S::kPartSlots - 2) / kScales;
    return word == 0 ? Order::kWritten + 1 + slot : slot;
  }
  static_assert(take_slot(1, kScales - 1) < load_slot(0) || kLoadTurn > 0);
  template <int turn, int slot>
  __device__ __forceinline__ void scaling() {
    unroll<kScales>([&]<int f>() {
      if constexpr (turn == kLoadTurn && slot == load_slot(f)) {
        scales.template load<f>();
        if constexpr (f == kScales - 1) scales.advance();
      }
      if constexpr (turn == kTurns - 1 && slot == take_slot(0, f)) scales.template take<f, 0>();
      if constexpr (turn == 0 && slot == take_slot(1, f)) scales.template take<f, 1>();
    });
  }
  template <int turn>
  __device__ __forceinline__ void barrier() {
    constexpr int kMore = turn == kLoadTurn ? kScales : 0;
    ordered::s_waitcnt<(S::kStages - 2) * S::kLoads + kMore, ordered::kAnyLgkm>();
    ordered::s_barrier();  // the next step is in LDS, whichever wave brought it
  }
  __device__ __forceinline__ void load_all() {
    unroll<kScales>([&]<int f>() { scales.template load<f>(); });
  }
};
