// max[lane], sum[lane] of in[] over the four lanes that equal `lane` modulo 16.
#include "tile/reduce.h"

extern "C" __global__ void WORKGROUP(64, 1) lane_reduce(const float* in, float* max, float* sum) {
  const int lane = Lane::in_workgroup();
  max[lane] = max_over_groups(in[lane]);
  sum[lane] = sum_over_groups(in[lane]);
}
