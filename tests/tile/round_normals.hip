// out[2 lane .. + 1] = round_bf16_normals(in[2 lane .. + 1]): bf16 in the upper halves.
#include "tile/bf16.h"

extern "C" __global__ void WORKGROUP(64, 1) round_normals(const f32x2* in, u32x2* out) {
  const int lane = Lane::in_workgroup();
  out[lane] = round_bf16_normals(in[lane]);
}
