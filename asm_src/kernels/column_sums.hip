// Sums of float32 rows, column by column, in one order: what blocks of rows have of the gradient of
// a weight.
//
// Workgroup: 4 waves. A wave has every kWaves-th row of kWaveLanes columns; the first one adds what
// they have. Grid: x = groups, y = ceil(columns / kWaveLanes).
//
//   phase    memory, LDS                               vector unit
//   sum      rows                                      sum += row, one column a lane
//   reduce   of_waves: a float a lane, one barrier     the sums of waves, in their order
//   store    a row of sums
//
// 7 vector registers, 1024 bytes of LDS. The build defines KERNEL (its name).
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
