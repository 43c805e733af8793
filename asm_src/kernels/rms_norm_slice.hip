// rms_norm.hip for few, long rows: several workgroups share a row; each reads all of it and writes
// a slice. Reading everything costs least: a CU takes 64 bytes per clk from its L1, while the
// arithmetic on a slice is a fraction of that on the row.
//
// Workgroup: LANES lanes; a lane has STEPS chunks of 8 columns of the row and OWN_STEPS of WIDTH
// columns of the slice. Grid: x = rows, y = ceil(columns / (LANES * WIDTH * OWN_STEPS)).
//
//   phase    memory, LDS                          vector unit            matrix unit
//   load     x, residual; for the slice also
//            x, residual, weight
//   sum                                           x + residual, round    squares: SumOfSquares
//   reduce   of_waves, one barrier                over lanes: OverRow
//   store    sum, out                             scale, weight, round
//
// Registers: x, residual: the row; own, own_residual, weight: the slice; 23 to 139 vector
// registers. LDS: of_waves, up to 16 bytes of LDS. in_order() keeps the order of the source.
//
// The build defines KERNEL (its name), ELEMENT, the sizes above, RESIDUAL, WEIGHT, PARAMETERS and
// ARGUMENTS as for rms_norm.hip.
#include "norm/outputs.h"
#include "norm/sums.h"
#include "norm/weight.h"

namespace {

constexpr int kLanes = LANES, kSteps = STEPS, kWidth = WIDTH, kWaves = kLanes / kWaveLanes;
constexpr int kOwnSteps = OWN_STEPS, kSliceColumns = kLanes * kWidth * kOwnSteps;
constexpr int kColumns = kLanes * kSteps * 8;
static_assert(kColumns % kSliceColumns == 0);
constexpr bool kResidual = RESIDUAL;

using Part = Chunk<8>;
using Own = Chunk<kWidth>;
using Weight = WEIGHT<kWidth>;
using Sum = OverRow<kLanes>;
using OfRow = Row<true>;

// What is above in the source is above in the code.
__device__ __forceinline__ void in_order() { __builtin_amdgcn_sched_barrier(0); }

template <bool kWhole>
__device__ __forceinline__ void rms_norm(const RmsNormArgs& args, Local<f32x4>* of_waves) {
  Outputs outputs;
  outputs.load();
  const uint32_t row = __builtin_amdgcn_workgroup_id_x();
  const Columns<kLanes, 8, kWhole> columns(0, args.columns);
  const Columns<kLanes, kWidth, kWhole> slice(__builtin_amdgcn_workgroup_id_y() * kSliceColumns,
                                              args.columns);
  Part x[kSteps], residual[kSteps];
  Own own[kOwnSteps], own_residual[kOwnSteps], y[kOwnSteps];
  Weight weight[kOwnSteps];
  const OfRow x_row(args.x, args.x_stride, row);
  x[0] = columns.load(x_row, 0);
  in_order();
  OfRow residual_row;
  if constexpr (kResidual) residual_row = OfRow(args.residual, args.residual_stride, row);
  for (int s = 0; s < kSteps; ++s) {
    if (s > 0) x[s] = columns.load(x_row, s);
    if constexpr (kResidual) residual[s] = columns.load(residual_row, s);
    in_order();
  }
  const OfRow weights(args.weight);
  for (int s = 0; s < kOwnSteps; ++s) {
    own[s] = slice.load(x_row, s);
    if constexpr (kResidual) own_residual[s] = slice.load(residual_row, s);
  }
  for (int s = 0; s < kOwnSteps; ++s) weight[s] = slice.template load<Weight>(weights, s);
  for (int s = 0; s < kSteps; ++s) columns.keep(x_row, s);
  for (int s = 0; s < kOwnSteps; ++s) slice.keep(x_row, s);
  const Scale scale(args.inverse_columns, args.eps);
  Sum over_row(of_waves);

  SumOfSquares squares;
  for (int s = 0; s < kSteps; ++s) {
    if constexpr (kResidual) x[s] = x[s] + residual[s];
    squares.add(columns.alone(x[s], s));
    if constexpr (kSteps > 1) in_order();
  }
  if constexpr (kResidual)
    for (int s = 0; s < kOwnSteps; ++s) own[s] = own[s] + own_residual[s];
  outputs.wait();
  in_order();
  over_row.begin(squares);
  in_order();
  const OfRow out = outputs.out<OfRow>(row), sum = outputs.sum<OfRow>(row);
  Product<kWidth> first(own[0], weight[0]);
  first.settle();
  in_order();
  const float factor = scale(over_row.end());
  y[0] = first.times(factor);
  for (int s = 1; s < kOwnSteps; ++s) y[s] = Product(own[s], weight[s]).times(factor);
  for (int s = 0; s < kOwnSteps; ++s) slice.template store<kResidual>(y[s], out, own[s], sum, s);
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, (kWaves + 3) / 4) KERNEL(PARAMETERS) {
  __shared__ f32x4 of_waves[Sum::kQuads];
  const RmsNormArgs args{ARGUMENTS};
  if (__builtin_expect(args.columns == kColumns, true))
    rms_norm<true>(args, (Local<f32x4>*)of_waves);
  else
    rms_norm<false>(args, (Local<f32x4>*)of_waves);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {1, kSliceColumns};
