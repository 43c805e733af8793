// out[lane] = sum over parts of in[part * 64 + lane]. Each workgroup copies a part to the workspace
// and its lanes count themselves at the semaphore; the last workgroup adds the parts up and leaves
// the semaphore zero.
#include "isa/device.h"

extern "C" __global__ void WORKGROUP(64, 1)
    split_sum(const int* in, int* workspace, unsigned* semaphore, int* out, int num_parts) {
  const int lane = Lane::in_workgroup();
  const int part = __builtin_amdgcn_workgroup_id_x();
  workspace[part * 64 + lane] = in[part * 64 + lane];
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
  const unsigned arrived =
      __hip_atomic_fetch_add(semaphore, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  if (__builtin_amdgcn_readfirstlane(int(arrived)) != 64 * (num_parts - 1)) return;
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
  int total = 0;
  for (int i = 0; i < num_parts; ++i) total += workspace[i * 64 + lane];
  out[lane] = total;
  __hip_atomic_store(semaphore, 0u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
