// to[g, column] = sum over rows of from[g, row, column], float32, always in the same order: adds up
// what the blocks of rows contribute to the gradient of a weight.
//
// Workgroup: 4 waves, kWaveLanes columns. Each wave adds every kWaves-th row; the first wave adds
// the four results. Grid: x = groups, y = ceil(columns / kWaveLanes).
//
//   phase    memory, LDS                                 vector unit
//   sum      rows                                        sum += row, one column per lane
//   reduce   of_waves: one float per lane, one barrier   sums of the waves, in order
//   store    one row of sums
//
// Registers: sum; 7 vector registers, 1024 bytes of LDS. The build defines KERNEL (its name).
#include "isa/wait.h"
// clang-format off
#include "args/column_sums.h"
// clang-format on

namespace {
constexpr int kWaves = 4, kLanes = kWaves * kWaveLanes;
}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, 8) KERNEL(ColumnSumsArgs args) {
  __shared__ float of_waves[kLanes];
  const int column = __builtin_amdgcn_workgroup_id_y() * kWaveLanes + Lane::in_wave();
  const int64_t group = __builtin_amdgcn_workgroup_id_x();
  const bool is_column = column < args.columns;
  float sum = 0;
  if (is_column) {
    const auto* from = (const Global<float>*)args.from + group * args.rows * args.columns + column;
    for (int row = Lane::wave(); row < args.rows; row += kWaves)
      sum += from[int64_t(row) * args.columns];
  }
  auto* const sums = (Local<float>*)of_waves;
  sums[Lane::in_workgroup()] = sum;
  s_barrier();
  if (Lane::wave() != 0 || !is_column) return;
  for (int wave = 1; wave < kWaves; ++wave) sum += sums[wave * kWaveLanes + Lane::in_wave()];
  ((Global<float>*)args.to)[group * args.columns + column] = sum;
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kWaveLanes, 0};
