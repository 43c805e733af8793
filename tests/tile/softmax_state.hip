// Online softmax of 16 rows over num_tiles tiles of 16 scores (base-2 logarithms), a lane group
// four of them: scores[tile, lane] is a f32x4, row lane % 16. Writes the probabilities of each tile
// relative to the origin, the factor for earlier tiles, and at the end inv_sum and lse.
#include "tile/softmax_state.h"

extern "C" __global__ void WORKGROUP(64, 1)
    softmax_state(const f32x4* scores, int num_tiles, f32x4* probabilities, float* rescale,
                  float* inv_sum, float* lse) {
  const int lane = Lane::in_workgroup();
  SoftmaxState state;
  for (int tile = 0; tile < num_tiles; ++tile) {
    f32x4 fragment[] = {scores[tile * kWaveLanes + lane]};
    const float lane_max = SoftmaxState::lane_max(fragment);
    float factor = 1;
    if (any_lane(state.outgrown(lane_max))) factor = state.rescale(lane_max);
    rescale[tile * kWaveLanes + lane] = factor;
    state.exponentiate(fragment, 1);
    probabilities[tile * kWaveLanes + lane] = fragment[0];
  }
  const SoftmaxResult result(state);
  inv_sum[lane] = result.inv_sum;
  lse[lane] = result.lse;
}
