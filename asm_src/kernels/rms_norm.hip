// out = x * weight / sqrt(mean(x^2) + eps) along each row, in float32, rounded once to nearest even.
// With a residual, x is x + residual, rounded to the element type, which goes to `sum`.
//
// The build defines KERNEL (its name), ELEMENT, ROW_LANES (lanes of a row), ROWS_AT_ONCE (such lanes
// of a workgroup), ROW_STEPS (rows of a lane), STEPS (chunks of a row that a lane holds), CHUNK (its
// columns), and from the struct of the arguments PARAMETERS and ARGUMENTS: each field is a parameter
// of its own, so that the first ones can come in SGPRs.
// Grid: x = ceil(rows / (ROWS_AT_ONCE * ROW_STEPS)).
//
//   phase    memory                   vector unit               matrix unit
//   load     x, residual, weight
//   sum                               x + residual, round       squares, as they come
//   reduce   LDS, over waves          over lanes
//   store    sum, out                 scale, weigh, round
//
// 4 registers a chunk of x, of residual, and of weight. Squares beyond float32 make the mean
// infinite and the row 0, as they do in float32.
#include "norm/outputs.h"
#include "norm/sums.h"

namespace {

constexpr int kRowLanes = ROW_LANES, kRowsAtOnce = ROWS_AT_ONCE, kLanes = kRowLanes * kRowsAtOnce;
constexpr int kRowSteps = ROW_STEPS, kRows = kRowsAtOnce * kRowSteps, kSteps = STEPS;
constexpr int kWaves = kLanes / kWaveLanes;
static_assert(kLanes % kWaveLanes == 0 && (kRowLanes <= kWaveLanes || kRows == 1));

using Part = Chunk<CHUNK>;
using Place = Columns<kRowLanes, CHUNK>;
using OfRow = Row<(kRowLanes >= kWaveLanes)>;
using OfWeight = Row<true>;

// Where registers do not suffice for x, residual and weight at once, the weight comes last.
constexpr int kMinWaves = kWaves > 4 ? kWaves / 4 : 4;  // of a SIMD
constexpr bool kLateWeight = Part::kPairs * kSteps * (2 * kRowSteps + 1) > 512 / kMinWaves * 2 / 3;

// Of this lane, among the rows of its workgroup.
__device__ __forceinline__ int row_of_lane() {
  if constexpr (kRowsAtOnce == 1) return 0;
  return kRowLanes == kWaveLanes ? Lane::wave() : Lane::in_workgroup() / kRowLanes;
}

template <class R>
__device__ __forceinline__ void load(Part (&parts)[kSteps], const R& row, const Place& place) {
  for (int s = 0; s < kSteps; ++s) parts[s] = Part::load(row.at(place.bytes(s)));
  for (int s = 0; s < kSteps; ++s) row.keep(place.bytes(s));
}

__device__ __forceinline__ void store(const Part& part, const OfRow& row, const Place& place,
                                      int s) {
  auto* to = row.at(place.bytes(s));
  if (__builtin_expect(place.whole(s), true))
    part.store(to);
  else
    part.store_without(place.twice(s), to);
}

template <bool kResidual>
__device__ __forceinline__ void rms_norm(const RmsNormArgs& args, Local<float>* of_waves) {
  Outputs outputs;
  outputs.load();
  const Place place(0, args.columns);
  const int first = __builtin_amdgcn_workgroup_id_x() * kRows + row_of_lane(), last = args.rows - 1;
  uint32_t row[kRowSteps];
  Part x[kRowSteps][kSteps], residual[kRowSteps][kSteps], weight[kSteps];
  for (int r = 0; r < kRowSteps; ++r) {
    const int own = first + r * kRowsAtOnce;
    row[r] = own < last ? own : last;
    load(x[r], OfRow(args.x, args.x_stride, row[r]), place);
    if constexpr (kResidual)
      load(residual[r], OfRow(args.residual, args.residual_stride, row[r]), place);
  }
  if constexpr (!kLateWeight) load(weight, OfWeight(args.weight, 0, 0), place);

  SumOfSquares squares[kRowSteps];
  for (int r = 0; r < kRowSteps; ++r)
    for (int s = 0; s < kSteps; ++s) {
      if constexpr (kResidual) x[r][s] = x[r][s] + residual[r][s];
      Part once = x[r][s];
      if (!__builtin_expect(place.whole(s), true)) once = once.without(place.twice(s));
      squares[r].add(once);
    }
  if constexpr (kLateWeight) load(weight, OfWeight(args.weight, 0, 0), place);
  outputs.wait();
  const float inverse = v_rcp_f32(float(args.columns));
  for (int r = 0; r < kRowSteps; ++r) {
    const float mean = squares[r].template over<kRowLanes>(of_waves) * inverse;
    const float scale = inverse_root(mean + args.eps);
    if (first + r * kRowsAtOnce <= last)
      for (int s = 0; s < kSteps; ++s) {
        if constexpr (kResidual) store(x[r][s], outputs.sum<OfRow>(row[r]), place, s);
        store(x[r][s].scaled(scale, weight[s]), outputs.out<OfRow>(row[r]), place, s);
      }
  }
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, kMinWaves) KERNEL(PARAMETERS) {
  __shared__ f32x4 of_waves[(kWaves + 3) / 4];
  const RmsNormArgs args{ARGUMENTS};
  if (__builtin_expect(args.residual != 0, true))
    rms_norm<true>(args, (Local<float>*)of_waves);
  else
    rms_norm<false>(args, (Local<float>*)of_waves);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kRows, kSteps * Place::kStep};
