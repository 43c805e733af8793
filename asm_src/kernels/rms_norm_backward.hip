// Gradients of RMS normalisation. With n = x / sqrt(mean(x^2) + eps) and g = dout * weight of a
// row:
//   dx = (g - n * mean(g * n)) / sqrt(mean(x^2) + eps) [+ dsum], rounded once to nearest even,
//   dweight = sum over the rows of a block of dout * n, in float32, in a fixed order.
//
// Workgroup: a block of rows, ROWS_AT_ONCE at a time with ROW_LANES lanes each; a lane has STEPS
// chunks of CHUNK columns. If SLICED, it reads whole rows but computes the gradients of a slice.
// Grid: x = groups * blocks of rows, y = ceil(columns / kColumns).
//
//   phase    memory, LDS               vector unit
//   sum      x, dout; the weight once  x * x, x * dout * weight: GradientSums
//   reduce   of_waves, a barrier       over lanes: PairOverRow
//   store    dsum, dx                  dx, round; dweight
//   end      of_rows, a barrier        over the rows at a time: WeightSums; dweight
//
// Registers: x, dout, weight; dweight in float32; 40 to 229 vector registers. LDS: of_waves and
// of_rows, up to 8192 bytes of LDS.
//
// The build defines KERNEL (its name), ELEMENT, the sizes above, SLICED, WEIGHT (Chunk or
// Float32Chunk).
#include "isa/uniform.h"
#include "norm/gradient_sums.h"
#include "norm/row_sums.h"
#include "norm/sums.h"
#include "norm/weight_sums.h"
// clang-format off
#include "args/rms_norm_backward.h"
// clang-format on

namespace {

constexpr int kRowLanes = ROW_LANES, kRowsAtOnce = ROWS_AT_ONCE, kLanes = kRowLanes * kRowsAtOnce;
constexpr int kSteps = STEPS, kStep = kRowLanes * CHUNK, kColumns = kStep * kSteps;
constexpr int kMinWaves = kLanes == 512 ? 2 : 4;  // of a SIMD
static_assert(kLanes % kWaveLanes == 0 && (kRowLanes <= kWaveLanes || kRowsAtOnce == 1));

using Part = Chunk<CHUNK>;
using Weight = WEIGHT<CHUNK>;
using Sums = PairOverRow<kRowLanes>;
using OfRow = Row<(kRowLanes >= kWaveLanes)>;
using OfWeights = WeightSums<kRowLanes, kRowsAtOnce, CHUNK, kSteps>;

// Of this lane, among the rows of its workgroup.
__device__ __forceinline__ int row_of_lane() {
  if constexpr (kRowsAtOnce == 1) return 0;
  return kRowLanes == kWaveLanes ? Lane::wave() : Lane::in_workgroup() / kRowLanes;
}

// Columns at the start of a step that another lane has as well.
__device__ __forceinline__ int others(int s, int columns) {
  const int beyond = s * kStep + Lane::in_workgroup() % kRowLanes * CHUNK + CHUNK - columns;
  return beyond < 0 ? 0 : beyond;
}

template <bool kWhole>
__device__ __forceinline__ void backward(const RmsNormBackwardArgs& args, Local<f32x2>* of_waves,
                                         Local<float>* of_rows) {
  using OfColumns = Columns<kRowLanes, CHUNK, kWhole>;
  const int slice = SLICED ? __builtin_amdgcn_workgroup_id_y() * kColumns : 0;
  const Row<true> weights(args.weight);
  const Scale scale(args.inverse_columns, args.eps);
  Sums over_row(of_waves);
  OfWeights dweight(slice, args.columns);
  const uint32_t id = __builtin_amdgcn_workgroup_id_x(), group = id / args.blocks;
  const uint32_t block = id - group * args.blocks;
  const int begin = block * args.block_rows, left = args.rows - begin;
  const int end = begin + (left < args.block_rows ? left : args.block_rows);
  Part x[kSteps], dout[kSteps];
  Weight weight[kSteps];
  for (int s = 0; s < kSteps; ++s)
    weight[s] = OfColumns(slice, args.columns).template load<Weight>(weights, s);

  for (int first = begin; first < end; first += kRowsAtOnce) {
    int count = args.columns;
    if constexpr (!kWhole) park(count);  // else masks of all rows would be kept, in too many SGPRs
    const OfColumns columns(slice, count);
    const int own = first + row_of_lane();
    const bool is_row = kRowsAtOnce == 1 || own < end;
    const uint32_t row = group * args.rows + (is_row ? own : end - 1);
    const OfRow x_row(args.x, args.x_stride, row), dout_row(args.dout, args.dout_stride, row);
    for (int s = 0; s < kSteps; ++s) {
      x[s] = columns.load(x_row, s);
      dout[s] = columns.load(dout_row, s);
    }
    GradientSums sums;
    if constexpr (SLICED) {
      const OfColumns all(0, count);
      for (int s = 0; s * kStep < args.columns; ++s)
        sums.add<false>(all.load(x_row, s), all.load(dout_row, s),
                        all.template load<Weight>(weights, s), others(s, count));
    } else {
      for (int s = 0; s < kSteps; ++s) sums.add<kWhole>(x[s], dout[s], weight[s], others(s, count));
    }
    const f32x2 of_row = over_row(sums.of_lane());
    const float factor = scale(of_row[0]), mean = of_row[1] * args.inverse_columns * factor;
    const OfRow dx_row(args.dx, args.dx_stride, row), dsum_row(args.dsum, args.dsum_stride, row);
    for (int s = 0; s < kSteps; ++s) {
      Part dx, dsum = {};
      if (args.dsum != 0) dsum = columns.load(dsum_row, s);
      for (int i = 0; i < Part::kPairs; ++i) {
        const f32x2 n = x[s].pair(i) * factor, d = dout[s].pair(i);
        const f32x2 y = (d * weight[s].pair(i) - n * mean) * factor;
        const f32x2 z = args.dsum != 0 ? y + dsum.pair(i) : y;
        dx.bits[i] = round_pair<kElement, Rounding::kNearestEven>(z[0], z[1]);
        dweight.add(s, i, is_row ? d * n : f32x2{});
      }
      if (is_row) columns.template store<false>(dx, dx_row, dx, dx_row, s);
    }
  }
  dweight.store((Global<float>*)args.dweight + int64_t(id) * args.columns, of_rows);
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, kMinWaves) KERNEL(RmsNormBackwardArgs args) {
  __shared__ f32x2 of_waves[Sums::kPairs];
  __shared__ float of_rows[OfWeights::kFloats];
  if (!SLICED && args.columns == kColumns)
    backward<true>(args, (Local<f32x2>*)of_waves, (Local<float>*)of_rows);
  else
    backward<false>(args, (Local<f32x2>*)of_waves, (Local<float>*)of_rows);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kRowsAtOnce, kColumns};
