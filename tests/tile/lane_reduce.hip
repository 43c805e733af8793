// max[lane], sum[lane] of in[] over the four lanes that equal `lane` modulo 16; next[lane] of the
// lane after it; sums[lane] of four elements at once; any[lane] = 1 if one of all is above 1000.
#include "tile/reduce.h"

extern "C" __global__ void WORKGROUP(64, 1)
    lane_reduce(const float* in, float* max, float* sum, float* next, f32x4* sums, uint32_t* any) {
  const int lane = Lane::in_workgroup();
  const float x = in[lane];
  max[lane] = max_over_groups(x);
  sum[lane] = sum_over_groups(x);
  next[lane] = from_lane(x, (lane + 1) % kWaveLanes);
  sums[lane] = sum_over_groups(f32x4{x, 2 * x, -x, 0});
  any[lane] = any_lane(x > 1000);
}
