// Where results go. Through the L2 they are in HBM sooner than what it writes back when a launch
// ends, but each store takes longer: few rows are faster without.
#pragma once
#include "isa/ordered_through.h"
#include "norm/columns.h"

template <bool kValue>
struct Flag {
  static constexpr bool value = kValue;
};

// Rows of so many columns from which on it pays.
template <int kColumns>
inline constexpr int kRowsThrough = (1 << 19) / kColumns;

// `f` of whether: a copy of its code for each. kMay: whether there is such a copy at all.
template <bool kMay, class F>
__device__ __forceinline__ void through_or_not(bool is_through, const F& f) {
  if constexpr (kMay)
    if (__builtin_expect(is_through, true)) return f(Flag<true>());
  f(Flag<false>());
}

// A chunk of a row of whole ones, at `byte` of it in lane 0. Loads that are under way are waited
// for before: what the compiler counts does not have these stores.
template <int kWidth, class R>
__device__ __forceinline__ void store_through(const Chunk<kWidth>& chunk, const R& row, int byte) {
  static_assert(kWidth == 8);
  ordered::global_store_dwordx4_sc1_done(row.first + byte, Lane::in_workgroup() * sizeof chunk.bits,
                                         chunk.bits);
}
