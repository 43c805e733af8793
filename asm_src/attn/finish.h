// The end of attention forward: O / sum in the output's type, log-sum-exp, or a part for the merge.
#pragma once
#include "attn/pipeline.h"

template <class S>
struct Finish {
  using Loop = Pipeline<S>;
  static constexpr int kN = S::kTilesQ;
  // A lane has kLaneD consecutive elements, from kLaneD * (4 * (l / 16) + i) on, i = 0..3, of row
  // l % 16 of a tile.
  static constexpr int kLaneD = S::kTilesD, kDwords = kLaneD / 2;
  static constexpr float kLn2 = 0.6931471805599453f, kLog2E = 1.4426950408889634f;
  using Out = uint32_t __attribute__((ext_vector_type(kDwords)));

  Constant<AttnFwdArgs>& args;
  const AttnWork& work;
  Loop& loop;
  int wave_row, row, group;
  int columns;           // from the tile's first on
  f32x2 probe = {0, 0};  // NaN when an element is
  Global<uint16_t>* o;   // the lane's first element of the first tile
  int64_t tile_stride;

  __device__ __forceinline__ Finish(const AttnWork& its_work, Loop& its_loop, int first_row)
      : args(*arguments()), work(its_work), loop(its_loop), wave_row(first_row) {
    row = Lane::in_wave() % kTile;
    group = Lane::in_wave() / kTile;
    o = (Global<uint16_t>*)args.o + work.batch * args.o_stride_batch +
        work.head_q * args.o_stride_head + (work.q_base + row_of(0)) * args.o_stride_seq +
        work.column + 4 * group * kLaneD;
    tile_stride = kTile * args.o_stride_seq;
    columns = args.head_dim_v - int(work.column);
  }

  // Read again from memory: kept over the loop they would take more SGPRs than there are.
  static __device__ __forceinline__ Constant<AttnFwdArgs>* arguments() {
    auto* pointer = (Constant<AttnFwdArgs>*)__builtin_amdgcn_kernarg_segment_ptr();
    ordered::settle_uniform(pointer);
    return pointer;
  }

  __device__ __forceinline__ void store() {
    float sums[kN], rounded[kN];
    for (int t = 0; t < kN; ++t) {
      sums[t] = Loop::row_sum(loop.sum[t][0] + loop.sum[t][1]);
      rounded[t] = sums[t];
      if (S::kSumsRounded)
        rounded[t] = Loop::row_sum(loop.rounded_sum[t][0] + loop.rounded_sum[t][1]);
      if (sums[t] != sums[t]) rounded[t] = sums[t];  // rounding can make a number of a NaN
    }
    if (work.part >= 0) {
      unroll<kN>([&]<int t>() { store_part<t>(sums[t], rounded[t]); });
      return;
    }
    if (columns >= S::kHeadDimV) {
      unroll<kN>([&]<int t>() { store_tile<t, false>(sums[t], rounded[t]); });
      const uint64_t lanes = ordered::v_cmp_u_f32(probe[0] + probe[1]);
      if (lanes == 0) return;
    }
    unroll<kN>([&]<int t>() { store_tile<t, true>(sums[t], rounded[t]); });
  }

  // kCareful: any number, with the bits that AITER gives a NaN, and only the columns that there
  // are. Else NaNs, and numbers so great that the quick rounding overflows, make the probe NaN.
  template <int t, bool kCareful>
  __device__ __forceinline__ void store_tile(float sum, float rounded) {
    float reference = reference_of<t>(), weight = 1;
    if (args.sinks != 0) {
      const float sink = ((const Global<float>*)args.sinks)[work.head_q] * kLog2E;
      const float greatest = v_max_f32(reference, sink);
      const float fresh = greatest == -kInf ? 0 : greatest;  // no key, and a sink of weight 0
      weight = ::v_exp_f32(reference - fresh);
      const float of_sink = ::v_exp_f32(sink - fresh);
      sum = sum * weight + of_sink;
      rounded = rounded * weight + of_sink;
      reference = fresh;
    }
    const float scale = sum == 0 ? 0 : weight * v_rcp_f32(rounded);
    f32x2 x[4][kDwords];  // all read before the first is used: the compiler pads each change
    unroll<4>([&]<int i>() {
      unroll<kDwords>([&]<int n>() {
        x[i][n] = f32x2{v_accvgpr_read_b32<S::template kAccOutput<t, 2 * n> + i>(),
                        v_accvgpr_read_b32<S::template kAccOutput<t, 2 * n + 1> + i>()};
      });
    });
    Out out[4];
    for (int i = 0; i < 4; ++i)
      for (int n = 0; n < kDwords; ++n)
        out[i][n] = kCareful ? round_carefully(x[i][n], scale) : round_quickly(scale * x[i][n]);
    // All of the tile is worked out here, or the compiler keeps it for later in many registers.
    ordered::settle(probe);
    for (int i = 0; i < 4; ++i) ordered::settle(out[i]);
    reserve_acc();
    if (!inside(t)) return;
    for (int i = 0; i < 4; ++i)
      if (!kCareful || (4 * group + i) * kLaneD < columns)
        *(Global<Out>*)(o + t * tile_stride + i * kLaneD) = out[i];
    if (args.lse != 0 && group == 0 && work.column == 0)
      ((Global<float>*)args.lse)[work.batch * args.lse_stride_batch +
                                 work.head_q * args.lse_stride_head + work.q_base + row_of(t)] =
          sum == 0 ? -kInf : (reference + v_log_f32(sum)) * kLn2;
  }

  template <int t>
  __device__ __forceinline__ void store_part(float sum, float rounded) {
    const float scale = sum == 0 ? 0 : v_rcp_f32(rounded);
    const int64_t at =
        int64_t(work.part) * S::kRows + Lane::wave() * S::kWaveRows + t * kTile + row;
    auto* to = (Global<float>*)args.partial_o + at * S::kHeadDimV;
    unroll<4>([&]<int i>() {
      unroll<kLaneD / 4>([&]<int n>() {
        f32x4 out;
        unroll<4>([&]<int e>() {
          out[e] = v_accvgpr_read_b32<S::template kAccOutput<t, 4 * n + e> + i>() * scale;
        });
        if (inside(t)) *(Global<f32x4>*)(to + (4 * group + i) * kLaneD + 4 * n) = out;
      });
    });
    if (inside(t) && group == 0)
      ((Global<float>*)args.partial_lse)[at] =
          sum == 0 ? -kInf : v_log_f32(sum) + reference_of<t>();
  }
  template <int t>
  __device__ __forceinline__ float reference_of() const {
    const float reference = -loop.negative_ref[t / 2][t % 2];
    return S::kCapped ? reference + args.softcap_log2 : reference;
  }

  static constexpr bool kNearestEven =
      S::kElement == Element::kBf16 && S::kRounding == Rounding::kNearestEven;
  __device__ __forceinline__ uint32_t round_quickly(f32x2 x) {
    if constexpr (kNearestEven) {  // as in the main loop: attn/pipeline.h, convert
      const f32x2 two_to_16 = {65536, 65536};
      const f32x2 h = __builtin_elementwise_fma(x, two_to_16, -x);
      x = __builtin_elementwise_fma(x, two_to_16, -h);
      probe += x;
      return ::v_perm_b32<kHighHalves>(bits(x[1]), bits(x[0]));
    }
    probe += x;
    return Loop::template round_pair<S::kRounding>(x[0], x[1]);
  }
  static __device__ __forceinline__ uint32_t round_carefully(f32x2 x, float scale) {
    x *= scale;
    if (scale != scale) x = f32x2{scale, scale};  // of two NaNs the row's
    uint32_t pair = Loop::template round_pair<S::kRounding>(x[0], x[1]);
    if constexpr (S::kElement == Element::kBf16 && S::kRounding != Rounding::kTowardZero) {
      if (x[0] != x[0]) pair = (pair & 0xffff0000) | 0x7fff;
      if (x[1] != x[1]) pair = (pair & 0xffff) | 0x7fff0000;
    }
    return pair;
  }

  __device__ __forceinline__ int row_of(int t) const { return wave_row + t * kTile + row; }
  __device__ __forceinline__ bool inside(int t) const { return row_of(t) < work.rows; }
};
