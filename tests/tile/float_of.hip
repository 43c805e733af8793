// out[i] = the number whose ELEMENT has the bits i, 64 of them a workgroup.
#include "tile/element.h"

extern "C" __global__ void WORKGROUP(64, 1) float_of_bits(float* out) {
  const uint32_t i = __builtin_amdgcn_workgroup_id_x() * 64 + Lane::in_workgroup();
  out[i] = float_of<Element::ELEMENT>(i);
}
