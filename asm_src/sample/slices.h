// How workgroups that have a slice of a row each meet in memory. Nobody waits: the last one of a
// row to arrive has what all of them found.
#pragma once
#include "isa/ordered_memory.h"
#include "sample/row.h"

inline constexpr int kBins = 1024;   // of logarithms, the first one of the greatest
inline constexpr float kReach = 41;  // in base 2: what is further below the greatest is never drawn

// Of a row, between launches.
struct SharedOfRow {
  uint64_t mass[kBins];  // in 2^-40
  uint32_t count[kBins];
  uint64_t best;  // the greatest logit and its column
  float bins;     // of a unit of logarithm
  uint32_t padding;
  uint64_t listed, arrivals;
};
static_assert(sizeof(SharedOfRow) == 12320);  // of amdattn/ops/sample/planning.py, too

// What the best of a slice is, and what else a launch needs to know of it.
struct Partial {
  uint64_t best;
  u32x2 rest;
};

template <int kLanes>
struct Meeting {
  using Group = Workgroup<kLanes>;
  const SampleArgs& args;
  int row, slice, slices;
  Local<int>* is_last;

  __device__ __forceinline__ uint64_t partials() const {
    return args.partials + uint64_t(row) * slices * sizeof(Partial);
  }
  // By one lane.
  __device__ __forceinline__ void store(uint64_t best, u32x2 rest) const {
    const u32x4 x{uint32_t(best), uint32_t(best >> 32), rest[0], rest[1]};
    ordered::global_store_dwordx4_sc1(partials(), slice * sizeof(Partial), x);
  }
  // Of slice `nth`, behind an arrival as the last one.
  __device__ __forceinline__ Partial partial(int nth) const {
    const u32x4 x = global_load_dwordx4((const Global<u32x4>*)partials() + nth);
    return {uint64_t(x[1]) << 32 | x[0], u32x2{x[2], x[3]}};
  }
  // What the workgroup stored through the L2 is there before it is counted. Whether all others
  // have been; then what they stored is there, too. Without kIsKept a launch before this one of the
  // plan has made the counter zero.
  template <bool kIsKept>
  __device__ __forceinline__ bool arrive(uint64_t counter, uint64_t generation = 0) const {
    constexpr int kArrivals = 0xffff, kGenerationBit = 17;  // as in gemm/arrival.h
    ordered::s_waitcnt<0, ordered::kAnyLgkm>();
    Group::join();
    if (Lane::in_workgroup() == 0) {
      uint64_t before;
      // Raised first: what a launch that was aborted left behind is of an older generation.
      ordered::end_clause();
      if constexpr (kIsKept) {
        ordered::global_atomic_umax_x2(counter, 0, generation << kGenerationBit);
        ordered::end_clause();
      }
      ordered::global_atomic_add_x2_return(before, counter, 0, 1);
      ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      ordered::settle(before);
      *is_last = int(before & kArrivals) == slices - 1;
    }
    Group::join();
    if (!uniform(*is_last)) return false;
    ordered::buffer_inv_sc1();
    return true;
  }
};
