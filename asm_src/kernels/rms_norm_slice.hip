// rms_norm.hip for few rows that are long: many workgroups a row, each of which reads all of the row
// and writes a slice of it. Reading is what they share least: a CU takes 64 bytes a clk from its L1,
// while the arithmetic of a slice is a part of that of the row.
//
// The build defines KERNEL (its name), ELEMENT, LANES, STEPS (chunks of 8 columns that a lane has of
// a row) and WIDTH (columns that it has of the slice), PARAMETERS and ARGUMENTS as there.
// Grid: x = rows, y = ceil(columns / (LANES * WIDTH)).
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

using Part = Chunk<8>;
using Own = Chunk<WIDTH>;

using OfRow = Row<true>;

template <class T, class P>
__device__ __forceinline__ void store(const T& part, const OfRow& row, const P& place) {
  auto* to = row.at(place.bytes(0));
  if (__builtin_expect(place.whole(0), true))
    part.store(to);
  else
    part.store_without(place.twice(0), to);
}

template <bool kResidual>
__device__ __forceinline__ void rms_norm(const RmsNormArgs& args, Local<float>* of_waves) {
  Outputs outputs;
  outputs.load();
  const Columns<kLanes, 8> place(0, args.columns);
  const Columns<kLanes, WIDTH> slice(__builtin_amdgcn_workgroup_id_y() * kLanes * WIDTH,
                                     args.columns);
  const uint32_t row = __builtin_amdgcn_workgroup_id_x();
  const OfRow x_row(args.x, args.x_stride, row);
  const OfRow residual_row(args.residual, args.residual_stride, row);
  Part x[kSteps], residual[kSteps];
  Own own, own_residual;
  for (int s = 0; s < kSteps; ++s) {
    x[s] = Part::load(x_row.at(place.bytes(s)));
    if constexpr (kResidual) residual[s] = Part::load(residual_row.at(place.bytes(s)));
  }
  own = Own::load(x_row.at(slice.bytes(0)));
  if constexpr (kResidual) own_residual = Own::load(residual_row.at(slice.bytes(0)));
  const Own weight = Own::load(OfRow(args.weight, 0, 0).at(slice.bytes(0)));
  for (int s = 0; s < kSteps; ++s) x_row.keep(place.bytes(s));
  x_row.keep(slice.bytes(0));

  SumOfSquares squares;
  for (int s = 0; s < kSteps; ++s) {
    if constexpr (kResidual) x[s] = x[s] + residual[s];
    if (!__builtin_expect(place.whole(s), true)) x[s] = x[s].without(place.twice(s));
    squares.add(x[s]);
  }
  if constexpr (kResidual) own = own + own_residual;
  outputs.wait();
  const float inverse = v_rcp_f32(float(args.columns));
  const float mean = squares.over<kLanes>(of_waves) * inverse;
  const float scale = inverse_root(mean + args.eps);
  if constexpr (kResidual) store(own, outputs.sum<OfRow>(row), slice);
  store(own.scaled(scale, weight), outputs.out<OfRow>(row), slice);
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, kWaves / 4) KERNEL(PARAMETERS) {
  __shared__ f32x4 of_waves[(kWaves + 3) / 4];
  const RmsNormArgs args{ARGUMENTS};
  if (__builtin_expect(args.residual != 0, true))
    rms_norm<true>(args, (Local<float>*)of_waves);
  else
    rms_norm<false>(args, (Local<float>*)of_waves);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {1, kLanes * WIDTH};
