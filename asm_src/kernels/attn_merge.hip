// Merges the parts along KV of attention tiles: O = sum_p w_p O_p / sum_p w_p, w_p = sum_p *
// 2^(reference_p - max). Parts in their order, so that the result does not depend on when they were computed.
//
// The build defines KERNEL (its name), HEAD_DIM_V, ELEMENT and ROUNDING. It takes the arguments of
// the kernel that made the parts, and TILE_ROWS rows belong to each of its tiles.
// Grid: for each split tile, ceil(TILE_ROWS / rows of a workgroup).
#include "attn/output.h"

namespace {

using S = Shape<HEAD_DIM_V, HEAD_DIM_V, 4, Element::ELEMENT, Rounding::ROUNDING>;

constexpr int kLanes = 256, kLaneD = 8;
constexpr int kLanesOfRow = HEAD_DIM_V / kLaneD, kRowsAtOnce = kLanes / kLanesOfRow;
constexpr int kTilesOfRows = (TILE_ROWS + kRowsAtOnce - 1) / kRowsAtOnce;

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, 1) KERNEL(AttnFwdArgs args) {
  const int id = __builtin_amdgcn_workgroup_id_x(), lane = Lane::in_workgroup();
  const int split = id / kTilesOfRows;
  const int row_of_tile = id % kTilesOfRows * kRowsAtOnce + lane / kLanesOfRow;
  const int d = lane % kLanesOfRow * kLaneD;
  const AttnWork work = AttnWork::nth_tile(args, args.whole_tiles + split, TILE_ROWS, HEAD_DIM_V);
  const int row = work.q_start + row_of_tile;
  if (row_of_tile >= TILE_ROWS || row >= work.rows || int(work.column) + d >= args.head_dim_v)
    return;

  const int64_t first = int64_t(split) * args.parts * TILE_ROWS + row_of_tile;
  const auto* max_sum = (const Global<f32x2>*)args.partial_max_sum + first;
  const auto* part =
      (const Global<f32x4>*)((const Global<float>*)args.partial_o + first * HEAD_DIM_V + d);
  float max = -kInf, nan = 0;  // nan: the first one, which makes the row NaN
  for (int p = 0; p < args.parts; ++p) {
    const f32x2 x = max_sum[p * TILE_ROWS];
    if (x[1] != x[1] && nan == nan) nan = x[1];
    if (x[1] != 0) max = v_max_f32(max, x[0]);
  }
  float reference = max == -kInf ? 0 : max, sum = 0;
  f32x4 o[2] = {};
  for (int p = 0; p < args.parts; ++p) {
    const f32x2 x = max_sum[p * TILE_ROWS];
    if (x[1] == 0) continue;  // a part without a key may hold nothing
    const float weight = x[1] * exp2_of_any(x[0] - reference);
    sum += weight;
    for (int i = 0; i < 2; ++i) o[i] += part[int64_t(p) * TILE_ROWS * HEAD_DIM_V / 4 + i] * weight;
  }
  Sink sink;
  if (sum == 0) reference = -kInf;
  float scale = sum == 0 ? 0 : 1 / sum;
  if (args.sinks != 0) {
    sink = Sink(((const Global<float>*)args.sinks)[work.head_q]);
    scale = sink.join(reference, sum);
  }
  if (nan != nan) {
    sum = nan;
    scale = 1;
    for (auto& x : o) x = f32x4{nan, nan, nan, nan};
  }
  u32x4 out;
  for (int i = 0; i < 2; ++i)
    for (int n = 0; n < 2; ++n)
      out[2 * i + n] = round_any_pair<S>(scale * o[i][2 * n], scale * o[i][2 * n + 1]);
  *(Global<u32x4>*)(output_row(args, work, row) + d) = out;
  if (args.lse != 0 && work.column + d == 0)
    lse_of_rows(args, work)[row] = sink.log_sum_exp(reference, sum);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kRowsAtOnce, 0};
