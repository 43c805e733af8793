// y = x / scale in 8 bits, as quantize.hip, with one scale for each block of 128 rows and columns,
// from its greatest magnitude.
//
// Workgroup: 4 waves, one block; a lane has kSteps chunks of CHUNK columns. Grid: x =
// ceil(rows / 128), y = columns / 128.
//
//   phase    memory, LDS                        vector unit
//   load     x
//   scale    of_waves, one barrier              greatest magnitude over lanes: max_over_row
//   store    y, the scale                       multiply, round
//
// Registers: place[kSteps], the lane's chunks; 58 to 90 vector registers. LDS: of_waves,
// 16 bytes of LDS.
//
// The build defines KERNEL (its name), FROM (type of x), TO, CHUNK, PARAMETERS and ARGUMENTS. Of
// the struct scales, maxima and scale_stride are not used; scale_out is [ceil(rows / 128),
// columns / 128]. Columns are a multiple of 128.
#include "quantize/columns.h"
#include "quantize/over_row.h"
// clang-format off
#include "args/quantize.h"
// clang-format on

namespace {

constexpr int kBlock = 128, kWaves = 4, kLanes = kWaves * kWaveLanes, kRowLanes = kBlock / CHUNK;
constexpr int kRowsAtOnce = kLanes / kRowLanes, kSteps = kBlock / kRowsAtOnce;
using Part = WideChunk<FROM, CHUNK>;
using Place = Columns<Part, CHUNK, kRowLanes, 1, true>;

__device__ __forceinline__ void quantize_block(const QuantizeArgs& args, Local<float>* of_waves) {
  const int block = __builtin_amdgcn_workgroup_id_x(), of_row = __builtin_amdgcn_workgroup_id_y();
  const int lane = Lane::in_workgroup(), first = block * kBlock + lane / kRowLanes;
  const int last = args.rows - 1;
  Place place[kSteps];
  for (int s = 0; s < kSteps; ++s) {
    const int row = first + s * kRowsAtOnce, known = row < last ? row : last;
    place[s] = Place(lane % kRowLanes, of_row * kBlock, args.columns);
    place[s].load((const Global<uint8_t>*)args.x + known * args.x_stride * Part::kBytes);
  }
  float greatest = 0;
  for (const Place& one : place) greatest = one.greatest(greatest);
  const float scale = scale_for<TO>(max_over_row<kLanes>(greatest, of_waves)), inverse = 1 / scale;
  for (int s = 0; s < kSteps; ++s) {
    const int row = first + s * kRowsAtOnce;
    if (row <= last)
      place[s].template store<TO, false>((Global<uint8_t>*)args.y + row * args.y_stride, inverse);
  }
  if (lane == 0)
    ((Global<float>*)args.scale_out)[block * int64_t(args.columns / kBlock) + of_row] = scale;
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, 4) KERNEL(PARAMETERS) {
  __shared__ float of_waves[kWaves];
  quantize_block({ARGUMENTS}, (Local<float>*)of_waves);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kBlock, kBlock};
