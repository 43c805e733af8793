// out[i] = in[2 i .. + 1] rounded to ELEMENT, ROUNDING, by FUNCTION, lo first.
#include "tile/round.h"

extern "C" __global__ void WORKGROUP(64, 1) round_pairs_of(const f32x2* in, uint32_t* out) {
  const int i = __builtin_amdgcn_workgroup_id_x() * kWaveLanes + Lane::in_workgroup();
  const f32x2 x = in[i];
  out[i] = FUNCTION<Element::ELEMENT, Rounding::ROUNDING>(x[0], x[1]);
}
