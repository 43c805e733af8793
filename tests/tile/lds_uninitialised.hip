// out[lane] = an LDS dword that no lane has written when `write` is 0.
#include "isa/wait.h"

extern "C" __global__ void WORKGROUP(64, 1) lds_uninitialised(int write, uint32_t* out) {
  __shared__ uint32_t words[64];
  const int lane = Lane::in_workgroup();
  if (write) words[lane] = lane;
  s_barrier();
  out[lane] = words[63 - lane];
}
