// d[16, 16] = a[16, 32] * b[16, 32]^T + c[16, 16]; a and b bf16, c and d f32, all row-major.
#include "tile/mma.h"

extern "C" __global__ void WORKGROUP(64, 1)
    mma_test(const u32x4* a, const u32x4* b, const float* c, float* d) {
  constexpr int kOctets = kMmaStep / kOctet;
  const int row = fragment_row(), group = lane_group();
  f32x4 acc;
  for (int i = 0; i < 4; ++i) acc[i] = c[(4 * group + i) * kFragRows + row];
  mma(acc, a[row * kOctets + group], b[row * kOctets + group]);
  for (int i = 0; i < 4; ++i) d[(4 * group + i) * kFragRows + row] = acc[i];
}
