// out[lane] = round_octet(in[8 lane .. + 3], in[8 lane + 4 .. + 7], factor): 8 bf16 of in * factor.
#include "tile/store.h"

extern "C" __global__ void WORKGROUP(64, 1)
    round_octet_of(const f32x4* in, float factor, u32x4* out) {
  const int lane = Lane::in_workgroup();
  out[lane] = round_octet(in[2 * lane], in[2 * lane + 1], factor);
}
