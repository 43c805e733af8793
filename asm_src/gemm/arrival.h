// How parts along k of a tile meet in memory: its counter, and order between workgroups.
#pragma once
#include "isa/ordered_memory.h"

// What a tile's counter holds: the number of the launch, whether parts may be added to the tile's
// sums in memory, how many parts have arrived.
inline constexpr int kArrivals = 0xffff, kOpenBit = 16, kGenerationBit = 17;

// Order between workgroups, at agent scope: what the workgroup did before is there for whoever sees
// what is stored or added next.
__device__ __forceinline__ void release() {
  ordered::buffer_wbl2_sc1();
  ordered::s_waitcnt<0, ordered::kAnyLgkm>();
}
// What was there before that which has been seen is there for whatever is loaded next. Waits.
template <class T>
__device__ __forceinline__ void acquire(T& seen) {
  ordered::s_waitcnt<0, ordered::kAnyLgkm>();
  ordered::settle(seen);
  ordered::buffer_inv_sc1();
}
