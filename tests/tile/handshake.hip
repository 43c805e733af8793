// Workgroups that wait for one another: each publishes a value, all arrive at a counter, each then
// reads the value of the next one. It ends only if every workgroup of the grid makes progress.
// Expected: out[w] = 1000 + (w + 1) % num_workgroups, counter = num_workgroups.
#include "isa/device.h"

extern "C" __global__ void WORKGROUP(64, 1)
    handshake(int* values, int* counter, int* out, int num_workgroups) {
  if (Lane::in_workgroup() != 0) return;
  const int me = __builtin_amdgcn_workgroup_id_x();
  values[me] = 1000 + me;
  // Release publishes values[me]; the acquire below makes the others' values visible here.
  __hip_atomic_fetch_add(counter, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
  while (__hip_atomic_load(counter, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) < num_workgroups)
    __builtin_amdgcn_s_sleep(1);
  out[me] = values[(me + 1) % num_workgroups];
}
