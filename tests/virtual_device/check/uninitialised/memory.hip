// Kernels that write some of what they are given, for test_uninitialised_memory.py. One wave each.
#include "isa/device.h"

// out[i] = in[i] for i < n
extern "C" __global__ WORKGROUP(64, 1) void copy_some(const int* in, int* out, int n) {
  const int i = Lane::in_workgroup();
  if (i < n) out[i] = in[i];
}

extern "C" __global__ WORKGROUP(64, 1) void count(int* in, int*, int) {
  __hip_atomic_fetch_add(in, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

extern "C" __global__ WORKGROUP(64, 1) void exchange(int* in, int* out, int) {
  const int i = Lane::in_workgroup();
  out[i] = __hip_atomic_exchange(in + i, i, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// A sum that some loaded words take no part in.
extern "C" __global__ WORKGROUP(64, 1) void masked_sum(const int* in, int* out, int n) {
  const int i = Lane::in_workgroup();
  const int word = in[i];
  out[i] = i < n ? word + 1 : 7;
}

// One lane copies 16 bytes at once, from any address.
extern "C" __global__ WORKGROUP(64, 1) void copy_wide(const int* in, u32x4* out, int) {
  u32x4 words;
  asm volatile(
      "global_load_dwordx4 %0, %1, off\n"
      "s_waitcnt vmcnt(0)\n"
      : "=v"(words)
      : "v"(in));
  if (Lane::in_workgroup() == 0) *out = words;
}
