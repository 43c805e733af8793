// The end of attention forward: O / sum in the output's type, log-sum-exp, or a part for the merge.
// The wave is alone here too, and the vector unit is the limit: instructions stay in the order in
// which they are written, and nothing is done twice. No matrix instruction runs beside packed ones.
#pragma once
#include "attn/part_merge.h"
#include "attn/pipeline.h"
#include "isa/dpp_banks.h"
#include "isa/ordered_l2.h"

template <class S, bool kExact>
struct Epilogue {
  using Sizes = S;
  using Loop = Pipeline<S>;
  static constexpr int kN = S::kTilesQ;
  static constexpr bool kBf16 = S::kElement == Element::kBf16;
  static constexpr float kBias = kExact ? 1 : S::kBias;
  // A lane has kPieces times 8 consecutive elements of row l % kTile of a tile.
  static constexpr int kPieces = S::kAccRegs * S::kTilesD / 8, kPairs = 4 * kPieces;
  static constexpr int column_of(int piece) { return S::column_of_piece(piece); }

  Arguments& args;
  const AttnWork& work;
  Loop& loop;
  int wave_row, row, group;
  Global<uint16_t>* o;        // the lane's first element of the first tile
  uint64_t tile_stride;       // bytes
  uint64_t lse, sinks;        // addresses
  int columns;                // from the workgroup's first on
  float sums[kN];             // of a row's probabilities
  float reference[kN];        // of a row
  float rounded[kN];          // the sum of probabilities as they were rounded, an estimate
  f32x2 scale[(kN + 1) / 2];  // of a row of O, of two tiles
  float root[kN];             // and another factor of it, where one float32 may not hold both
  uint64_t far_factors = 0;   // lanes
  f32x2 probe = {0, 0};       // products of elements: not finite when an element is not
  uint32_t inexact = 0;  // the low half is not 0 when an element is not rounded as it should be
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
    if constexpr (S::kResidents > 1)  // likewise: see store_carefully()
      for (int t = 0; t < kN; ++t) sums[t] = reference[t] = 0;
  }

  // False if an element is not finite, or made NaN for its row's far reference. What is finite then
  // stays when all is done again: no row's result depends on its neighbours.
  __device__ __forceinline__ bool operator()([[maybe_unused]] bool can_overflow) {
    if constexpr (S::kResidents > 1) {  // where K was, of which no wave needs any more
      ordered::s_barrier();
      ordered::ds_write_b32(lds + S::kBaseVote + 4 * Lane::wave(), 0.0f);
    }
    last_output();
    set_scales();
    if (work.part >= 0) {
      if constexpr (S::kMostMerged > 0) return finish_part(can_overflow);
      store_part(can_overflow);
    } else {
      store_lse();
      if (__builtin_expect(!kExact && columns >= S::kHeadDimV && far_factors == 0, true)) {
        bool all_waves;
        if (__builtin_expect(store_tiles(all_waves), true)) return all_waves;
      }
      store_carefully(can_overflow);
    }
    return vote();
  }
  // Whether all waves' results are finite.
  __device__ __forceinline__ bool vote() {
    if (!is_finite()) ordered::ds_write_b32(lds + S::kBaseVote + 4 * Lane::wave(), 1.0f);
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    ordered::s_barrier();  // every wave's vote is in LDS
    read_votes();
    return __builtin_expect(none_votes(), true);
  }

  // Of this wave.
  __device__ __forceinline__ bool is_finite() const {
    const float sum = probe[0] + probe[1];
    return __builtin_amdgcn_ballot_w64(!(__builtin_fabsf(sum) < kInf)) == 0;
  }
  // Words of the waves whose results are not; they are 0 since the prologue.
  bf16x8 votes;
  __device__ __forceinline__ void read_votes() {
    ordered::ds_read_b128<0>(votes, lds + S::kBaseVote);
  }
  __device__ __forceinline__ bool none_votes() {
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    ordered::settle(votes);
    return uniform(votes[0] | votes[1] | votes[2] | votes[3]) == 0;
  }

  // ---- The output of the last unit, and beside its matrix instructions the sums over the lanes of
  // a row: a turn has the first exchange of a value, the second one, if any, of the value kLag
  // turns before, and the last addition of the one before that. The first tile is read there, too.
  // The matrix unit has room for two instructions beside each of its own, or for a reciprocal.
  static constexpr int kLag = 2, kExchanges = S::kGroups / 2, kTurns = kN + kExchanges * kLag;
  static constexpr bool is_value(int n) { return n >= 0 && n < kN; }
  // Behind the last exchange that is waited for kLag turns behind `turn`.
  static constexpr int exchanges_since(int turn) {
    int n = is_value(turn + kLag);
    for (int t = turn + 1; t < turn + kLag; ++t)
      n += is_value(t) + (kExchanges == 2 && is_value(t - kLag));
    return n;
  }
  f32x2 first_tile[kPairs];
  // Of a lone tile it is the output itself; 64 registers of one are more than there are.
  static constexpr bool kReadsBeside = kN > 1 && !S::kPairsPieces;
  __device__ __forceinline__ void last_output() {
    const uint32_t lane = 4 * loop.lane;
    float other[kN];
    uint64_t any[kN];
    unroll<kTurns>([&]<int turn>() {
      constexpr int first = turn, before = first - kLag, last = first - kExchanges * kLag;
      constexpr int second = kExchanges == 2 ? before : -1;
      const auto multiply = [&]<int half>() {
        constexpr int kHalves = 2 * kTurns, kOps = S::kOutputOps;
        unroll_from<half * kOps / kHalves, (half + 1) * kOps / kHalves>(
            [&]<int n>() { loop.template multiply_values<S::kUnits - 1, n>(); });
      };
      const auto read = [&]<int third>() {
        constexpr int kThirds = 3 * kTurns, kReads = kReadsBeside ? kPairs : 0;
        unroll_from<third * kReads / kThirds, (third + 1) * kReads / kThirds>(
            [&]<int n>() { first_tile[n] = read_pair<0, n>(); });
      };
      float inverse;  // of the sample
      if constexpr (is_value(first)) inverse = ordered::v_rcp_f32(loop.row.sample[first]);
      multiply.template operator()<2 * turn>();
      read.template operator()<3 * turn>();
      if constexpr (is_value(first)) {
        rounded[first] = rounded_sum(first, inverse);
        ordered::settle(rounded[first]);
      }
      if constexpr (turn == 0) {  // what was read from memory is there, or nearly so
        ordered::settle_uniform(tile_stride);
        ordered::settle_uniform(lse);
        ordered::settle_uniform(sinks);
        ordered::settle_uniform(columns);
      }
      if constexpr (is_value(first))
        other[first] = ordered::ds_bpermute_b32(lane ^ 4 * S::kTile, rounded[first]);
      read.template operator()<3 * turn + 1>();
      if constexpr (is_value(second) || is_value(last))
        ordered::s_waitcnt<ordered::kAnyVm, exchanges_since(before)>();
      if constexpr (is_value(last)) {
        rounded[last] = ordered::v_add_f32(rounded[last], other[last]);
        any[last] = ordered::v_cmp_neq_f32_0(rounded[last]);
        scale[last / 2][last % 2] = ordered::v_rcp_f32(rounded[last]);
      }
      multiply.template operator()<2 * turn + 1>();
      if constexpr (is_value(second)) {
        rounded[second] = ordered::v_add_f32(rounded[second], other[second]);
        other[second] = ordered::ds_bpermute_b32(lane ^ 4 * 32, rounded[second]);
      }
      read.template operator()<3 * turn + 2>();
    });
    if constexpr (!kReadsBeside) {
      ordered::s_nop<Here::kWaitOf8Passes>();
      unroll<kPairs>([&]<int n>() { first_tile[n] = read_pair<0, n>(); });
    }
    unroll<kN>([&]<int t>() {  // 0 without a key
      scale[t / 2][t % 2] = ordered::v_cndmask_b32_0(scale[t / 2][t % 2], any[t]);
    });
  }

  // The sums, for those who ask.
  __device__ __forceinline__ void add_up() {
    for (int t = 0; t < kN; ++t) sums[t] = loop.row.sum[t];
    for (int other = S::kTile; other < kWaveLanes; other *= 2)
      for (float& sum : sums) sum += from_lane(sum, loop.lane ^ other);
  }
  // And relative to a reference near which the row's log-sum-exp is, however far the renewals of
  // the loop left it below: for the digits of logarithms, and so that parts and sinks are compared
  // by what they weigh. Sums by what the reference as it is rounded, which of a large one is not
  // what was added.
  __device__ __forceinline__ void raise_references() {
    for (int t = 0; t < kN; ++t) {
      const float of_p = reference[t];
      const int above = v_frexp_exp_i32_f32(sums[t]) - S::kTop;
      reference[t] += loop.uniform.top + float(most(above, 0));
      sums[t] *= v_exp_f32(__builtin_fminf(of_p - reference[t], 64));  // no NaN without a key
    }
  }
  // Not infinite, which it is without a key.
  static __device__ __forceinline__ bool is_far(float reference) {
    const float size = __builtin_fabsf(reference);
    return size > kFarReference && size < kInf;
  }
  // A result that is truncated and next to an element is that: a row with one key gets its V,
  // whose probability is 1 but for rounding.
  static constexpr bool kTruncates = kBf16 && S::kRounding == Rounding::kTowardZero;
  static constexpr float kNudge = kTruncates ? 1 - 0x1p-16f : 1;
  // A lane's sample stands for its probabilities of a unit, at most for all that it has.
  __device__ __forceinline__ float rounded_sum(int t, float inverse_of_sample) const {
    const float sum = loop.row.sum[t];
    const float rounded = loop.row.rounded_sample[t] * kBias - loop.row.sample[t];
    const float samples = __builtin_fminf(S::kLaneKeys, sum * inverse_of_sample);
    return ordered::v_fma_f32_vector(rounded, samples, sum) * (kNudge / kBias);
  }
  __device__ __forceinline__ void set_scales() {
    // Not behind the second attempt's code, which no cache has.
    if (__builtin_expect_with_probability(sinks != 0 && work.part < 0, false, 0.6)) {
      set_references();
      add_sinks();
    } else if (__builtin_expect(work.part >= 0 || lse != 0, false)) {
      set_references();
      add_up();
      raise_references();
    }
    if constexpr (!kExact)
      for (int t = 0; t < kN; ++t)
        if (is_far(loop.row.negative_ref[t])) {
          scale[t / 2][t % 2] = sums[t] = __builtin_nanf("");
          if constexpr (kScalesLast) probe[0] = __builtin_nanf("");  // which sees no scale there
        }
    if constexpr (kN % 2) scale[kN / 2][1] = 0;
    if (__builtin_expect(args.scales != 0, false)) scale_values();
    for (auto& pair : scale) ordered::settle(pair);
  }
  // The factor of values may be as small as O is large by the renewals of the loop.
  static constexpr float kFarScale = 0x1p-100f;
  __device__ __forceinline__ void scale_values() {
    const float values = head_scales(args, work.head_kv).values;
    if (far_factors == 0)
      for (float& one : root) one = 1;
    for (int t = 0; t < kN; ++t) {
      const float by = scale[t / 2][t % 2], both = by * values;
      const bool is_far = by != 0 && __builtin_fabsf(both) < kFarScale;
      root[t] *= is_far ? by : 1;
      scale[t / 2][t % 2] = is_far ? values : both;
      far_factors |= __builtin_amdgcn_ballot_w64(is_far);
    }
  }
  __device__ __forceinline__ void set_references() {
    for (int t = 0; t < kN; ++t) {
      reference[t] = -loop.row.negative_ref[t];
      if constexpr (S::kCapped) reference[t] += args.softcap_log2;
    }
  }
  // A sink is one more score, whose value is 0. It is not rounded: what P's rounding, its bias
  // among that, did to the sum is taken from O whatever the sink is worth.
  static constexpr float kFarSink = 0x1p-28f;  // root of what the keys weigh beside it
  __device__ __forceinline__ void add_sinks() {
    sink = Sink(((const Global<float>*)sinks)[work.head_q], log2_rest_of(args, work.head_kv));
    add_up();
    raise_references();
    for (int t = 0; t < kN; ++t) {
      const Sink::Factors by = sink.join(reference[t], sums[t]);
      const bool is_far = by.root < kFarSink;
      const int half = is_far ? v_frexp_exp_i32_f32(rounded[t]) / 2 : 0;  // of the sum's size
      const float inverse = rounded[t] == 0 ? 0 : v_rcp_f32(rounded[t]);
      root[t] = v_ldexp_f32(is_far ? by.root : 1.0f, -half);
      scale[t / 2][t % 2] = (is_far ? 1.0f : by.root) * by.rest * v_ldexp_f32(inverse, half);
      far_factors |= __builtin_amdgcn_ballot_w64(is_far);
    }
  }

  // ---- Whole tiles, as if all elements were finite and none denormal. False if one of this wave
  // is, before the last tile is written. Else the wave ends here, unless another wave has one.
  __device__ __forceinline__ bool store_tiles(bool& all_waves) {
    auto* to = (Global<uint8_t>*)o;
    f32x2 x[kPairs];
    unroll<kN>([&]<int t>() {
      scale_tile<t>(x);
      if constexpr (t < kN - 1) {
        store_tile<t>((Global<uint16_t>*)to, x);
        to += tile_stride;
      }
    });
    if (__builtin_expect(!is_finite() || !is_exact(), false)) {
      probe = f32x2{0, 0};
      return false;
    }
    // Every wave's vote is in LDS: those that go on to store_carefully() get to this one in vote().
    ordered::s_barrier();
    read_votes();
    store_tile<kN - 1>((Global<uint16_t>*)to, x);
    all_waves = none_votes();
    if (__builtin_expect(all_waves, true)) ordered::s_endpgm();
    return true;
  }
  // As far as is done with two elements at a time; of a part, which stays in float32, all.
  template <int t, bool kOfPart = false>
  __device__ __forceinline__ void scale_tile(f32x2 (&to)[kPairs]) {
    unroll<kPairs / 2>([&]<int n>() {
      constexpr bool kUnscaled = kScalesLast && !kOfPart;
      f32x2 &x = to[2 * n], &y = to[2 * n + 1];
      x = kUnscaled ? element_pair<t, 2 * n>() : scaled<t, 2 * n>();
      y = kUnscaled ? element_pair<t, 2 * n + 1>() : scaled<t, 2 * n + 1>();
      if constexpr (kRoundsPairs && !kOfPart) x = rounded_pair(x), y = rounded_pair(y);
      if constexpr (kOfPart)
        if (__builtin_expect(far_factors != 0, false)) x *= root[t], y *= root[t];
      probe = ordered::v_pk_fma_f32(x, y, probe);
    });
  }
  template <int t>
  __device__ __forceinline__ void store_tile(Global<uint16_t>* to, const f32x2 (&x)[kPairs]) {
    u32x4 out[kPieces];
    unroll<kPairs>([&]<int n>() { out[n / 4][n % 4] = round<t>(x[n]); });
    if constexpr (S::kDirect)
      for (u32x4& piece : out) exchange_halves(piece);
    if constexpr (S::kPairsPieces) {
      store_rows_in_pairs<t>(to, out);
      return;
    }
    if (!inside(t)) return;
    if constexpr (S::kWholeSectors) {
      // Through the L2, or all that it holds is written when the last workgroup has ended.
      unroll<kPieces>([&]<int piece>() {
        ordered::global_store_dwordx4_sc1<2 * column_of(piece)>(to, out[piece]);
      });
      ordered::s_nop<1>();  // until the last one has read its registers
      for (u32x4& piece : out) ordered::keep(piece);
    } else {
      for (int piece = 0; piece < kPieces; ++piece)
        *(Global<u32x4>*)(to + column_of(piece)) = out[piece];
    }
  }

  // Lanes l and l + 8 of 16 have two pieces each of their rows; then both have a piece of the first
  // one's row, and one of the other's.
  template <int t>
  __device__ __forceinline__ void store_rows_in_pairs(Global<uint16_t>* to, u32x4 (&out)[kPieces]) {
    const bool is_second = row / 8 % 2;
    const int64_t apart = tile_stride / S::kTile * 8;
    auto* first =
        (Global<uint16_t>*)((Global<uint8_t>*)to - (is_second ? apart : 0)) + (is_second ? 8 : 0);
    auto* second = (Global<uint16_t>*)((Global<uint8_t>*)first + apart);
    unroll<kPieces / 2>([&]<int pair>() {
      u32x4 &x = out[2 * pair], &y = out[2 * pair + 1];
      for (int n = 0; n < 4; ++n) {
        const uint32_t own = x[n];
        x[n] = v_mov_b32_dpp<kRowRor<8>, kUpperBanks>(y[n], own);
        y[n] = v_mov_b32_dpp<kRowRor<8>, kLowerBanks>(own, y[n]);
      }
    });
    const int row_of_first = row_of(t) - (is_second ? 8 : 0);
    const auto store = [&]<int second_row>(Global<uint16_t>* there) {
      if (row_of_first + 8 * second_row >= work.rows) return;
      unroll<kPieces / 2>([&]<int pair>() {
        ordered::global_store_dwordx4_sc1<2 * column_of(2 * pair)>(there,
                                                                   out[2 * pair + second_row]);
      });
      ordered::s_nop<1>();  // until the last one has read its registers
    };
    store.template operator()<0>(first);
    store.template operator()<1>(second);
    for (u32x4& piece : out) ordered::keep(piece);
  }

  // Direct tiles: lanes l and l + 32 have 4 columns each of two neighbouring pieces; then all 8 of
  // one of them.
  static __device__ __forceinline__ void exchange_halves(u32x4& piece) {
    uint32_t a0 = piece[0], a1 = piece[1], b0 = piece[2], b1 = piece[3];
    // In registers of their own before the wait: nothing is moved behind it.
    ordered::settle(a0);
    ordered::settle(a1);
    ordered::settle(b0);
    ordered::settle(b1);
    ordered::s_nop<2>();
    ordered::v_permlane32_swap_b32(a0, b0);
    ordered::v_permlane32_swap_b32(a1, b1);
    piece = u32x4{a0, a1, b0, b1};
  }

  // Ties to even, two elements at a time: -65535 x has 16 bits less than x for the last of its own,
  // and 65536 x more is x without those. The low half of the result is 0 then, but not where 8 bits
  // are less than bfloat16 has room for, if those of x below are not 0; results of 2^112 and more
  // become infinite or NaN. Both are done again in integers.
  static constexpr bool kRoundsPairs =
      kBf16 && S::kRounding == Rounding::kNearestEven && !S::kConverts;
  __device__ __forceinline__ f32x2 rounded_pair(f32x2 x) {
    constexpr f32x2 kShift = {0x1p16f, 0x1p16f};
    x = ordered::v_pk_fma_f32_uniform(x, kShift, ordered::v_pk_fma_f32_uniform(x, -kShift, x));
    const float lo = x[0], hi = x[1];
    inexact = ordered::v_or3_b32(inexact, bits(lo), bits(hi));
    return x;
  }
  __device__ __forceinline__ bool is_exact() const {
    return !kRoundsPairs || __builtin_amdgcn_ballot_w64(inexact << 16 != 0) == 0;
  }

  // Elements 2 n and 2 n + 1 of the lane's row of a tile.
  template <int t, int n>
  __device__ __forceinline__ f32x2 scaled() const {
    return ordered::v_pk_mul_f32_half<t % 2>(element_pair<t, n>(), scale[t / 2]);
  }
  template <int t, int n>
  __device__ __forceinline__ f32x2 element_pair() const {
    if constexpr (t == 0)
      return first_tile[n];
    else
      return read_pair<t, n>();
  }
  template <int t, int n>
  static __device__ __forceinline__ f32x2 read_pair() {
    if constexpr (S::kDirect) {
      constexpr int first = S::template kAccOutput<t, 0> + 2 * n;
      return f32x2{v_accvgpr_read_b32<first>(), v_accvgpr_read_b32<first + 1>()};
    } else {
      constexpr int i = 2 * n / S::kTilesD, tile = 2 * n % S::kTilesD;
      return f32x2{v_accvgpr_read_b32<S::template kAccOutput<t, tile> + i>(),
                   v_accvgpr_read_b32<S::template kAccOutput<t, tile + 1> + i>()};
    }
  }
  // The rest, of one pair. To float16 a product is rounded in the instruction that computes it.
  static constexpr bool kScalesLast =
      !kBf16 && S::kRounding == Rounding::kNearestEven && !S::kConverts;
  template <int t>
  __device__ __forceinline__ uint32_t round(f32x2 x) const {
    if constexpr (S::kConverts) return convert_pair<S::kElement>(x[0], x[1]);
    if constexpr (kScalesLast) {
      const float by = scale[t / 2][t % 2];
      return ordered::v_fma_mixhi_f16(ordered::v_fma_mixlo_f16(x[0], by, -0.0f), x[1], by, -0.0f);
    }
    if constexpr (!kBf16) return ordered::v_cvt_pkrtz_f16_f32(x[0], x[1]);
    const float lo = x[0], hi = x[1];  // elements of a vector cannot be cast
    uint32_t a = bits(lo), b = bits(hi);
    if constexpr (S::kRounding == Rounding::kNearestAway) {
      a = ordered::v_add_u32<0x8000>(a);
      b = ordered::v_add_u32<0x8000>(b);
    }
    return ordered::v_perm_b32(b, a, loop.uniform.high_halves);
  }

  __device__ __forceinline__ void store_lse() const {
    if (__builtin_expect(lse == 0 || work.column != 0, true)) return;
    auto* to = lse_of_rows(args, work);
    for (int t = 0; t < kN; ++t)
      if (inside(t) && group == 0) {
        auto& there = to[row_of(t)];
        if (!kExact || there != there)
          there = sink.log_sum_exp(reference[t], sums[t], log2_rest_of(args, work.head_kv));
      }
  }

  // Whatever the numbers, and only the columns that there are. A loop, which takes less room in the
  // instruction cache.
  __device__ __forceinline__ void store_carefully([[maybe_unused]] bool can_overflow) {
    auto* next = (Global<uint8_t>*)o;
#pragma clang loop unroll(disable)
    for (int t = 0; t < kN; ++t, next += tile_stride) {
      auto* to = (Global<uint16_t>*)next;
      f32x2 x[kPairs];
      float by, first = 1;
      // Else the compiler keeps those of the attempt before.
      if constexpr (S::kDirect || S::kResidents > 1 || S::kPairsPieces) {
        for (auto& pair : x) pair = f32x2{};
        by = 0;
      }
      unroll<kN>([&]<int n>() {
        if (t != n) return;
        unroll<kPairs>([&]<int i>() { x[i] = read_pair<n, i>(); });
        by = scale[n / 2][n % 2];
        if (far_factors != 0) first = root[n];
      });
      if (!inside(t)) continue;
      for (int piece = 0; piece < kPieces; ++piece) {
        u32x4 out;
        for (int n = 0; n < 4; ++n) {
          f32x2 y = x[4 * piece + n] * first * by;
          if (by != by) y = f32x2{by, by};  // of two NaNs the row's
          const f32x2 wrong = y * 0.0f;     // NaN where it is not finite
          probe += wrong;
          if constexpr (!kExact) y += wrong;  // unlike what overflows as it is rounded
          out[n] = round_pair<S::kElement, S::kRounding>(y[0], y[1]);
        }
        if constexpr (S::kDirect) exchange_halves(out);
        const int column = column_of(piece);
        if (S::column_of_group(group) + column >= columns) continue;
        auto* row = (Global<u32x4>*)(to + column);
        if constexpr (kExact) keep_finite(out, *row, can_overflow);
        *row = out;
        if constexpr (kExact) ordered::end_clause();  // what follows is loaded to its registers
      }
    }
  }

  // ---- Parts along KV: O of the part's own softmax, the reference of a row and its sum
  __device__ __forceinline__ void store_part([[maybe_unused]] bool can_overflow) {
    const int64_t first = int64_t(work.part) * S::kRows + row_of(0) - work.q_start;
    const int column_of_lane = S::kDirect ? 4 * group : S::column_of_group(group);
    auto* to = (Global<float>*)args.partial_o + first * S::kHeadDimV + column_of_lane;
    unroll<kN>([&]<int t>() {
      f32x2 out[kPairs];
      scale_tile<t, true>(out);
      if (inside(t))
        for (int n = 0; n < kPairs / 2; ++n) {
          const int column = S::kDirect ? 8 * n : column_of(n / 2) + n % 2 * 4;
          auto* quad = (Global<f32x4>*)(to + t * S::kTile * S::kHeadDimV + column);
          f32x4 x = __builtin_shufflevector(out[2 * n], out[2 * n + 1], 0, 1, 2, 3);
          if constexpr (kExact) keep_finite(x, *quad, can_overflow);
          if constexpr (S::kMostMerged > 0) {  // through the L2, for another XCD
            ordered::global_store_dwordx4_sc1_done(quad, __builtin_bit_cast(u32x4, x));
          } else {
            *quad = x;
            if constexpr (kExact) ordered::end_clause();
          }
        }
    });
    auto* max_sum = (Global<f32x2>*)args.partial_max_sum + first;
    for (int t = 0; t < kN; ++t) {
      if (!inside(t) || group != 0) continue;
      auto* pair = max_sum + t * S::kTile;
      if constexpr (kExact) {
        const float sum = (*pair)[1];
        if (sum == sum) continue;
      }
      if constexpr (S::kMostMerged > 0) {
        const uint64_t both = uint64_t(bits(sums[t])) << 32 | bits(reference[t]);
        ordered::global_store_dwordx2_sc1_done(pair, both);
      } else {
        *pair = f32x2{reference[t], sums[t]};
      }
    }
  }

  // ---- Parts that the last one to arrive merges. Waves of the same number have the same rows in
  // all parts of a tile, so that each counts for itself and no wave waits for another one. Whoever
  // finds all others there before it has written anything keeps what it has in registers.
  __device__ __forceinline__ PlaceOfPart place() const {
    PlaceOfPart here;
    here.parts = args.parts;
    here.own = work.part % here.parts;
    here.first_part = work.part - here.own;
    here.counter = args.counters + (here.first_part * kWaves + Lane::wave()) * 8;
    return here;
  }
  static constexpr int kArrivals = 0xffff, kGenerationBit = 17;  // as in gemm/arrival.h

  __device__ __forceinline__ bool finish_part([[maybe_unused]] bool can_overflow) {
    const bool merges = __builtin_expect(args.counters != 0, true);
    const PlaceOfPart here = place();
    const uint64_t generation = args.generation << kGenerationBit;
    int arrived = 0;  // all others had: 1; -1: all is to be done again
    if (kExact || !merges) {
      store_part(can_overflow);
      const bool all_finite = vote();
      if (!merges) return all_finite;
      if (!all_finite && can_overflow) return false;
    } else {
      uint64_t seen;
      ordered::global_load_dwordx2_sc1(seen, here.counter, 0);
      unroll<kN>([&]<int t>() {
        f32x2 x[kPairs];
        scale_tile<t, true>(x);
      });
      wait_for(seen);
      arrived = uniform64(seen) == generation + here.parts - 1;
      if (!vote()) arrived = -1;
      if (arrived <= 0) store_part(can_overflow);
      if (arrived < 0) return false;
    }
    if (arrived > 0 || arrive(here, generation))
      PartMerge<Epilogue>{*this}.template run<!kExact>(here);
    if constexpr (!kExact) ordered::s_endpgm();  // where the end of the kernel is far away
    return true;
  }
  static __device__ __forceinline__ void wait_for(uint64_t& x) {
    ordered::s_waitcnt<0, ordered::kAnyLgkm>();
    ordered::settle(x);
  }
  // Whether all other parts have.
  __device__ __forceinline__ bool arrive(const PlaceOfPart& here, uint64_t generation) const {
    ordered::s_waitcnt<0, ordered::kAnyLgkm>();  // all stores went through the L2
    uint64_t before = 0;
    if (loop.lane == 0) {
      ordered::end_clause();
      // Raised first: what a launch that was aborted left behind is of an older generation.
      ordered::global_atomic_umax_x2(here.counter, 0, generation);
      ordered::end_clause();
      ordered::global_atomic_add_x2_return(before, here.counter, 0, 1);
      wait_for(before);
    }
    return int(uniform64(before) & kArrivals) == here.parts - 1;
  }

  // What the attempt before has right stays. After the first one that is all but NaNs. After the
  // second all whose sums did not overflow, which are better, since small probabilities lose bits;
  // and what is not finite once more.
  static __device__ __forceinline__ void keep_finite(u32x4& x, u32x4 before, bool of_first) {
    constexpr uint32_t kExponent = kBf16 ? 0x7f80 : 0x7c00;
    for (int n = 0; n < 8; ++n) {
      const uint32_t shift = 16 * (n % 2), half = 0xffffu << shift;
      const uint32_t size = before[n / 2] >> shift & 0x7fff, now = x[n / 2] >> shift & 0x7fff;
      if (of_first ? size <= kExponent : size < kExponent || now >= kExponent)
        x[n / 2] = (x[n / 2] & ~half) | (before[n / 2] & half);
    }
  }
  static __device__ __forceinline__ void keep_finite(f32x4& x, f32x4 before, bool of_first) {
    for (int i = 0; i < 4; ++i)
      if (__builtin_fabsf(before[i]) < kInf || !(of_first || __builtin_fabsf(x[i]) < kInf))
        x[i] = before[i];
  }

  __device__ __forceinline__ int row_of(int t) const { return wave_row + t * S::kTile + row; }
  __device__ __forceinline__ bool inside(int t) const { return row_of(t) < work.rows; }
};
