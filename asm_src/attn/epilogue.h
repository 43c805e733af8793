// The end of attention forward: O / sum in the output's type, log-sum-exp, or a part for the merge.
// The wave is alone here too, and the vector unit is the limit: instructions stay in the order in
// which they are written, and nothing is done twice. No matrix instruction runs beside packed ones.
#pragma once
#include "attn/output.h"
#include "attn/pipeline.h"

template <class S, bool kExact>
struct Epilogue {
  using Loop = Pipeline<S>;
  static constexpr int kN = S::kTilesQ;
  static constexpr bool kBf16 = S::kElement == Element::kBf16;
  static constexpr float kBias = kExact ? 1 : S::kBias;
  // A lane has kPieces times 8 consecutive elements of row l % kTile of a tile: registers of the
  // same number of all accumulators are neighbours. The nth from its first one on:
  static constexpr int kPieces = S::kAccRegs * S::kTilesD / 8;
  static constexpr int column_of(int piece) { return S::key(piece * 8 / S::kTilesD) * S::kTilesD; }

  Arguments& args;
  const AttnWork& work;
  Loop& loop;
  int wave_row, row, group;
  Global<uint16_t>* o;   // the lane's first element of the first tile
  uint64_t tile_stride;  // bytes
  uint64_t lse, sinks;   // addresses
  int columns;           // from the workgroup's first on
  float sums[kN];        // of a row's probabilities
  float reference[kN];   // of a row
  float rounded[kN];     // the sum of probabilities as they were rounded, an estimate
  f32x2 scale[kN / 2];   // of a row of O, of two tiles
  f32x2 probe = {0, 0};  // products of elements: not finite when an element is not
  bool far = false;      // a reference is
  uint32_t lds;
  Sink sink;

  __device__ __forceinline__ Epilogue(Arguments* from, const AttnWork& its_work, Loop& its_loop,
                                      int first_row, Global<uint16_t>* first, uint32_t its_lds)
      : args(*read_again(from)),
        work(its_work),
        loop(its_loop),
        wave_row(first_row),
        o(first),
        lds(its_lds) {
    row = loop.lane % S::kTile;
    group = loop.lane / S::kTile;
    tile_stride = 2 * S::kTile * args.o_stride_seq;
    lse = args.lse;
    sinks = args.sinks;
    columns = args.head_dim_v - int(work.column);
  }

  // False if an element is not finite, or scores are so large that they are rounded by more than
  // 2^-6: the greatest probability is then not what it should be.
  __device__ __forceinline__ bool operator()([[maybe_unused]] bool can_overflow) {
    last_output();
    set_scales();
    if (work.part >= 0) {
      store_part(can_overflow);
    } else if (__builtin_expect(kExact || columns < S::kHeadDimV, false)) {
      store_carefully(can_overflow);
      store_lse();
    } else {
      auto* to = (Global<uint8_t>*)o;
      unroll<kN>([&]<int t>() {
        store_tile<t>((Global<uint16_t>*)to);
        to += tile_stride;
      });
      store_lse();
    }
    return all_finite();
  }

  // Of all waves.
  __device__ __forceinline__ bool all_finite() const {
    const float sum = probe[0] + probe[1];
    const bool finite = __builtin_amdgcn_ballot_w64(far | !(__builtin_fabsf(sum) < kInf)) == 0;
    const auto votes = (Local<u32x4>*)(lds + S::kBaseVote);
    ((Local<uint32_t>*)votes)[Lane::wave()] = finite;
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    ordered::s_barrier();
    const u32x4 all = *votes;
    return uniform(all[0] & all[1] & all[2] & all[3]);
  }

  // ---- The output of the last unit, and under its matrix instructions the sums over the lanes of
  // a row: a turn has the first exchange of a value, the second one, if any, of the value kLag
  // turns before, and the last addition of the one before that.
  static constexpr int kLag = 6, kExchanges = S::kGroups / 2;
  static constexpr bool is_value(int n) { return n >= 0 && n < kN; }
  static constexpr int exchanges_since(int turn) {  // behind its first exchange, for kLag turns
    int n = 0;
    for (int t = turn + 1; t < turn + kLag; ++t)
      n += is_value(t) + (kExchanges == 2 && is_value(t - kLag));
    return n;
  }
  __device__ __forceinline__ void last_output() {
    constexpr int kTurns = most(S::kOutputOps, 1 + kN + kExchanges * kLag);
    const uint32_t lane = 4 * loop.lane;
    float other[kN];
    unroll<kTurns>([&]<int turn>() {
      constexpr int first = turn - 1, before = first - kLag, last = first - kExchanges * kLag;
      constexpr int second = kExchanges == 2 ? before : -1;
      if constexpr (turn < S::kOutputOps) loop.template multiply_values<kN - 1, turn>();
      if constexpr (turn == 1) {  // what was read from memory is there, or nearly so
        ordered::settle_uniform(tile_stride);
        ordered::settle_uniform(lse);
        ordered::settle_uniform(sinks);
        ordered::settle_uniform(columns);
      }
      if constexpr (is_value(second) || is_value(last))
        ordered::s_waitcnt<ordered::kAnyVm, exchanges_since(before)>();
      if constexpr (is_value(last)) {
        rounded[last] = ordered::v_add_f32(rounded[last], other[last]);
        scale[last / 2][last % 2] = ordered::v_rcp_f32(rounded[last]);
      }
      if constexpr (is_value(second)) {
        rounded[second] = ordered::v_add_f32(rounded[second], other[second]);
        other[second] = ordered::ds_bpermute_b32(lane ^ 4 * 32, rounded[second]);
      }
      if constexpr (is_value(first)) {
        rounded[first] = rounded_sum(first);
        ordered::settle(rounded[first]);
        other[first] = ordered::ds_bpermute_b32(lane ^ 4 * S::kTile, rounded[first]);
      }
    });
  }

  // The sums, for those who ask; relative to the reference itself, for the digits of logarithms.
  __device__ __forceinline__ void add_up() {
    const float by = v_exp_f32(-loop.uniform.top);
    for (int t = 0; t < kN; ++t) {
      reference[t] += loop.uniform.top;
      sums[t] = loop.row.sum[t] * by;
    }
    for (int other = S::kTile; other < kWaveLanes; other *= 2)
      for (float& sum : sums) sum += from_lane(sum, loop.lane ^ other);
  }
  static __device__ __forceinline__ bool is_far(float reference) {
    const float size = __builtin_fabsf(reference);
    return (size > 0x1p18f) & (size < kInf);
  }
  // A lane's sample stands for its probabilities of a unit, at most for all that it has.
  __device__ __forceinline__ float rounded_sum(int t) const {
    const float sum = loop.row.sum[t], sample = loop.row.sample[t];
    const float rounded = loop.row.rounded_sample[t] * kBias;
    const float worth = __builtin_fminf(S::kLaneKeys, sum * v_rcp_f32(sample));
    return __builtin_fmaf(rounded - sample, worth, sum) * (1 / kBias);
  }
  __device__ __forceinline__ void set_scales() {
    for (int t = 0; t < kN; ++t) {
      reference[t] = -loop.row.negative_ref[t];
      if constexpr (!kExact) far |= is_far(reference[t]);
      if constexpr (S::kCapped) reference[t] += args.softcap_log2;
      if (rounded[t] == 0) scale[t / 2][t % 2] = 0;  // no key
    }
    if (__builtin_expect(sinks != 0, false) && work.part < 0)
      add_sinks();
    else if (work.part >= 0 || lse != 0)
      add_up();
    for (auto& pair : scale) ordered::settle(pair);
  }
  // A sink is one more score, whose value is 0.
  __device__ __forceinline__ void add_sinks() {
    sink = Sink(((const Global<float>*)sinks)[work.head_q]);
    for (int t = 0; t < kN; ++t) {
      float same = reference[t];
      scale[t / 2][t % 2] = sink.join(same, rounded[t]);
    }
    add_up();
    for (int t = 0; t < kN; ++t) sink.join(reference[t], sums[t]);
  }

  // ---- Whole tiles, as if all were finite
  template <int t>
  __device__ __forceinline__ void store_tile(Global<uint16_t>* to) {
    u32x4 out[kPieces];
    unroll<kPieces>([&]<int piece>() {
      unroll<2>([&]<int half>() {
        constexpr int n = 4 * piece + 2 * half;
        const f32x2 x = scaled<t, n>(), y = scaled<t, n + 1>();
        probe = ordered::v_pk_fma_f32(x, y, probe);
        out[piece][2 * half] = round(x);
        out[piece][2 * half + 1] = round(y);
      });
    });
    if (inside(t))
      for (int piece = 0; piece < kPieces; ++piece)
        *(Global<u32x4>*)(to + column_of(piece)) = out[piece];
  }

  // Elements 2 n and 2 n + 1 of the lane's row of a tile.
  template <int t, int n>
  __device__ __forceinline__ f32x2 scaled() const {
    return ordered::v_pk_mul_f32_half<t % 2>(read_pair<t, n>(), scale[t / 2]);
  }
  template <int t, int n>
  static __device__ __forceinline__ f32x2 read_pair() {
    constexpr int i = 2 * n / S::kTilesD, tile = 2 * n % S::kTilesD;
    return f32x2{v_accvgpr_read_b32<S::template kAccOutput<t, tile> + i>(),
                 v_accvgpr_read_b32<S::template kAccOutput<t, tile + 1> + i>()};
  }
  __device__ __forceinline__ uint32_t round(f32x2 x) const {
    if constexpr (!kBf16) {
      if constexpr (S::kRounding == Rounding::kTowardZero)
        return ordered::v_cvt_pkrtz_f16_f32(x[0], x[1]);
      return ordered::v_pack_b32_f16(ordered::v_cvt_f16_f32(x[0]), ordered::v_cvt_f16_f32(x[1]));
    }
    const float lo = x[0], hi = x[1];  // elements of a vector cannot be cast
    uint32_t a = bits(lo), b = bits(hi);
    if constexpr (S::kRounding == Rounding::kNearestEven) {
      a = ordered::v_add3_u32(a, 0x7fff, ordered::v_bfe_u32<16, 1>(a));
      b = ordered::v_add3_u32(b, 0x7fff, ordered::v_bfe_u32<16, 1>(b));
    }
    if constexpr (S::kRounding == Rounding::kNearestAway) {
      a = ordered::v_add_u32<0x8000>(a);
      b = ordered::v_add_u32<0x8000>(b);
    }
    return ordered::v_perm_b32(b, a, loop.uniform.high_halves);
  }

  __device__ __forceinline__ void store_lse() const {
    if (lse == 0 || work.column != 0) return;
    auto* to = lse_of_rows(args, work);
    for (int t = 0; t < kN; ++t)
      if (inside(t) && group == 0) to[row_of(t)] = sink.log_sum_exp(reference[t], sums[t]);
  }

  // Whatever the numbers, and only the columns that there are. A loop, which takes less room in the
  // instruction cache.
  __device__ __forceinline__ void store_carefully([[maybe_unused]] bool can_overflow) {
    auto* next = (Global<uint8_t>*)o;
#pragma clang loop unroll(disable)
    for (int t = 0; t < kN; ++t, next += tile_stride) {
      auto* to = (Global<uint16_t>*)next;
      f32x2 x[4 * kPieces];
      float by;
      unroll<kN>([&]<int n>() {
        if (t != n) return;
        unroll<4 * kPieces>([&]<int i>() { x[i] = read_pair<n, i>(); });
        by = scale[n / 2][n % 2];
      });
      if (!inside(t)) continue;
      for (int piece = 0; piece < kPieces; ++piece) {
        u32x4 out;
        for (int n = 0; n < 4; ++n) {
          f32x2 y = x[4 * piece + n] * by;
          if (by != by) y = f32x2{by, by};  // of two NaNs the row's
          probe += y * y;
          out[n] = round_pair<S::kElement, S::kRounding>(y[0], y[1]);
        }
        const int column = column_of(piece);
        if (4 * group * S::kTilesD + column >= columns) continue;
        auto* row = (Global<u32x4>*)(to + column);
        if (kExact && !can_overflow) keep_finite(out, *row);
        *row = out;
      }
    }
  }

  // ---- Parts along KV: O of the part's own softmax, the reference of a row and its sum
  __device__ __forceinline__ void store_part([[maybe_unused]] bool can_overflow) {
    const int64_t first = int64_t(work.part) * S::kRows + row_of(0) - work.q_start;
    auto* to = (Global<float>*)args.partial_o + first * S::kHeadDimV + 4 * group * S::kTilesD;
    unroll<kN>([&]<int t>() {
      f32x2 out[4 * kPieces];
      unroll<2 * kPieces>([&]<int n>() {
        out[2 * n] = scaled<t, 2 * n>();
        out[2 * n + 1] = scaled<t, 2 * n + 1>();
        probe = ordered::v_pk_fma_f32(out[2 * n], out[2 * n + 1], probe);
      });
      if (inside(t))
        for (int n = 0; n < 2 * kPieces; ++n) {
          const int column = column_of(n / 2) + n % 2 * 4;
          auto* quad = (Global<f32x4>*)(to + t * S::kTile * S::kHeadDimV + column);
          f32x4 x = __builtin_shufflevector(out[2 * n], out[2 * n + 1], 0, 1, 2, 3);
          if (kExact && !can_overflow) keep_finite(x, *quad);
          *quad = x;
        }
    });
    auto* max_sum = (Global<f32x2>*)args.partial_max_sum + first;
    for (int t = 0; t < kN; ++t)
      if (inside(t) && group == 0) max_sum[t * S::kTile] = f32x2{reference[t], sums[t]};
  }

  // Where sums of the attempt before did not overflow they are better: small probabilities lose
  // bits.
  static __device__ __forceinline__ void keep_finite(u32x4& x, u32x4 before) {
    constexpr uint32_t kExponent = kBf16 ? 0x7f80 : 0x7c00;
    for (int n = 0; n < 8; ++n) {
      const uint32_t half = n % 2 ? 0xffff0000 : 0xffff, exponent = kExponent << 16 * (n % 2);
      if ((before[n / 2] & exponent) != exponent || (x[n / 2] & exponent) == exponent)
        x[n / 2] = (x[n / 2] & ~half) | (before[n / 2] & half);
    }
  }
  static __device__ __forceinline__ void keep_finite(f32x4& x, f32x4 before) {
    for (int i = 0; i < 4; ++i)
      if (__builtin_fabsf(before[i]) < kInf || !(__builtin_fabsf(x[i]) < kInf)) x[i] = before[i];
  }

  __device__ __forceinline__ int row_of(int t) const { return wave_row + t * S::kTile + row; }
  __device__ __forceinline__ bool inside(int t) const { return row_of(t) < work.rows; }
};
