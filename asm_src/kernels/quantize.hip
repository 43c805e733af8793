// y[row, column] = x[row, column] / scale in 8 bits, to nearest even: x times 1 / scale in float32,
// clamped to the greatest 8-bit number. The scale follows from the greatest magnitude of the row or
// of all of x, or is the caller's.
//
// Workgroup: ROWS_AT_ONCE rows with ROW_LANES lanes each, ROW_STEPS times; a lane has STEPS chunks
// of CHUNK columns of each. Grid: x = ceil(rows / (ROWS_AT_ONCE * ROW_STEPS)), y = 1, or, if the
// scale is not the row's, ceil(columns / (ROW_LANES * CHUNK * STEPS)).
//
//   phase    memory, LDS                        vector unit
//   load     x; scales, if given
//   scale    of_waves, one barrier              greatest magnitude over lanes: max_over_row
//   store    y, the scale                       multiply, clamp, round
//
// Registers: place[ROW_STEPS], the lane's chunks; 24 to 88 vector registers. LDS: of_waves, a float
// per wave, up to 64 bytes of LDS. LOOPS: rows may be longer than that; they are read twice then.
//
// The build defines KERNEL (its name), FROM (type of x), TO (E4m3 or E5m2), the sizes above, LOOPS,
// PARAMETERS and ARGUMENTS (of the struct).
#include "quantize/columns.h"
#include "quantize/over_row.h"
// clang-format off
#include "args/quantize.h"
// clang-format on

namespace {

constexpr int kRowLanes = ROW_LANES, kRowsAtOnce = ROWS_AT_ONCE, kLanes = kRowLanes * kRowsAtOnce;
constexpr int kRowSteps = ROW_STEPS, kRows = kRowsAtOnce * kRowSteps, kSteps = STEPS;
constexpr int kWaves = kLanes / kWaveLanes, kColumns = kRowLanes * CHUNK * kSteps;
constexpr bool kLoops = LOOPS;
static_assert(kLanes % kWaveLanes == 0 && (kRowLanes <= kWaveLanes || kRows == 1));
static_assert(!kLoops || kRows == 1);

using Part = WideChunk<FROM, CHUNK>;

// Of this lane, among the rows of its workgroup.
__device__ __forceinline__ int row_of_lane() {
  if constexpr (kRowsAtOnce == 1) return 0;
  return kRowLanes == kWaveLanes ? Lane::wave() : Lane::in_workgroup() / kRowLanes;
}

// Of all of x, of maxima of its parts: every wave reads all of them. As whole numbers they have the
// same order, since none is negative or NaN.
__device__ __forceinline__ float greatest_of(const QuantizeArgs& args) {
  constexpr int kAtOnce = 5;
  const auto* maxima = (const Global<uint32_t>*)args.scales;
  uint32_t greatest = 0;
  for (int first = 0; first < args.maxima; first += kAtOnce * kWaveLanes) {
    uint32_t x[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = first + i * kWaveLanes + Lane::in_wave(), end = args.maxima - 1;
      x[i] = maxima[at < end ? at : end];
    }
    for (int i = 0; i < kAtOnce; ++i) greatest = greatest > x[i] ? greatest : x[i];
  }
  return max_over_lanes<kWaveLanes>(__builtin_bit_cast(float, greatest));
}

// kOfRow: a scale is made of a row. No number is beyond the greatest one then: the errors of three
// roundings to float32 are less than half of what one unit of 8 bits is there.
template <bool kOfRow, bool kWhole>
__device__ __forceinline__ void quantize(const QuantizeArgs& args, Local<float>* of_waves) {
  using Place = Columns<Part, CHUNK, kRowLanes, kSteps, kWhole>;
  const int lane = Lane::in_workgroup() % kRowLanes, last = args.rows - 1;
  const int first_row = __builtin_amdgcn_workgroup_id_x() * kRows + row_of_lane();
  const int first = kOfRow ? 0 : __builtin_amdgcn_workgroup_id_y() * kColumns;
  Place place[kRowSteps];
  const Global<uint8_t>* x[kRowSteps];
  int known[kRowSteps];
  for (int r = 0; r < kRowSteps; ++r) {
    const int row = first_row + r * kRowsAtOnce;
    known[r] = row < last ? row : last;
    x[r] = (const Global<uint8_t>*)args.x + known[r] * args.x_stride * Part::kBytes;
    place[r] = Place(lane, first, args.columns);
    place[r].load(x[r]);
  }
  float of_all = 0;
  if (!kOfRow && args.maxima != 0) of_all = scale_for<TO>(greatest_of(args));
  for (int r = 0; r < kRowSteps; ++r) {
    const int row = first_row + r * kRowsAtOnce;
    float scale = of_all;
    if constexpr (kOfRow) {
      float greatest = place[r].greatest(0);
      if constexpr (kLoops)
        while (place[r].next()) {
          place[r].load(x[r]);
          greatest = place[r].greatest(greatest);
        }
      scale = scale_for<TO>(max_over_row<kRowLanes>(greatest, of_waves));
    } else if (args.maxima == 0) {
      scale = ((const Global<float>*)args.scales)[int64_t(known[r]) * args.scale_stride];
    }
    if (row > last) continue;
    const float inverse = 1 / scale;
    auto* y = (Global<uint8_t>*)args.y + row * args.y_stride;
    if constexpr (kOfRow && kLoops) {
      place[r].restart();
      if (args.columns > kColumns) place[r].load(x[r]);
    }
    place[r].template store<TO, !kOfRow>(y, inverse);
    if constexpr (kOfRow && kLoops)
      while (place[r].next()) {
        place[r].load(x[r]);
        place[r].template store<TO, !kOfRow>(y, inverse);
      }
    if (args.scale_out != 0 && lane == 0 && (kOfRow || (row == 0 && first == 0)))
      ((Global<float>*)args.scale_out)[row] = scale;
  }
}

template <bool kOfRow>
__device__ __forceinline__ void quantize(const QuantizeArgs& args, Local<float>* of_waves) {
  const bool is_whole = kOfRow ? args.columns == kColumns : args.columns % kColumns == 0;
  if (__builtin_expect(is_whole, true))
    quantize<kOfRow, true>(args, of_waves);
  else
    quantize<kOfRow, false>(args, of_waves);
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, (kWaves > 4 ? kWaves / 4 : 4)) KERNEL(PARAMETERS) {
  __shared__ float of_waves[kWaves];
  const QuantizeArgs args{ARGUMENTS};
  if (__builtin_expect(args.scales == 0, true))
    quantize<true>(args, (Local<float>*)of_waves);
  else
    quantize<false>(args, (Local<float>*)of_waves);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kRows, kColumns};
