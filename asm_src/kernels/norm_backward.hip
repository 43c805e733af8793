// Gradients of normalised rows. With r = 1 / sqrt(variance + eps), n = (h - mean) * r and g =
// dout * weight of a row:
//   dh = (g - mean(g) - n * mean(g * n)) * r [+ dsum],
//   dx = dh where dropout kept x, rounded once to nearest even; dresidual = dh,
//   dweight = sum over the rows of a block of dout * n, dbias of dout, float32, in a fixed order.
// If not `centred` both means count as 0. h is the stored sum, or computed from x again.
//
// Workgroup: a block of rows, ROWS_AT_ONCE at a time with ROW_LANES lanes each; a lane has STEPS
// chunks of CHUNK columns. Grid: x = groups * blocks of rows.
//
//   phase    memory, LDS                       vector unit
//   load     x, dout; the weight once          Philox, dropout
//   reduce   shared->of_waves, shared->pairs   mean, variance; then g, g * n; over lanes
//   store    dsum, dx, dresidual               dh, dropout, round; dweight, dbias
//   end      shared->of_rows; dweight, dbias   over the rows at a time
//
// Registers: x, dout, weight; dweight, dbias in float32; 46 to 236 vector registers. LDS: struct
// Shared, up to 8272 bytes of LDS; the barriers are in the sums over waves (norm/moments.h,
// norm/row_sums.h, norm/weight_sums.h).
// The build defines KERNEL (its name), ELEMENT, the sizes above, WEIGHT (Chunk or Float32Chunk).
#include "norm/dropout.h"
#include "norm/moments.h"
#include "norm/row_sums.h"
#include "norm/sums.h"
#include "norm/weight.h"
#include "norm/weight_sums.h"
// clang-format off
#include "args/norm_backward.h"
// clang-format on

#define UNROLLED _Pragma("clang loop unroll(full)")

namespace {

constexpr int kRowLanes = ROW_LANES, kRowsAtOnce = ROWS_AT_ONCE, kLanes = kRowLanes * kRowsAtOnce;
constexpr int kSteps = STEPS, kStep = kRowLanes * CHUNK, kColumns = kStep * kSteps;
constexpr int kMinWaves = kLanes == 512 ? 2 : kSteps > 1 ? 3 : 4;  // of a SIMD
static_assert(kLanes % kWaveLanes == 0 && (kRowLanes <= kWaveLanes || kRowsAtOnce == 1));

using Part = Chunk<CHUNK>;
using Weight = WEIGHT<CHUNK>;
using Sums = PairOverRow<kRowLanes>;
using OfRow = Row<(kRowLanes >= kWaveLanes)>;
using OfWeights = WeightSums<kRowLanes, kRowsAtOnce, CHUNK, kSteps>;

struct Shared {
  f32x4 of_waves[kLanes / kWaveLanes];
  f32x2 pairs[Sums::kPairs];
  float of_rows[OfWeights::kFloats];
};

// Of this lane, among the rows of its workgroup.
__device__ __forceinline__ int row_of_lane() {
  if constexpr (kRowsAtOnce == 1) return 0;
  return kRowLanes == kWaveLanes ? Lane::wave() : Lane::in_workgroup() / kRowLanes;
}

// What follows unpacks the row once more: in float32 all of it would take too many registers.
__device__ __forceinline__ void keep_packed(Part (&x)[kSteps]) {
  UNROLLED
  for (int s = 0; s < kSteps; ++s)
    for (int i = 0; i < Part::kPairs; ++i) {
      uint32_t bits = x[s].bits[i];
      park(bits);
      x[s].bits[i] = bits;
    }
}

template <bool kWhole>
__device__ __forceinline__ void backward(const NormBackwardArgs& args, Local<Shared>* shared) {
  using OfColumns = Columns<kRowLanes, CHUNK, kWhole>;
  using OfMoments = MomentsOfRow<kRowLanes, CHUNK, kSteps, kWhole>;
  const Row<true> weights(args.weight);
  const Scale scale(args.inverse_columns, args.eps);
  OfMoments moments(shared->of_waves, args.columns);
  Sums over_row(shared->pairs);
  OfWeights dweight(0, args.columns), dbias(0, args.columns);
  const uint32_t id = __builtin_amdgcn_workgroup_id_x(), group = id / args.blocks;
  const uint32_t block = id - group * args.blocks;
  const int begin = block * args.block_rows, left = args.rows - begin;
  const int end = begin + (left < args.block_rows ? left : args.block_rows);
  const auto arguments = (uint64_t)__builtin_amdgcn_kernarg_segment_ptr();
  const uint32_t lane_column = Lane::in_workgroup() % kRowLanes * CHUNK;
  Part x[kSteps], dout[kSteps];
  Weight weight[kSteps];
  UNROLLED
  for (int s = 0; s < kSteps; ++s)
    weight[s] = OfColumns(0, args.columns).template load<Weight>(weights, s);
  const auto drop = [&](f32x2(&y)[Part::kPairs], uint32_t row, int s) {
    const Dropout dropout(args.state, args.threshold, args.kept, args.behind);
    dropout.operator()<kWhole, CHUNK>(y, row, s * kStep + lane_column, moments.others(s));
  };

  for (int first = begin; first < end; first += kRowsAtOnce) {
    int count = args.columns;
    if constexpr (!kWhole) park(count);  // else masks of all rows would be kept, in too many SGPRs
    const OfColumns columns(0, count);
    const int own = first + row_of_lane();
    const bool is_row = kRowsAtOnce == 1 || own < end;
    const uint32_t row = group * args.rows + (is_row ? own : end - 1);
    const OfRow x_row(args.x, args.x_stride, row), dout_row(args.dout, args.dout_stride, row);
    UNROLLED
    for (int s = 0; s < kSteps; ++s) {
      x[s] = columns.load(x_row, s);
      dout[s] = columns.load(dout_row, s);
    }
    if (args.drops_x != 0) UNROLLED
    for (int s = 0; s < kSteps; ++s) {
      f32x2 y[Part::kPairs];
      for (int i = 0; i < Part::kPairs; ++i) y[i] = x[s].pair(i);
      drop(y, row, s);
      for (int i = 0; i < Part::kPairs; ++i)
        x[s].bits[i] = round_numbers<kElement, Rounding::kNearestEven>(y[i][0], y[i][1]);
      __builtin_amdgcn_sched_barrier(0);
    }
    keep_packed(x);
    const Moments found = moments(x, args.centred != 0, args.inverse_columns);
    const float factor = scale(found.squares);
    keep_packed(x);
    const auto normal = [&](int s, int i) {
      return (x[s].pair(i) - found.near - found.rest) * factor;
    };
    f32x2 sums = {}, products = {};
    UNROLLED
    for (int s = 0; s < kSteps; ++s) {
      const int others = moments.others(s);
      for (int i = 0; i < Part::kPairs; ++i) {
        f32x2 g = dout[s].pair(i) * weight[s].pair(i), product = g * normal(s, i);
        for (int j = 0; j < 2; ++j) {
          const bool is_own = OfMoments::is_own(2 * i + j, others);
          g[j] = is_own ? g[j] : 0;
          product[j] = is_own ? product[j] : 0;
        }
        sums += g;
        products += product;
      }
    }
    const f32x2 of_row = over_row(f32x2{sums[0] + sums[1], products[0] + products[1]});
    const float mean = args.centred != 0 ? of_row[0] * args.inverse_columns : 0;
    const float along = of_row[1] * args.inverse_columns;
    // Loaded again for each row: they would take too many SGPRs.
    const auto& late = *(Constant<NormBackwardArgs>*)anew(arguments);
    const OfRow dx_row(late.dx, late.dx_stride, row), dsum_row(late.dsum, late.dsum_stride, row);
    const OfRow dresidual_row(late.dresidual, late.dresidual_stride, row);
    const bool has_dsum = late.dsum != 0, has_dresidual = late.dresidual != 0;
    keep_packed(x);
    UNROLLED
    for (int s = 0; s < kSteps; ++s) {
      Part dx, dsum = {};
      if (has_dsum) dsum = columns.load(dsum_row, s);
      f32x2 y[Part::kPairs];
      for (int i = 0; i < Part::kPairs; ++i) {
        const f32x2 n = normal(s, i), d = dout[s].pair(i);
        y[i] = (d * weight[s].pair(i) - mean - n * along) * factor + dsum.pair(i);
        dx.bits[i] = round_pair<kElement, Rounding::kNearestEven>(y[i][0], y[i][1]);
        dweight.add(s, i, is_row ? d * n : f32x2{});
        dbias.add(s, i, is_row ? d : f32x2{});
      }
      if (has_dresidual && is_row)
        columns.template store<false>(dx, dresidual_row, dx, dresidual_row, s);
      if (args.state != 0) {
        drop(y, row, s);
        for (int i = 0; i < Part::kPairs; ++i)
          dx.bits[i] = round_pair<kElement, Rounding::kNearestEven>(y[i][0], y[i][1]);
      }
      if (is_row) columns.template store<false>(dx, dx_row, dx, dx_row, s);
      __builtin_amdgcn_sched_barrier(0);
    }
  }
  auto* to = (Global<float>*)args.dparameters + int64_t(id) * (1 + args.bias) * args.columns;
  dweight.store(to, shared->of_rows);
  if (args.bias == 0) return;
  if constexpr (kRowsAtOnce > 1) s_barrier();  // the others have read the sums of the weight
  dbias.store(to + args.columns, shared->of_rows);
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, kMinWaves) KERNEL(NormBackwardArgs args) {
  __shared__ Shared shared;
  if (args.columns == kColumns)
    backward<true>(args, (Local<Shared>*)&shared);
  else
    backward<false>(args, (Local<Shared>*)&shared);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kRowsAtOnce, kColumns};
