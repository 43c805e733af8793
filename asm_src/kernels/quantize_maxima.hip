// maxima[workgroup] = the greatest magnitude of the workgroup's share of x; NaNs do not count.
//
// Workgroup: 16 waves. A tile is a slice of 16 rows, one row for each wave; a workgroup takes every
// args.workgroups-th tile. Grid: x = workgroups.
//
//   phase    memory, LDS                vector unit
//   tiles    x                          greatest: magnitudes
//   reduce   of_waves, one barrier      over lanes: max_over_row
//   store    maxima, lane 0
//
// Registers: place, greatest; 17 to 35 vector registers, 64 bytes of LDS. The build defines KERNEL
// (its name), FROM (type of x) and CHUNK (columns that a lane loads at once).
#include "quantize/columns.h"
#include "quantize/over_row.h"
// clang-format off
#include "args/quantize_maxima.h"
// clang-format on

namespace {
constexpr int kWaves = 16, kLanes = kWaves * kWaveLanes, kSteps = 4;
using Part = WideChunk<FROM, CHUNK>;
using Place = Columns<Part, CHUNK, kWaveLanes, kSteps, false>;
}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, 4) KERNEL(QuantizeMaximaArgs args) {
  __shared__ float of_waves[kWaves];
  const int step = args.workgroups, last = args.rows - 1;
  const int slices = (args.columns - 1) / Place::kColumns + 1;
  float greatest = 0;
  for (int tile = __builtin_amdgcn_workgroup_id_x(); tile < args.tiles; tile += step) {
    const int slice = tile % slices, row = tile / slices * kWaves + Lane::wave();
    const int known = row < last ? row : last;
    Place place(Lane::in_wave(), slice * Place::kColumns, args.columns);
    place.load((const Global<uint8_t>*)args.x + known * args.x_stride * Part::kBytes);
    greatest = place.greatest(greatest);
  }
  greatest = max_over_row<kLanes>(greatest, (Local<float>*)of_waves);
  if (Lane::in_workgroup() == 0)
    ((Global<float>*)args.maxima)[__builtin_amdgcn_workgroup_id_x()] = greatest;
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kWaves, Place::kColumns};
