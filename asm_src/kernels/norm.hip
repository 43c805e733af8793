// out = (h - mean(h)) * weight / sqrt(variance(h) + eps) + bias along each row, in float32, rounded
// once. h is x, or dropout(x) + residual rounded to the element type, which is stored to `sum`.
// If not `centred` (RMS norm) the mean counts as 0. 8-bit results are divided by a scale.
//
// Workgroup: ROWS_AT_ONCE rows, ROW_LANES lanes each; a lane has STEPS chunks of CHUNK columns.
// Grid: x = ceil(rows / ROWS_AT_ONCE).
//
//   phase    memory, LDS (a barrier each)   vector unit                          matrix unit
//   load     x, residual, weight, bias
//   sum      sum                            Philox, dropout; x + residual        sum and squares
//   reduce   shared->sums of waves          over lanes: mean, variance           of the row
//   exactly  shared->of_waves               again, from differences to the mean
//   scale    shared->greatest               8 bits: greatest magnitude
//   store    out, the scale                 scale, weight, bias, round
//
// `exactly` is for rows that share a wave, for long rows, and where the mean is far from 0.
//
// Registers: x, residual, early (weight, bias) as loaded; y: the row in float32, packed if it is
// long (kLong); 22 to 128 vector registers. LDS: struct Shared, up to 448 bytes of LDS.
//
// The build defines KERNEL (its name), ELEMENT, the sizes above, WEIGHT (Chunk or Float32Chunk),
// PARAMETERS and ARGUMENTS (of the struct).
#include "norm/dropout.h"
#include "norm/moments.h"
#include "norm/plain_sums.h"
#include "norm/rounded.h"
#include "norm/sums.h"
#include "norm/through.h"
#include "norm/weight.h"
#include "quantize/narrow.h"
#include "quantize/over_row.h"
#include "quantize/store.h"
// clang-format off
#include "args/norm.h"
// clang-format on

#define INLINE __attribute__((always_inline))
#define UNROLLED _Pragma("clang loop unroll(full)")

namespace {

constexpr int kRowLanes = ROW_LANES, kRows = ROWS_AT_ONCE, kLanes = kRowLanes * kRows;
constexpr int kSteps = STEPS, kWaves = kLanes / kWaveLanes, kStep = kRowLanes * CHUNK;
constexpr int kColumns = kStep * kSteps, kMinWaves = 4;  // of a SIMD
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
// Else all of them would be converted before the first branch.
template <class C>
__device__ __forceinline__ void stay_packed(C& x) {
  uint32_t bits[sizeof(C) / 4];
  __builtin_memcpy(bits, &x, sizeof x);
  UNROLLED
  for (unsigned i = 0; i < sizeof x / 4; ++i) park(bits[i]);
  __builtin_memcpy(&x, bits, sizeof x);
}
// A chunk in float32, or as it was where registers do not suffice.
template <bool kPacked>
struct Numbers {
  [[maybe_unused]] static constexpr int kPairs = Part::kPairs;
  f32x2 pairs[kPairs];
  __device__ __forceinline__ f32x2 pair(int i) const { return pairs[i]; }
  __device__ __forceinline__ void set(int i, f32x2 pair) {
    pairs[i] = pair;
    park(pairs[i]);
  }
  __device__ __forceinline__ void take(const Part& part) {
    for (int i = 0; i < kPairs; ++i) set(i, part.pair(i));
  }
  __device__ __forceinline__ Part packed() const {  // exact
    Part part;
    for (int i = 0; i < kPairs; ++i)
      part.bits[i] = round_numbers<kElement, Rounding::kTowardZero>(pairs[i][0], pairs[i][1]);
    return part;
  }
};
template <>
struct Numbers<true> {
  [[maybe_unused]] static constexpr int kPairs = Part::kPairs;
  Part part;
  __device__ __forceinline__ f32x2 pair(int i) const { return part.pair(i); }
  __device__ void set(int, f32x2);  // there is none
  __device__ __forceinline__ void take(const Part& x) {
    part = x;
    stay_packed(part);
  }
  __device__ __forceinline__ Part packed() const { return part; }
};
// What follows unpacks them once more.
template <bool kPacked>
__device__ __forceinline__ void anew_packed(Numbers<kPacked> (&y)[kSteps]) {
  UNROLLED
  for (int s = 0; s < kSteps; ++s) stay_packed(y[s]);
}
template <class F>
__device__ __forceinline__ void each(const F& of) {
  UNROLLED
  for (int s = 0; s < kSteps; ++s)
    for (int i = 0; i < Part::kPairs; ++i) of(s, i);
}

// Rows of lanes of one wave or of several; rows that share a wave have the exact sums only: results
// of a row must not depend on its neighbours.
constexpr bool kPlain = kRowLanes >= kWaveLanes && !kLong;
// Results go through the L2, so that less is left to write back at the end; not where loads follow,
// which would wait for them.
constexpr bool kThrough = kPlain && !kLate;

struct Shared {
  f32x4 of_waves[kWaves];
  f32x2 sums[kWaves];
  float greatest[kWaves];
};

// Of this lane, among the rows of its workgroup.
__device__ __forceinline__ int row_of_lane() {
  if constexpr (kRows == 1) return 0;
  return kRowLanes == kWaveLanes ? Lane::wave() : Lane::in_workgroup() / kRowLanes;
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
  const auto placed = [&]() INLINE {
    int count = args.columns;
    if constexpr (kLong && !kWhole) park(count);
    return Columns<kRowLanes, CHUNK, kWhole>(0, count);
  };
  u32x4 state;
  ordered::s_load_dwordx4<0>(
      state, args.state != 0 ? args.state : (uint64_t)__builtin_amdgcn_kernarg_segment_ptr());
  const auto columns = placed();
  MomentsOfRow<kRowLanes, CHUNK, kSteps, kWhole> moments(shared->of_waves, args.columns);
  const int own = __builtin_amdgcn_workgroup_id_x() * kRows + row_of_lane(), last = args.rows - 1;
  const uint32_t row = kRows == 1 || own < last ? own : last;
  const int first = Lane::in_workgroup() % kRowLanes * CHUNK;
  const bool is_there = kRows == 1 || own <= last;
  constexpr bool kMay = kThrough && kWhole;
  const bool is_through = args.rows >= kRowsThrough<kColumns>;
  const auto store = [&](auto through, const Part& chunk, const OfRow& to, int s) INLINE {
    if constexpr (decltype(through)::value)
      store_through(chunk, to, s * kStep * Part::kBytes);
    else
      placed().template store<false>(chunk, to, chunk, to, s);
  };
  Part x[kSteps], residual[kSteps] = {};
  const OfRow x_row(args.x, args.x_stride, row);
  UNROLLED
  for (int s = 0; s < kSteps; ++s) x[s] = columns.load(x_row, s);
  const OfRow residual_row(args.residual, args.residual_stride, row);
  if (!kLong && args.residual != 0)
    UNROLLED for (int s = 0; s < kSteps; ++s) residual[s] = columns.load(residual_row, s);
  const auto residual_of = [&](int s) INLINE {
    return kLong && args.residual != 0 ? placed().load(residual_row, s) : residual[s];
  };
  // Weights of so many chunks are converted while waves wait for each other.
  constexpr int kReady = !kWhole || kLate ? 0 : kSteps == 2 ? 2 : 1;
  Weighing early[kSteps];
  if constexpr (!kLate) {
    const Row<true> weights(args.weight), biases(args.bias);
    UNROLLED
    for (int s = 0; s < kSteps; ++s) early[s].weight = columns.template load<Weight>(weights, s);
    if (args.bias != 0) UNROLLED
    for (int s = 0; s < kSteps; ++s) early[s].bias = columns.template load<Weight>(biases, s);
    in_order();
  }
  // Where it comes last.
  const auto weighing = [&](int s) INLINE {
    if constexpr (!kLate) {
      Weighing found = early[s];
      if (s >= kReady) stay_packed(found.weight), stay_packed(found.bias);
      return found;
    }
    in_order();
    const Row<true> weights(anew(args.weight)), biases(anew(args.bias));
    const auto place = placed();
    Weighing found{place.template load<Weight>(weights, s)};
    if (biases.first != 0) found.bias = place.template load<Weight>(biases, s);
    return found;
  };

  ordered::s_waitcnt_loaded(state);  // on every path: else its registers would be used meanwhile
  uint64_t next = 0;
  if (args.state != 0) {
    const Dropout dropout(state, args.threshold, args.kept);
    next = dropout.next();
    u32x4 words[kSteps];  // while x is under way
    if constexpr (!kLong) {
      UNROLLED
      for (int s = 0; s < kSteps; ++s) words[s] = dropout.words(row, s * kStep + first);
      in_order();
    }
    UNROLLED
    for (int s = 0; s < kSteps; ++s) {
      if constexpr (kLong) words[s] = dropout.words(row, s * kStep + first);
      f32x2 y[Part::kPairs];
      for (int i = 0; i < Part::kPairs; ++i) y[i] = x[s].pair(i);
      dropout.drop<kWhole, CHUNK>(y, words[s], s * kStep + first, moments.others(s));
      const Part added = residual_of(s);
      for (int i = 0; i < Part::kPairs; ++i) {
        y[i] += added.pair(i);
        x[s].bits[i] = rounded(y[i][0], y[i][1]);
      }
      in_order();
    }
  } else if (args.residual != 0) {
    UNROLLED
    for (int s = 0; s < kSteps; ++s) {
      x[s] = rounded_sum(x[s], residual_of(s));
      if constexpr (kLong) in_order();
    }
  }
  Numbers<kLong> y[kSteps];
  f32x2 weight[kReady + 1][Part::kPairs], bias[kReady + 1][Part::kPairs];
  const auto unpack = [&]() INLINE {
    UNROLLED
    for (int s = 0; s < kSteps; ++s) y[s].take(x[s]);
    each([&](int s, int i) INLINE {
      if (s >= kReady) return;
      weight[s][i] = early[s].weight.pair(i), bias[s][i] = early[s].bias.pair(i);
      park(weight[s][i], bias[s][i]);
    });
    // Here before the first store: the counter of loads is that of stores, too.
    if constexpr (!kLate) UNROLLED for (int s = kReady; s < kSteps; ++s) stay_packed(early[s]);
  };
  // Behind the loads of all waves: it may be x or the residual itself.
  const auto store_sum = [&]() INLINE {
    if (__builtin_expect(args.sum == 0 || !is_there, true)) return;
    const OfRow sum(args.sum, args.sum_stride, row);
    through_or_not<kMay>(is_through, [&](auto through) INLINE {
      UNROLLED
      for (int s = 0; s < kSteps; ++s) store(through, y[s].packed(), sum, s);
    });
  };
  float factor, shift = 0, near = 0, rest = 0;
  const auto scale_of = [&](float squares) INLINE {
    // Compared as an integer, which is scalar.
    if (__builtin_expect(__builtin_bit_cast(int, args.eps) >= 0x00800000, true))
      return v_rsq_f32(squares * args.inverse_columns + args.eps);
    return Scale(args.inverse_columns, args.eps)(squares);
  };
  const auto exactly = [&]() INLINE {
    const Moments found = moments(y, args.centred != 0, args.inverse_columns);
    if constexpr (kLong)
      near = found.near, rest = found.rest, anew_packed(y);
    else
      each([&](int s, int i) INLINE { y[s].set(i, y[s].pair(i) - found.near - found.rest); });
    factor = scale_of(found.squares);
    shift = 0;
  };
  if constexpr (kPlain) {
    SumOfColumns sum;
    SumOfSquares squares;
    UNROLLED
    for (int s = 0; s < kSteps; ++s) {
      const Part alone = columns.alone(x[s], s);
      sum.add(alone);
      squares.add(alone);
    }
    PlainSums sums = over_wave(sum.of_quad(), squares.of_quad());
    if constexpr (kRowLanes > kWaveLanes) {
      shared->sums[Lane::wave()] = f32x2{sums.sum, sums.squares};
      in_order();
      unpack();
      s_barrier();
      store_sum();
      f32x2 all = shared->sums[0];
      for (int i = 1; i < kWaves; ++i) all += shared->sums[i];
      sums = {all[0], all[1]};
    } else {
      unpack();
      store_sum();
    }
    const float mean = args.centred != 0 ? sums.sum * args.inverse_columns : 0;
    factor = scale_of(sums.apart(mean));
    shift = -mean * factor;
    const bool is_far = args.centred != 0 && !sums.is_near(mean);
    if (__builtin_expect(__builtin_amdgcn_ballot_w64(is_far) != 0, false)) exactly();
  } else {
    unpack();
    store_sum();
    exactly();
  }
  if (__builtin_expect(args.state != 0, false)) arrive(args, next);
  if constexpr (!kLong)
    each([&](int s, int i) INLINE {
      y[s].set(i, __builtin_elementwise_fma(y[s].pair(i), f32x2(factor), f32x2(shift)));
    });
  const auto result = [&](int s, int i, const Weighing& by) INLINE {
    if constexpr (kLong)
      return __builtin_elementwise_fma((y[s].pair(i) - near - rest) * factor, by.weight.pair(i),
                                       by.bias.pair(i));
    else if (s < kReady)
      return __builtin_elementwise_fma(y[s].pair(i), weight[s][i], bias[s][i]);
    return __builtin_elementwise_fma(y[s].pair(i), by.weight.pair(i), by.bias.pair(i));
  };
  if (__builtin_expect(args.narrow == 0, true)) {
    const OfRow out(args.out, args.out_stride, row);
    if (!is_there) return;
    through_or_not<kMay>(is_through, [&](auto through) INLINE {
      UNROLLED
      for (int s = 0; s < kSteps; ++s) {
        const Weighing by = weighing(s);
        Part z;
        for (int i = 0; i < Part::kPairs; ++i) {
          const f32x2 pair = result(s, i, by);
          z.bits[i] = rounded(pair[0], pair[1]);
        }
        store(through, z, out, s);
      }
    });
    return;
  }
  if constexpr (!kLong) UNROLLED for (int s = 0; s < kSteps; ++s) {
      const Weighing by = weighing(s);
      for (int i = 0; i < Part::kPairs; ++i) y[s].set(i, result(s, i, by));
      in_order();
    }
  // Of long rows once more each time.
  const auto results = [&](int s) INLINE {
    if constexpr (!kLong) {
      return y[s];
    } else {
      Numbers<false> found;
      const Weighing by = weighing(s);
      for (int i = 0; i < Part::kPairs; ++i) found.pairs[i] = result(s, i, by);
      return found;
    }
  };
  float scale;
  if (args.scales != 0) {
    scale = ((const Global<float>*)args.scales)[int64_t(row) * args.scale_stride];
  } else {
    float greatest = 0;
    UNROLLED
    for (int s = 0; s < kSteps; ++s) {
      const auto found = results(s);
      for (int i = 0; i < CHUNK; ++i)
        if (kWhole || i >= moments.others(s))
          greatest = v_max_f32(greatest, __builtin_fabsf(found.pair(i / 2)[i % 2]));
      if constexpr (kLong) park(greatest);
    }
    if constexpr (kLong) anew_packed(y);
    scale = scale_for<E4m3>(max_over_row<kRowLanes>(greatest, shared->greatest));
    if (is_there && first == 0 && args.scale_out != 0)
      ((Global<float>*)args.scale_out)[row] = scale;
  }
  if (!is_there) return;
  const float inverse = 1 / scale;
  auto* out = (Global<uint8_t>*)args.out + row * args.out_stride;
  const uint64_t out_row =
      uint32_t(uniform(uint32_t(uint64_t(out)))) | uint64_t(uniform(uint64_t(out) >> 32)) << 32;
  const auto write = [&](auto bounded, auto through) INLINE {
    constexpr bool kBounded = decltype(bounded)::value;
    UNROLLED
    for (int s = 0; s < kSteps; ++s) {
      const int at = s * kStep + first, left = args.columns - at;
      if (!kWhole && left <= 0) continue;
      const auto found = results(s);
      uint64_t bits = 0;
      if constexpr (CHUNK == 1) {
        bits = narrow<E4m3, kBounded>(found.pair(0)[0] * inverse, 0, 0, 0);
      } else {
        for (int i = 0; i < CHUNK; i += 4) {
          const f32x2 a = found.pair(i / 2) * inverse, b = found.pair(i / 2 + 1) * inverse;
          bits |= uint64_t(narrow<E4m3, kBounded>(a[0], a[1], b[0], b[1])) << 8 * i;
        }
      }
      if constexpr (decltype(through)::value)
        ordered::global_store_dwordx2_sc1(out_row + s * kStep, first, bits);
      else if (kWhole || left >= CHUNK)
        store_all<CHUNK>(out + at, bits);
      else
        store_last<CHUNK>(left, out + args.columns - CHUNK, bits);
    }
  };
  through_or_not<kMay>(is_through, [&](auto through) INLINE {
    if (args.scales != 0)
      write(Flag<true>(), through);
    else
      write(Flag<false>(), through);
  });
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
