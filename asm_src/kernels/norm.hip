// out = (h - mean(h)) * weight / sqrt(variance(h) + eps) + bias along each row, in float32, rounded
// once, where h is x, or dropout(x) + residual, rounded to the element type, which goes to `sum`.
// Without `centred` 0 stands for the mean. Results of 8 bits are divided by a scale.
//
// The build defines KERNEL (its name), ELEMENT, ROW_LANES (lanes of a row), ROWS_AT_ONCE (such
// lanes of a workgroup), STEPS (chunks of a row that a lane holds), CHUNK (its columns), WEIGHT
// (Chunk or Float32Chunk), and from the struct of the arguments PARAMETERS and ARGUMENTS. Grid: x =
// ceil(rows / ROWS_AT_ONCE).
//
//   phase    memory                         vector unit
//   load     x, residual, weight, bias; the state
//   sum                                     Philox, drop; x + residual, round
//   reduce   LDS, over waves                sums; differences, their sums and squares; over lanes
//   scale    LDS, over waves                of 8 bits: magnitudes, over lanes
//   store    sum, out, the scale            scale, weigh, add, round
#include "norm/dropout.h"
#include "norm/moments.h"
#include "norm/sums.h"
#include "norm/weight.h"
#include "quantize/narrow.h"
#include "quantize/over_row.h"
#include "quantize/store.h"
// clang-format off
#include "args/norm.h"
// clang-format on

#define UNROLLED _Pragma("clang loop unroll(full)")

namespace {

constexpr int kRowLanes = ROW_LANES, kRows = ROWS_AT_ONCE, kLanes = kRowLanes * kRows;
constexpr int kSteps = STEPS, kWaves = kLanes / kWaveLanes, kStep = kRowLanes * CHUNK;
constexpr int kColumns = kStep * kSteps, kMinWaves = kWaves > 4 ? kWaves / 4 : 4;  // of a SIMD
static_assert(kLanes % kWaveLanes == 0 && (kRowLanes <= kWaveLanes || kRows == 1));

using Part = Chunk<CHUNK>;
using Weight = WEIGHT<CHUNK>;
using OfRow = Row<(kRowLanes >= kWaveLanes)>;

// Where registers do not suffice for all operands at once, weight and bias come last.
constexpr bool kLate = kSteps * 2 * (sizeof(Part) + sizeof(Weight)) > 4 * (512 / kMinWaves * 2 / 3);
constexpr bool kLong = kSteps > 4;  // then the residual comes chunk by chunk, too

struct Weighing {
  Weight weight, bias = {};
};

struct Shared {
  f32x4 of_waves[kWaves];
  float greatest[kWaves];
};

// Of this lane, among the rows of its workgroup.
__device__ __forceinline__ int row_of_lane() {
  if constexpr (kRows == 1) return 0;
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
__device__ __forceinline__ void in_order() { __builtin_amdgcn_sched_barrier(0); }

// The last workgroup to know the state advances it: until then others may not have read it.
__device__ __forceinline__ void arrive(const NormArgs& args, uint64_t next) {
  auto* arrived = (Global<uint32_t>*)args.arrived;
  if (Lane::in_workgroup() != 0) return;
  if (__hip_atomic_fetch_add(arrived, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) + 1 !=
      uint32_t(args.workgroups))
    return;
  *arrived = 0;
  ((Global<uint64_t>*)args.state)[1] = next;
}

template <bool kWhole>
__device__ __forceinline__ void norm(const NormArgs& args, Local<Shared>* shared) {
  // Of long rows places are found again: all of them would take too many registers.
  const auto placed = [&] {
    int count = args.columns;
    if constexpr (kLong && !kWhole) park(count);
    return Columns<kRowLanes, CHUNK, kWhole>(0, count);
  };
  const auto columns = placed();
  MomentsOfRow<kRowLanes, CHUNK, kSteps, kWhole> moments(shared->of_waves, args.columns);
  const int own = __builtin_amdgcn_workgroup_id_x() * kRows + row_of_lane(), last = args.rows - 1;
  const uint32_t row = own < last ? own : last;
  const int first = Lane::in_workgroup() % kRowLanes * CHUNK;
  Part x[kSteps], residual[kSteps] = {};
  const OfRow x_row(args.x, args.x_stride, row);
  UNROLLED
  for (int s = 0; s < kSteps; ++s) x[s] = columns.load(x_row, s);
  const OfRow residual_row(args.residual, args.residual_stride, row);
  if (!kLong && args.residual != 0)
    UNROLLED for (int s = 0; s < kSteps; ++s) residual[s] = columns.load(residual_row, s);
  const auto residual_of = [&](int s) {
    return kLong && args.residual != 0 ? placed().load(residual_row, s) : residual[s];
  };
  const auto loaded = [&](int s) {
    const Row<true> weights(anew(args.weight)), biases(anew(args.bias));
    const auto place = placed();
    Weighing found{place.template load<Weight>(weights, s)};
    if (biases.first != 0) found.bias = place.template load<Weight>(biases, s);
    return found;
  };
  Weighing early[kSteps];
  if constexpr (!kLate) UNROLLED for (int s = 0; s < kSteps; ++s) early[s] = loaded(s);
  // Loaded again each time, where it comes last: all of it would take too many registers.
  const auto weighing = [&](int s) {
    if constexpr (!kLate) return early[s];
    in_order();
    return loaded(s);
  };

  uint64_t next = 0;
  if (args.state != 0) {
    const Dropout dropout(args.state, args.threshold, args.kept);
    next = dropout.next();
    UNROLLED
    for (int s = 0; s < kSteps; ++s) {
      f32x2 y[Part::kPairs];
      for (int i = 0; i < Part::kPairs; ++i) y[i] = x[s].pair(i);
      dropout.operator()<kWhole, CHUNK>(y, row, s * kStep + first, moments.others(s));
      const Part added = residual_of(s);
      for (int i = 0; i < Part::kPairs; ++i) {
        y[i] += added.pair(i);
        x[s].bits[i] = round_numbers<kElement, Rounding::kNearestEven>(y[i][0], y[i][1]);
      }
      in_order();
    }
  } else if (args.residual != 0) {
    UNROLLED
    for (int s = 0; s < kSteps; ++s) {
      x[s] = x[s] + residual_of(s);
      if constexpr (kLong) in_order();
    }
  }
  keep_packed(x);
  const Moments found = moments(x, args.centred != 0, args.inverse_columns);
  if (args.state != 0) arrive(args, next);
  keep_packed(x);
  const float factor = Scale(args.inverse_columns, args.eps)(found.squares);
  const auto result = [&](int s, int i, const Weighing& by) {
    const f32x2 y = (x[s].pair(i) - found.near - found.rest) * factor;
    return __builtin_elementwise_fma(y, by.weight.pair(i), by.bias.pair(i));
  };
  if (own <= last && args.sum != 0) {
    const OfRow sum(args.sum, args.sum_stride, row);
    UNROLLED
    for (int s = 0; s < kSteps; ++s) placed().template store<false>(x[s], sum, x[s], sum, s);
  }
  if (args.narrow == 0) {
    const OfRow out(args.out, args.out_stride, row);
    if (own > last) return;
    UNROLLED
    for (int s = 0; s < kSteps; ++s) {
      const Weighing by = weighing(s);
      Part y;
      for (int i = 0; i < Part::kPairs; ++i) {
        const f32x2 pair = result(s, i, by);
        y.bits[i] = round_numbers<kElement, Rounding::kNearestEven>(pair[0], pair[1]);
      }
      placed().template store<false>(y, out, y, out, s);
    }
    return;
  }
  float scale;
  if (args.scales != 0) {
    scale = ((const Global<float>*)args.scales)[int64_t(row) * args.scale_stride];
  } else {
    float greatest = 0;
    UNROLLED
    for (int s = 0; s < kSteps; ++s) {
      const Weighing by = weighing(s);
      for (int i = 0; i < CHUNK; ++i)
        if (kWhole || i >= moments.others(s))
          greatest = v_max_f32(greatest, __builtin_fabsf(result(s, i / 2, by)[i % 2]));
      if constexpr (kLate) park(greatest);
    }
    keep_packed(x);
    scale = scale_for<E4m3>(max_over_row<kRowLanes>(greatest, shared->greatest));
    if (own <= last && first == 0 && args.scale_out != 0)
      ((Global<float>*)args.scale_out)[row] = scale;
  }
  if (own > last) return;
  const float inverse = 1 / scale;
  auto* out = (Global<uint8_t>*)args.out + row * args.out_stride;
  UNROLLED
  for (int s = 0; s < kSteps; ++s) {
    const Weighing by = weighing(s);
    const int at = s * kStep + first, left = args.columns - at;
    if (!kWhole && left <= 0) continue;
    uint64_t bits = 0;
    if constexpr (CHUNK == 1) {
      bits = narrow<E4m3, true>(result(s, 0, by)[0] * inverse, 0, 0, 0);
    } else {
      for (int i = 0; i < CHUNK; i += 4) {
        const f32x2 y = result(s, i / 2, by) * inverse, z = result(s, i / 2 + 1, by) * inverse;
        bits |= uint64_t(narrow<E4m3, true>(y[0], y[1], z[0], z[1])) << 8 * i;
      }
    }
    if (kWhole || left >= CHUNK)
      store_all<CHUNK>(out + at, bits);
    else
      store_last<CHUNK>(left, out + args.columns - CHUNK, bits);
  }
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, kMinWaves) KERNEL(PARAMETERS) {
  __shared__ Shared shared;
  const NormArgs args{ARGUMENTS};
  if (__builtin_expect(args.columns == kColumns, true))
    norm<true>(args, (Local<Shared>*)&shared);
  else
    norm<false>(args, (Local<Shared>*)&shared);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kRows, kColumns};
