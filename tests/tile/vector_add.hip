// c[i] = a[i] + b[i] for i < n; nothing else is written. Grid: ceil(n / 256).
#include "isa/device.h"

extern "C" __global__ void WORKGROUP(256, 1)
    vector_add(const float* a, const float* b, float* c, int n) {
  const int i = __builtin_amdgcn_workgroup_id_x() * 256 + Lane::in_workgroup();
  if (i < n) c[i] = a[i] + b[i];
}
