// Order of instructions: requests to the compiler's scheduler, which emit nothing, and to the SIMD.
#pragma once
#include "isa/device.h"

// Of the waves of a SIMD that could issue, one with the highest kPriority (0 to 3) does; the oldest
// of them.
template <int kPriority>
__device__ __forceinline__ void s_setprio() {
  __builtin_amdgcn_s_setprio(kPriority);
}

// LDS reads run kAhead ahead of the matrix instructions that use them, kMfmaPerRead for each read.
// Left alone, the compiler waits for each read right behind it.
template <int kNumReads, int kMfmaPerRead, int kAhead>
__device__ __forceinline__ void schedule_reads_ahead() {
  constexpr int kMfma = 0x008, kDsRead = 0x100;
  __builtin_amdgcn_sched_group_barrier(kDsRead, kAhead, 0);
  for (int i = kAhead; i < kNumReads; ++i) {
    __builtin_amdgcn_sched_group_barrier(kMfma, kMfmaPerRead, 0);
    __builtin_amdgcn_sched_group_barrier(kDsRead, 1, 0);
  }
  __builtin_amdgcn_sched_group_barrier(kMfma, kAhead * kMfmaPerRead, 0);
}
