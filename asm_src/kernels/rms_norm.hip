// out = x * weight / sqrt(mean(x^2) + eps) along each row, in float32, rounded once to nearest
// even. With a residual, x is x + residual, rounded to the element type and stored to `sum`.
//
// Workgroup: ROWS_AT_ONCE rows with ROW_LANES lanes each, ROW_STEPS times; a lane has STEPS chunks
// of CHUNK columns of each. Grid: x = ceil(rows / (ROWS_AT_ONCE * ROW_STEPS)).
//
//   phase    memory, LDS              vector unit               matrix unit
//   load     x, residual, weight
//   sum                               x + residual, round       squares: SumOfSquares
//   reduce   of_waves, one barrier    over lanes: OverRow
//   store    sum, out                 scale, weight, round
//
// Registers: x, residual and weight, 4 for each chunk, 8 for one of a float32 weight; 12 to 128
// vector registers. LDS: of_waves, if several waves share a row, up to 64 bytes of LDS. Squares
// that overflow float32 make the mean infinite and the row 0, as in float32.
//
// The build defines KERNEL (its name), ELEMENT, the sizes above, WEIGHT (Chunk or Float32Chunk),
// PARAMETERS and ARGUMENTS: each field of the struct is a parameter of its own, so that the first
// ones arrive in SGPRs.
#include "isa/uniform.h"
#include "norm/outputs.h"
#include "norm/sums.h"
#include "norm/through.h"
#include "norm/weight.h"

#define INLINE __attribute__((always_inline))

namespace {

constexpr int kRowLanes = ROW_LANES, kRowsAtOnce = ROWS_AT_ONCE, kLanes = kRowLanes * kRowsAtOnce;
constexpr int kRowSteps = ROW_STEPS, kRows = kRowsAtOnce * kRowSteps, kSteps = STEPS;
constexpr int kWaves = kLanes / kWaveLanes, kColumns = kRowLanes * CHUNK * kSteps;
static_assert(kLanes % kWaveLanes == 0 && (kRowLanes <= kWaveLanes || kRows == 1));

using Part = Chunk<CHUNK>;
using Weight = WEIGHT<CHUNK>;
using Sum = OverRow<kRowLanes>;
using OfRow = Row<(kRowLanes >= kWaveLanes)>;
using OfWeight = Row<true>;

// Where registers do not suffice for x, residual and weight at once, the weight comes last.
constexpr int kMinWaves = kWaves > 4 ? kWaves / 4 : 4;  // of a SIMD
constexpr bool kLateWeight =
    kSteps * (2 * kRowSteps * sizeof(Part) + sizeof(Weight)) > 4 * (512 / kMinWaves * 2 / 3);

constexpr int kStep = kRowLanes * CHUNK * 2;  // bytes

// Loaded by here, and what was loaded before.
[[maybe_unused]] __device__ __forceinline__ void wanted(const Weight& weight) {
  uint32_t last;
  __builtin_memcpy(&last, (const char*)&weight + sizeof weight - 4, 4);
  touched(last);
}

// Of this lane, among the rows of its workgroup.
__device__ __forceinline__ int row_of_lane() {
  if constexpr (kRowsAtOnce == 1) return 0;
  return kRowLanes == kWaveLanes ? Lane::wave() : Lane::in_workgroup() / kRowLanes;
}

template <bool kResidual, bool kWhole>
__device__ __forceinline__ void rms_norm(const RmsNormArgs& args, Local<f32x4>* of_waves) {
  Outputs outputs;
  outputs.load();
  const Columns<kRowLanes, CHUNK, kWhole> columns(0, args.columns);
  const int first = __builtin_amdgcn_workgroup_id_x() * kRows + row_of_lane(), last = args.rows - 1;
  const OfWeight weights(args.weight);
  uint32_t row[kRowSteps];
  OfRow x_row[kRowSteps], residual_row[kRowSteps];
  Part x[kRowSteps][kSteps], residual[kRowSteps][kSteps];
  Weight weight[kSteps];
  for (int r = 0; r < kRowSteps; ++r) {
    const int own = first + r * kRowsAtOnce;
    row[r] = own < last ? own : last;
    x_row[r] = OfRow(args.x, args.x_stride, row[r]);
    for (int s = 0; s < kSteps; ++s) x[r][s] = columns.load(x_row[r], s);
    if constexpr (kResidual) {
      residual_row[r] = OfRow(args.residual, args.residual_stride, row[r]);
      for (int s = 0; s < kSteps; ++s) residual[r][s] = columns.load(residual_row[r], s);
    }
  }
  if constexpr (!kLateWeight)
    for (int s = 0; s < kSteps; ++s) weight[s] = columns.template load<Weight>(weights, s);
  for (int s = 0; s < kSteps; ++s) {
    for (int r = 0; r < kRowSteps; ++r) {
      columns.keep(x_row[r], s);
      if constexpr (kResidual) columns.keep(residual_row[r], s);
    }
    columns.template keep<Weight>(weights, s);
  }
  const Scale scale(args.inverse_columns, args.eps);
  Sum over_row(of_waves);

  SumOfSquares squares[kRowSteps];
  for (int r = 0; r < kRowSteps; ++r)
    for (int s = 0; s < kSteps; ++s) {
      if constexpr (kResidual) x[r][s] = x[r][s] + residual[r][s];
      squares[r].add(columns.alone(x[r][s], s));
    }
  if constexpr (kLateWeight) {
    for (int s = 0; s < kSteps; ++s) weight[s] = columns.template load<Weight>(weights, s);
    ordered::keep_by_nop(Lane::in_workgroup());
  }
  outputs.wait();
  for (int r = 0; r < kRowSteps; ++r) {
    over_row.begin(squares[r]);
    const OfRow out = outputs.out<OfRow>(row[r]), sum = outputs.sum<OfRow>(row[r]);
    const float factor = scale(over_row.end());
    if (first + r * kRowsAtOnce > last) continue;
    // Here before the first store: the counter of loads is that of stores, too.
    constexpr bool kMay = kWhole && kRowLanes >= kWaveLanes && CHUNK == 8;
    if constexpr (kMay) wanted(weight[kSteps - 1]);
    through_or_not<kMay>(args.rows >= kRowsThrough<kColumns>, [&](auto through) INLINE {
      for (int s = 0; s < kSteps; ++s) {
        const Part y = Product(x[r][s], weight[s]).times(factor);
        if constexpr (decltype(through)::value) {
          store_through(y, out, s * kStep);
          if constexpr (kResidual) store_through(x[r][s], sum, s * kStep);
        } else {
          columns.template store<kResidual>(y, out, x[r][s], sum, s);
        }
      }
    });
  }
}

template <bool kResidual>
__device__ __forceinline__ void rms_norm(const RmsNormArgs& args, Local<f32x4>* of_waves) {
  if (__builtin_expect(args.columns == kColumns, true))
    rms_norm<kResidual, true>(args, of_waves);
  else
    rms_norm<kResidual, false>(args, of_waves);
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, kMinWaves) KERNEL(PARAMETERS) {
  __shared__ f32x4 of_waves[Sum::kQuads];
  const RmsNormArgs args{ARGUMENTS};
  if (__builtin_expect(args.residual != 0, true))
    rms_norm<true>(args, (Local<f32x4>*)of_waves);
  else
    rms_norm<false>(args, (Local<f32x4>*)of_waves);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kRows, kColumns};
