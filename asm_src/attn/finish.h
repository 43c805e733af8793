// The end of attention forward: O / sum in the output's type, log-sum-exp, or a part for the merge.
// The wave is alone here too, and the vector unit is the limit: instructions stay in the order in
// which they are written, and nothing is done twice.
#pragma once
#include "attn/output.h"

template <class S>
struct Finish {
  using Loop = Pipeline<S>;
  static constexpr int kN = S::kTilesQ;
  // A lane has kLaneD consecutive elements, from kLaneD * (4 * (l / 16) + i) on, i = 0..3, of row
  // l % 16 of a tile.
  static constexpr int kLaneD = S::kTilesD, kDwords = kLaneD / 2;
  using Out = uint32_t __attribute__((ext_vector_type(kDwords)));

  Arguments& args;
  const AttnWork& work;
  Loop& loop;
  int wave_row, row, group;
  Global<uint16_t>* o;   // the lane's first element of the first tile
  uint64_t tile_stride;  // bytes
  uint64_t lse, sinks;   // addresses
  int columns;           // from the workgroup's first on
  float sums[kN];        // of a row's probabilities
  float rounded[kN];     // the same as they were rounded, times S::kScaleV
  float reference[kN];   // of a row
  f32x2 scale[kN / 2];   // of a row of O, of two tiles
  f32x2 probe = {0, 0};  // NaN when an element is, or overflows in rounding
  uint32_t lds;
  Octet greatest;  // |V|, of four lanes of the workgroup, if S::kConverts

  __device__ __forceinline__ Finish(Arguments* from, const AttnWork& its_work, Loop& its_loop,
                                    int first_row, Global<uint16_t>* first, uint32_t its_lds)
      : args(*read_again(from)),
        work(its_work),
        loop(its_loop),
        wave_row(first_row),
        o(first),
        lds(its_lds) {
    row = Lane::in_wave() % kTile;
    group = Lane::in_wave() / kTile;
    tile_stride = 2 * kTile * args.o_stride_seq;
    lse = args.lse;
    sinks = args.sinks;
    columns = args.head_dim_v - int(work.column);
  }

  // False if nothing was written, since fp16 does not do for V.
  __device__ __forceinline__ bool operator()() {
    last_output();
    if constexpr (S::kConverts)
      if (__builtin_expect(!all_fit(), false)) return false;
    store();
    return true;
  }

  // ---- Does fp16 do for V? If 16 columns, as four lanes load them, are small all together, they
  // lose bits there.
  __device__ __forceinline__ void read_greatest() {
    ordered::ds_read_b128<S::kBaseFit>(greatest, lds + 16 * Lane::in_wave());
  }
  __device__ __forceinline__ bool all_fit() {
    ordered::settle(greatest);  // behind the waits of last_output()
    uint32_t of_four = 0;       // as bits, in the order of their numbers
    for (int i = 0; i < 4; ++i) of_four = of_four > greatest[i] ? of_four : greatest[i];
    const uint32_t least = bits(S::kLeastV), range = bits(S::kGreatestV) - least;
    return __builtin_amdgcn_ballot_w64((of_four != 0) & (of_four - least >= range)) == 0;
  }

  __device__ __forceinline__ void store() {
    set_scales();
    if (work.part >= 0) {
      store_part();
      return;
    }
    if (__builtin_expect(columns < S::kHeadDimV, false)) {
      store_carefully();
      store_lse();
      return;
    }
    auto* to = (Global<uint8_t>*)o;
    unroll<kN>([&]<int t>() {
      store_tile<t>((Global<uint16_t>*)to);
      to += tile_stride;
    });
    store_lse();
    if (__builtin_expect(ordered::v_cmp_u_f32(probe[0] + probe[1]) != 0, false)) store_carefully();
  }

  // ---- The output of the last unit, and under its matrix instructions the sums over the four
  // lanes of a row: a turn has the first exchange of a value, the second one of the value kLag
  // turns before, and the last addition of the one before that.
  // With a V in fp16 those of the exact probabilities wait until somebody asks for them.
  static constexpr int kValues = S::kSumsRounded && !S::kConverts ? 2 * kN : kN, kLag = 6;
  static constexpr bool is_rounded(int n) { return S::kConverts || n >= kN; }
  static constexpr bool is_value(int n) { return n >= 0 && n < kValues; }
  static constexpr int exchanges_since(int turn) {  // behind its first exchange, for kLag turns
    int n = 0;
    for (int t = turn + 1; t < turn + kLag; ++t) n += is_value(t) + is_value(t - kLag);
    return n;
  }
  __device__ __forceinline__ void last_output() {
    constexpr int kTurns = most(S::kOutputOps, 1 + kValues + 2 * kLag);
    const uint32_t lane = 4 * Lane::in_wave();
    float value[kValues], other[kValues];
    unroll<kTurns>([&]<int turn>() {
      constexpr int first = turn - 1, second = first - kLag, last = second - kLag;
      if constexpr (turn < S::kOutputOps) loop.template output_op<kN - 1, turn, (kN - 1) % 2>();
      if constexpr (turn == 1) {  // what was read from memory is there, or nearly so
        ordered::settle_uniform(tile_stride);
        ordered::settle_uniform(lse);
        ordered::settle_uniform(sinks);
        ordered::settle_uniform(columns);
      }
      if constexpr (S::kConverts && turn == 2) read_greatest();
      if constexpr (is_value(second) || is_value(last))
        ordered::s_waitcnt<ordered::kAnyVm, exchanges_since(second)>();
      if constexpr (is_value(last)) {
        value[last] = ordered::v_add_f32(value[last], other[last]);
        if constexpr (S::kConverts && is_rounded(last))
          scale[last / 2][last % 2] = ordered::v_rcp_f32(value[last]);
      }
      if constexpr (is_value(second)) {
        value[second] = ordered::v_add_f32(value[second], other[second]);
        other[second] = ordered::ds_bpermute_b32(lane ^ 4 * 32, value[second]);
      }
      if constexpr (is_value(first)) {
        const f32x2 halves = (is_rounded(first) ? loop.rounded_sum : loop.sum)[first % kN];
        value[first] = halves[0];
        if constexpr (!S::kConverts || !is_rounded(first))
          value[first] = ordered::v_add_f32(halves[0], halves[1]);
        other[first] = ordered::ds_bpermute_b32(lane ^ 4 * 16, value[first]);
      }
    });
    for (int n = 0; n < kValues; ++n) (is_rounded(n) ? rounded : sums)[n % kN] = value[n];
    for (int t = 0; t < kN; ++t) {
      if (!S::kSumsRounded) rounded[t] = sums[t];
      // Rounding to bf16 can make a number of a NaN.
      if (!S::kConverts && sums[t] != sums[t]) rounded[t] = sums[t];
    }
  }

  __device__ __forceinline__ void set_scales() {
    for (int t = 0; t < kN; ++t) {
      reference[t] = -loop.negative_ref[t / 2][t % 2];
      if constexpr (S::kCapped) reference[t] += args.softcap_log2;
      if constexpr (!S::kConverts) scale[t / 2][t % 2] = v_rcp_f32(rounded[t]);
    }
    if constexpr (S::kConverts)
      if (work.part >= 0 || sinks != 0 || lse != 0) add_up();
    // Only of a row without keys: else there is a probability of 2^S::kTop.
    for (int t = 0; t < kN; ++t)
      if (rounded[t] == 0) scale[t / 2][t % 2] = 0;
    if (__builtin_expect(sinks != 0, false) && work.part < 0) add_sinks();
    for (auto& pair : scale) ordered::settle(pair);
  }
  __device__ __forceinline__ void add_up() {
    for (int t = 0; t < kN; ++t) {
      sums[t] = loop.sum[t][0] + loop.sum[t][1];
      sums[t] += Loop::from_lane(Lane::in_wave() ^ 16, sums[t]);
    }
    for (float& sum : sums) sum += Loop::from_lane(Lane::in_wave() ^ 32, sum);
  }
  __device__ __forceinline__ void add_sinks() {
    const float sink = ((const Global<float>*)sinks)[work.head_q] * kLog2E;
    for (int t = 0; t < kN; ++t) {
      const float greatest = v_max_f32(reference[t], sink);
      const float fresh = greatest == -kInf ? 0 : greatest;  // no key, and a sink of weight 0
      const float weight = ::v_exp_f32(reference[t] - fresh);
      const float of_sink = ::v_exp_f32(sink - fresh);
      sums[t] = sums[t] * weight + of_sink;
      const float all = rounded[t] * weight + of_sink * S::kScaleV;
      scale[t / 2][t % 2] = all == 0 ? 0 : weight * v_rcp_f32(all);
      reference[t] = fresh;
    }
  }

  // ---- Whole tiles
  // As if there were no NaN and no overflow; else the probe becomes NaN.
  template <int t>
  __device__ __forceinline__ void store_tile(Global<uint16_t>* to) {
    Out out[4];
    unroll<4>([&]<int i>() {
      unroll<kDwords>([&]<int n>() {
        const f32x2 x = ordered::v_pk_mul_f32_half<t % 2>(read_pair<t, i, n>(), scale[t / 2]);
        if constexpr (kProbeFloats) probe = ordered::v_pk_add_f32(probe, x);
        out[i][n] = round_pair(x);
        if constexpr (!kProbeFloats && n % 2 == 1)
          probe[0] = ordered::v_dot2_f32_f16(out[i][n - 1], out[i][n], probe[0]);
      });
    });
    if (inside(t))
      for (int i = 0; i < 4; ++i) *(Global<Out>*)(to + i * kLaneD) = out[i];
  }

  // Taken for float16s, bfloat16s from 2^121 on are NaNs and infinities too, and no other is. Ties
  // away from zero make a number of some NaNs.
  static constexpr bool kBf16 = S::kElement == Element::kBf16;
  static constexpr bool kProbeFloats = kBf16 && S::kRounding == Rounding::kNearestAway;

  template <int t, int i, int n>
  static __device__ __forceinline__ f32x2 read_pair() {
    return f32x2{v_accvgpr_read_b32<S::template kAccOutput<t, 2 * n> + i>(),
                 v_accvgpr_read_b32<S::template kAccOutput<t, 2 * n + 1> + i>()};
  }
  __device__ __forceinline__ uint32_t round_pair(f32x2 x) const {
    if constexpr (!kBf16) {
      if constexpr (S::kRounding == Rounding::kTowardZero)
        return ordered::v_cvt_pkrtz_f16_f32(x[0], x[1]);
      return ordered::v_pack_b32_f16(ordered::v_cvt_f16_f32(x[0]), ordered::v_cvt_f16_f32(x[1]));
    }
    if constexpr (S::kRounding == Rounding::kNearestEven) {  // as in attn/pipeline.h, convert
      const f32x2 h = ordered::v_pk_fms_f32(x, loop.two_to_16, x);
      x = ordered::v_pk_fms_f32(x, loop.two_to_16, h);
    }
    if constexpr (S::kRounding == Rounding::kNearestAway)
      x = f32x2{ordered::v_add_u32(0x8000, x[0]), ordered::v_add_u32(0x8000, x[1])};
    return ordered::v_perm_b32(Loop::bits_of(x, 1), Loop::bits_of(x, 0), loop.high_halves);
  }

  __device__ __forceinline__ void store_lse() const {
    if (lse == 0 || work.column != 0) return;
    auto* to = lse_of_rows(args, work);
    for (int t = 0; t < kN; ++t)
      if (inside(t) && group == 0)
        to[row_of(t)] = sums[t] == 0 ? -kInf : (reference[t] + v_log_f32(sums[t])) * kLn2;
  }

  // Whatever the numbers, and only the columns that there are. A loop, which takes less room in the
  // instruction cache.
  __device__ __forceinline__ void store_carefully() const {
    auto* next = (Global<uint8_t>*)o;
#pragma clang loop unroll(disable)
    for (int t = 0; t < kN; ++t, next += tile_stride) {
      auto* to = (Global<uint16_t>*)next;
      f32x2 x[4][kDwords];
      float by;
      unroll<kN>([&]<int n>() {
        if (t != n) return;
        unroll<4>(
            [&]<int i>() { unroll<kDwords>([&]<int d>() { x[i][d] = read_pair<n, i, d>(); }); });
        by = scale[n / 2][n % 2];
      });
      if (!inside(t)) continue;
      for (int i = 0; i < 4; ++i) {
        Out out;
        for (int n = 0; n < kDwords; ++n) {
          f32x2 y = x[i][n] * by;
          if (by != by) y = f32x2{by, by};  // of two NaNs the row's
          out[n] = round_any_pair<S>(y[0], y[1]);
        }
        if ((4 * group + i) * kLaneD < columns) *(Global<Out>*)(to + i * kLaneD) = out;
      }
    }
  }

  // ---- Parts along KV
  __device__ __forceinline__ void store_part() {
    const int64_t first = int64_t(work.part) * S::kRows + row_of(0) - work.q_start;
    auto* to = (Global<float>*)args.partial_o + first * S::kHeadDimV + 4 * group * kLaneD;
    unroll<kN>([&]<int t>() {
      f32x2 out[4][kDwords];
      unroll<4>([&]<int i>() {
        unroll<kDwords>([&]<int n>() {
          out[i][n] = ordered::v_pk_mul_f32_half<t % 2>(read_pair<t, i, n>(), scale[t / 2]);
        });
      });
      if (inside(t))
        for (int i = 0; i < 4; ++i)
          for (int n = 0; n < kDwords; n += 2)
            *(Global<f32x4>*)(to + (t * kTile * S::kHeadDimV + i * kLaneD + 2 * n)) =
                __builtin_shufflevector(out[i][n], out[i][n + 1], 0, 1, 2, 3);
    });
    auto* lse = (Global<float>*)args.partial_lse + first;
    for (int t = 0; t < kN; ++t)
      if (inside(t) && group == 0)
        lse[t * kTile] = sums[t] == 0 ? -kInf : v_log_f32(sums[t]) + reference[t];
  }

  __device__ __forceinline__ int row_of(int t) const { return wave_row + t * kTile + row; }
  __device__ __forceinline__ bool inside(int t) const { return row_of(t) < work.rows; }
};
