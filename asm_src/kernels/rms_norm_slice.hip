// rms_norm.hip for few rows that are long: many workgroups a row, each of which reads all of the
// row and writes a slice of it. Reading is what they share least: a CU takes 64 bytes a clk from
// its L1, while the arithmetic of a slice is a part of that of the row.
//
// The build defines KERNEL (its name), ELEMENT, LANES, STEPS (chunks of 8 columns that a lane has
// of a row) and WIDTH (columns that it has of the slice), PARAMETERS and ARGUMENTS as there. Grid:
// x = rows, y = ceil(columns / (LANES * WIDTH)).
//
//   phase    memory                               vector unit            matrix unit
//   load     x, residual; of the slice besides:
//            x, residual, weight
//   sum                                           x + residual, round    squares, as they come
//   reduce   LDS, over waves                      over lanes
//   store    sum, out                             scale, weigh, round
#include "norm/outputs.h"
#include "norm/sums.h"

namespace {

constexpr int kLanes = LANES, kSteps = STEPS, kWaves = kLanes / kWaveLanes;
constexpr bool kResidual = RESIDUAL;

using Part = Chunk<8>;
using Own = Chunk<WIDTH>;
using Place = Columns<kLanes, 8>;
using Slice = Columns<kLanes, WIDTH>;
using Sum = OverRow<kLanes>;
using OfRow = Row<true>;

__device__ __forceinline__ void rms_norm(const RmsNormArgs& args, Local<f32x4>* of_waves) {
  Outputs outputs;
  outputs.load();
  const uint32_t row = __builtin_amdgcn_workgroup_id_x();
  const Place place(0, args.columns);
  const Slice slice(__builtin_amdgcn_workgroup_id_y() * Slice::kStep, args.columns);
  const OfRow x_row(args.x, args.x_stride, row);
  Part x[kSteps], residual[kSteps];
  Own own, own_residual, weight;
  x[0] = Part::load(x_row.at(place.bytes(0)));
  const OfRow residual_row(args.residual, args.residual_stride, row), weights(args.weight, 0, 0);
  for (int s = 0; s < kSteps; ++s) {
    if (s > 0) x[s] = Part::load(x_row.at(place.bytes(s)));
    if constexpr (kResidual) residual[s] = Part::load(residual_row.at(place.bytes(s)));
  }
  own = Own::load(x_row.at(slice.bytes(0)));
  if constexpr (kResidual) own_residual = Own::load(residual_row.at(slice.bytes(0)));
  weight = Own::load(weights.at(slice.bytes(0)));
  for (int s = 0; s < kSteps; ++s) x_row.keep(place.bytes(s));
  x_row.keep(slice.bytes(0));
  const Scale scale(args.columns, args.eps);
  const Sum over_row(of_waves);
  const Part mask = place.mask();

  SumOfSquares squares;
  for (int s = 0; s < kSteps; ++s) {
    if constexpr (kResidual) x[s] = x[s] + residual[s];
    if (__builtin_expect(place.whole(s), true))
      squares.add(x[s]);
    else if (!place.none(s))
      squares.add(x[s] & mask);
  }
  if constexpr (kResidual) own = own + own_residual;
  Product product(own, weight);
  product.settle();
  outputs.wait();
  const OfRow out = outputs.out<OfRow>(row), sum = outputs.sum<OfRow>(row);
  const Own y = product.times(scale(over_row(squares)));
  const uint32_t at = slice.bytes(0);
  if (__builtin_expect(slice.whole(0), true)) {
    if constexpr (kResidual) own.store(sum.at(at));
    y.store(out.at(at));
  } else {
    if constexpr (kResidual) slice.store(own, sum.at(at), 0);
    slice.store(y, out.at(at), 0);
  }
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, (kWaves + 3) / 4) KERNEL(PARAMETERS) {
  __shared__ f32x4 of_waves[Sum::kQuads];
  rms_norm({ARGUMENTS}, (Local<f32x4>*)of_waves);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {1, Slice::kStep};
