// out[workgroup, lane] = the sum over the four waves of in[workgroup, wave, lane], first of it and
// then of its square: through LDS, whose room the second sum takes again.
#include "isa/wait.h"

extern "C" __global__ void WORKGROUP(256, 1) lds_sum(const int* in, int* out) {
  __shared__ int words[256];
  const int at = Lane::in_workgroup(), lane = Lane::in_wave();
  const int workgroup = __builtin_amdgcn_workgroup_id_x();
  const int own = in[workgroup * 256 + at];
  words[at] = own;
  s_barrier();
  int sum = 0, squares = 0;
  for (int wave = 0; wave < 4; ++wave) sum += words[wave * 64 + lane];
  s_barrier();
  words[at] = own * own;
  s_barrier();
  for (int wave = 0; wave < 4; ++wave) squares += words[wave * 64 + lane];
  if (at < 64) {
    out[(workgroup * 2 + 0) * 64 + lane] = sum;
    out[(workgroup * 2 + 1) * 64 + lane] = squares;
  }
}
