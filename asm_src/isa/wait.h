// Synchronisation inside a workgroup.
#pragma once
#include "isa/device.h"

// All waves of the workgroup meet, and LDS writes before it are visible after it. The fences name
// the LDS only ("local"), so global loads stay in flight across the barrier.
__device__ __forceinline__ void s_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}
