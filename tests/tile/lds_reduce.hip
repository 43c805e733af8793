// out[workgroup] = sum of in[workgroup * 256 .. + 255]: a tree in LDS, a barrier a level. With
// -DMISSING_BARRIER the barrier of the level in which two waves meet is left out: a race.
#include "isa/wait.h"

extern "C" __global__ void WORKGROUP(256, 1) lds_reduce(const int* in, int* out) {
  __shared__ int partial[256];
  const int lane = Lane::in_workgroup(), workgroup = __builtin_amdgcn_workgroup_id_x();
  partial[lane] = in[workgroup * 256 + lane];
  s_barrier();
  for (int half = 128; half > 0; half /= 2) {
    if (lane < half) partial[lane] += partial[lane + half];
#ifdef MISSING_BARRIER
    if (half != 128) s_barrier();
#else
    s_barrier();
#endif
  }
  if (lane == 0) out[workgroup] = partial[0];
}
