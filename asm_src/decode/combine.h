// From the sums of waves to results: over the waves through LDS, over the parts of an item through
// memory. Nobody waits for a workgroup that has not started: the last part to arrive has the rest.
#pragma once
#include "decode/attend.h"
#include "isa/ordered_memory.h"
#include "isa/wait.h"

inline constexpr int kArrivals = 0xffff, kGenerationBit = 17;  // of a counter, as in gemm/arrival.h

// Some columns of a row: O by weights whose sum is 1, and that sum before, relative to 2^(rate *
// reference).
struct Sums {
  float reference, sum;
  f32x4 o[2] = {};
  // What the first `count` of them come to. `kRaw`: O is not divided by the sum yet. The
  // exponential flushes what its product with O does not: so it is that of 2^kDepth more, and where
  // a weight is less than kFar O takes a part of it before.
  template <bool kRaw, int kCount>
  static __device__ __forceinline__ Sums of(Sums (&each)[kCount], float rate, int count = kCount) {
    constexpr float kDepth = 24, kFar = -64;
    Sums all{each[0].reference, 0};
    for (int n = 1; n < kCount; ++n) all.reference = v_max_f32(all.reference, each[n].reference);
    const float base = all.reference == -kInf ? 0 : all.reference;
    float exponent[kCount], least = base;
    for (int n = 0; n < kCount; ++n) {
      const float x = each[n].reference;
      exponent[n] = __builtin_fmaf(x - base, rate, kDepth);
      least = __builtin_fminf(least, __builtin_fmaf(x, 0.0f, x));  // NaN, without a key, is not
    }
    float weight[kCount];
    for (int n = 0; n < kCount; ++n) {
      const float factor = v_exp_f32(exponent[n]);
      const float sum = each[n].sum * factor;
      weight[n] = kRaw ? factor : sum;
      all.sum = n == 0 ? sum : all.sum + sum;
    }
    if (__builtin_expect(any_lane((least - base) * rate < kFar), false))
      for (int n = 0; n < kCount; ++n) {
        const bool is_far = exponent[n] < kFar;
        const float first = is_far ? 0x1p-64f : 1.0f;
        const float rest = v_exp_f32(exponent[n] + 64) * (kRaw ? 1.0f : each[n].sum);
        weight[n] = is_far ? rest : weight[n];
        for (f32x4& o : each[n].o) o *= first;
      }
    const float inverse = all.sum == 0 ? 0 : v_rcp_f32(all.sum);
    for (int n = 0; n < kCount; ++n) {
      if (n >= count) continue;
      for (int i = 0; i < 2; ++i) {
        const f32x4 o = each[n].o[i] * (weight[n] * inverse);
        all.o[i] = n == 0 ? o : all.o[i] + o;
      }
    }
    all.sum *= 0x1p-24f;
    return all;
  }
};

template <class S>
struct Exchange {
  static constexpr int kPitch = S::kPanel + 4;  // floats
  alignas(16) float o[S::kWaves][kMatrix][kPitch];
  float reference[S::kWaves][kMatrix], sum[S::kWaves][kMatrix];
  alignas(16) int votes[S::kWaves];
  int arrived;
};

template <class S>
class Combine {
 public:
  __device__ __forceinline__ Combine(Arguments& of, const Segment& with, Local<Exchange<S>>& in)
      : args(of), segment(with), lds(in) {
    // Under way together, where each would be a trip of its own.
    wanted(args.o, args.o_batch, args.o_seq, args.o_head, args.sinks, args.lse, args.partials,
           args.counters, args.generation, args.group, args.seqlen_q, args.head_dim_v,
           args.row_tiles, args.num_heads_kv, args.softmax_scale_rest, args.softcap,
           args.keeps_floats, 0);
    ordered::settle(lane_);  // what follows from it is not computed before the first keys
    parts_ = uniform(segment.parts);
    item_ = uniform((segment.batch * args.num_heads_kv + segment.head) * args.row_tiles +
                    segment.row_tile);
  }
  // False, and nothing is merged, if an element is not finite: sums may have overflowed. The
  // segment is then attended once more, with care, and again if need be; only those elements are
  // written that were not.
  __device__ __forceinline__ bool run(Rows<S>& rows) {
    const int top = uniform(int(bits(rows.top)));  // negative of the last attempt
    const bool is_careful = top != int(bits(kTop<S>));
    v_scale_ = rows.v_scale;
    rate_ = rows.rate;
    rest_ = args.softcap > 0 ? 0 : args.softmax_scale_rest + rows.rest;
    is_careful_ = is_careful;
    const float unit = v_exp_f32(-rows.top);
    if constexpr (kOverflows) lds.votes[wave()] = is_finite(rows) ? 0 : 1;
    u32x4 votes = {};
    unroll<S::kTiles>([&]<int t>() {
      rows.sum[t] = sum_over_groups(rows.sum[t]);
      unroll<S::kPanels>([&]<int p>() {
        put<t, p>(rows);
        s_barrier();  // O, references and sums of all waves are in LDS
        if (kOverflows && t == 0 && p == 0) votes = *(const Local<u32x4>*)&lds.votes;
        if (has_columns<p>()) {
          Sums sums = over_waves();
          sums.sum *= unit;
          if (parts_ == 1)
            finish<p>(sums, t);
          else
            keep<p>(sums, t);
        }
        s_barrier();  // all waves have read them
      });
    });
    const bool all_finite = uniform(votes[0] | votes[1] | votes[2] | votes[3]) == 0;
    if (top >= 0 && __builtin_expect(!all_finite, false)) return false;
    if (parts_ == 1 || !arrive()) return true;
    is_careful_ = false;  // nothing of what is merged has been written
    if constexpr (S::kTiles == 1) {
      unroll<S::kPanels>([&]<int p>() {
        if (has_columns<p>()) finish<p>(over_parts<p>(0), 0);
      });
    } else {  // once in the code, most of whose time is its fetch
#pragma clang loop unroll(disable)
      for (int t = 0; t < S::kTiles; ++t)
        unroll<S::kPanels>([&]<int p>() {
          if (has_columns<p>()) finish<p>(over_parts<p>(t), t);
        });
    }
    return true;
  }

 private:
  static __device__ __forceinline__ uint64_t counter_of(Arguments& args, int item) {
    return args.counters + int64_t(item) * 8;
  }
  static constexpr int kLanesOfRow = S::kLanes / kMatrix;
  static constexpr int kSlot = S::kRows * (S::kColumns + 2) * 4;  // bytes
  static constexpr int kColumnsOfLane = 8;

  // Products of float16s do not.
  static constexpr bool kOverflows = S::kElement == Element::kBf16;

  // Of this wave: products with 0 are 0.
  __device__ __forceinline__ bool is_finite(const Rows<S>& rows) const {
    f32x4 probe = {};
    unroll<S::kTiles>([&]<int t>() {
      for (const f32x4& o : rows.o[t]) probe = __builtin_elementwise_fma(o, f32x4{}, probe);
    });
    return !any_lane(!(probe[0] + probe[1] + (probe[2] + probe[3]) == 0));
  }
  __device__ __forceinline__ int row() const { return lane_ / kLanesOfRow; }
  __device__ __forceinline__ int column() const { return lane_ % kLanesOfRow * kColumnsOfLane; }
  // As tile/operand.h has them.
  __device__ __forceinline__ int matrix_row() const { return lane_ % kMatrix; }
  __device__ __forceinline__ int lane_group() const { return lane_ / kMatrix % kLaneGroups; }
  __device__ __forceinline__ int wave() const { return lane_ / kWaveLanes; }
  template <int p>
  __device__ __forceinline__ bool has_columns() const {
    return column() < S::columns_of(p);
  }
  template <int t, int p>
  __device__ __forceinline__ void put(const Rows<S>& rows) const {
    constexpr int kEach = S::each(p);
    auto& to = lds.o[wave()][matrix_row()];
    if constexpr (S::kPacked) {
      for (int c = 0; c < kEach; ++c)
        *(Local<f32x4>*)&to[c * kMatrix + 4 * lane_group()] = rows.o[t][p * 8 + c];
    } else {
      for (int j = 0; j < 4; ++j)
        for (int c = 0; c < kEach; c += 4) {
          f32x4 x;
          for (int i = 0; i < 4; ++i) x[i] = rows.o[t][p * 8 + c + i][j];
          *(Local<f32x4>*)&to[S::column_of_row(p, 4 * lane_group() + j) + c] = x;
        }
    }
    lds.reference[wave()][matrix_row()] = rows.reference[t];
    lds.sum[wave()][matrix_row()] = rows.sum[t];
  }
  __device__ __forceinline__ Sums of_wave(int wave) const {
    Sums sums{lds.reference[wave][row()], lds.sum[wave][row()]};
    for (int i = 0; i < 2; ++i)
      sums.o[i] = *(const Local<f32x4>*)&lds.o[wave][row()][column() + 4 * i];
    return sums;
  }
  __device__ __forceinline__ Sums over_waves() const {
    Sums each[S::kWaves];
    unroll<S::kWaves>([&]<int w>() { each[w] = of_wave(w); });
    __builtin_amdgcn_sched_barrier(0);  // all are under way before the first is used
    return Sums::of<true>(each, rate_);
  }

  // ---- Parts in memory: O of all rows that are there, then reference and sum of each.
  __device__ __forceinline__ bool is_there(int t) const {
    return segment.row_tile * S::kRows + t * kMatrix + row() < args.group * args.seqlen_q;
  }
  __device__ __forceinline__ uint64_t slot(int part) const {
    return args.partials + int64_t(segment.slot_of(part)) * kSlot;
  }
  template <int p>
  __device__ __forceinline__ uint32_t offset_of_o(int t) const {
    return ((t * kMatrix + row()) * S::kColumns + p * S::kPanel + column()) * 4;
  }
  __device__ __forceinline__ uint32_t offset_of_sum(int t) const {
    return (S::kRows * S::kColumns + (t * kMatrix + row()) * 2) * 4;
  }
  template <int p>
  __device__ __forceinline__ void keep(const Sums& sums, int t) const {
    if (!is_there(t)) return;
    const uint64_t to = slot(uniform(segment.part));
    for (int i = 0; i < 2; ++i) {
      auto x = __builtin_bit_cast(u32x4, sums.o[i]);
      if (__builtin_expect(is_careful_, false)) {
        u32x4 before;
        ordered::global_load_dwordx4_sc1(before, to, offset_of_o<p>(t) + 16 * i);
        ordered::s_waitcnt<0, ordered::kAnyLgkm>();
        ordered::settle(before);
        const auto was = __builtin_bit_cast(f32x4, before);
        for (int n = 0; n < 4; ++n)
          if (!is_better(was[n], sums.o[i][n])) x[n] = before[n];
      }
      ordered::global_store_dwordx4_sc1(to, offset_of_o<p>(t) + 16 * i, x);
      ordered::s_nop<1>();  // until it has read its registers
      ordered::keep(x);
    }
    if (p == 0 && column() == 0 && !is_careful_)
      ordered::global_store_dwordx2_sc1(to, offset_of_sum(t),
                                        uint64_t(bits(sums.sum)) << 32 | bits(sums.reference));
  }
  template <int p>
  __device__ __forceinline__ Sums over_parts(int t) const {
    constexpr int kAtOnce = 8;
    Sums sums{-kInf, 0, {}};
    if (!is_there(t)) return sums;
    for (int first = 0; first < parts_; first += kAtOnce) {
      u32x4 o[kAtOnce][2];
      uint64_t sum[kAtOnce];
      for (int n = 0; n < kAtOnce; ++n) {
        const uint64_t from = slot(min_of(first + n, parts_ - 1));
        for (int i = 0; i < 2; ++i)
          ordered::global_load_dwordx4_sc1(o[n][i], from, offset_of_o<p>(t) + 16 * i);
        ordered::global_load_dwordx2_sc1(sum[n], from, offset_of_sum(t));
      }
      ordered::keep(offset_of_o<p>(t), offset_of_sum(t));
      ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      Sums each[1 + kAtOnce];
      each[0] = sums;
      for (int n = 0; n < kAtOnce; ++n) {
        ordered::settle(o[n][0]);
        ordered::settle(o[n][1]);
        ordered::settle(sum[n]);
        // One that is there twice counts once.
        const bool is_one = first + n < parts_;
        Sums& to = each[1 + n];
        to.reference = is_one ? __builtin_bit_cast(float, uint32_t(sum[n])) : -kInf;
        to.sum = is_one ? __builtin_bit_cast(float, uint32_t(sum[n] >> 32)) : 0;
        for (int i = 0; i < 2; ++i) to.o[i] = __builtin_bit_cast(f32x4, o[n][i]);
      }
      sums = Sums::of<false>(each, rate_, 1 + parts_ - first);
    }
    return sums;
  }
  // What the workgroup wrote is there before it is counted; whether all other parts have been.
  // Then what they wrote is there, too.
  __device__ __forceinline__ bool arrive() const {
    ordered::buffer_wbl2_sc1();
    ordered::s_waitcnt<0, ordered::kAnyLgkm>();
    s_barrier();
    const uint64_t counter = counter_of(args, item_);
    if (lane_ == 0) {
      uint64_t before;
      ordered::end_clause();
      ordered::global_atomic_umax_x2(counter, 0, args.generation << kGenerationBit);
      ordered::end_clause();
      ordered::global_atomic_add_x2_return(before, counter, 0, 1);
      ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      ordered::settle(before);
      ordered::buffer_inv_sc1();
      lds.arrived = int(before & kArrivals);
    }
    s_barrier();
    const bool last = __builtin_amdgcn_readfirstlane(lds.arrived) == parts_ - 1;
    if (last && lane_ == 0) ordered::global_store_dwordx2_sc1(counter, 0, 0);
    return last;
  }

  // ---- Results
  template <int p>
  __device__ __forceinline__ void finish(Sums sums, int t) const {
    const Row of = Row::of<S>(args, segment, t * kMatrix + row());
    if (!of.there) return;
    const int first = p * S::kPanel + column();
    Log lse;
    if (args.lse || args.sinks) lse = log_of(sums);
    if (__builtin_expect(args.sinks != 0, false))
      join_sink(((const Global<float>*)args.sinks)[of.head], sums, lse);
    if (first == 0 && args.lse && !is_careful_) {
      const int64_t of_row =
          (int64_t(segment.batch) * args.num_heads_kv * args.group + of.head) * args.seqlen_q +
          of.query;
      if (__builtin_expect(args.keeps_floats != 0, false))
        ((Global<f32x2>*)args.lse)[of_row] = f32x2{lse.whole, lse.rest};
      else
        ((Global<float>*)args.lse)[of_row] = lse.rounded();
    }
    if (first >= args.head_dim_v) return;
    if constexpr (S::kFp8)
      for (f32x4& o : sums.o) o *= v_scale_;
    const int64_t element =
        segment.batch * args.o_batch + of.query * args.o_seq + of.head * args.o_head + first;
    if (__builtin_expect(args.keeps_floats != 0, false)) {
      auto* to = (Global<f32x4>*)((Global<float>*)args.o + element);
      for (int i = 0; i < 2; ++i) {
        const f32x4 before = is_careful_ ? to[i] : f32x4{};
        for (int n = 0; n < 4; ++n)
          if (is_careful_ && !is_better(before[n], sums.o[i][n])) sums.o[i][n] = before[n];
        to[i] = sums.o[i];
      }
      ordered::s_nop<1>();  // until it has read its registers
      ordered::keep(sums.o[0], sums.o[1]);
      return;
    }
    bf16x8 x;
    for (int i = 0; i < 4; ++i) {
      const f32x4& from = sums.o[i / 2];
      x[i] = round_pair<S::kElement, Rounding::kNearestEven>(from[i % 2 * 2], from[i % 2 * 2 + 1]);
    }
    auto* to = (Global<uint16_t>*)args.o + element;
    if (__builtin_expect(is_careful_, false)) {
      const bf16x8 before = global_load_dwordx4(to);
      for (int i = 0; i < 8; ++i) {
        const auto half = [&](uint32_t both) {
          return float_of<S::kElement>(both >> 16 * (i % 2) & 0xffff);
        };
        const uint32_t mask = i % 2 ? 0xffff0000 : 0xffff;
        if (!is_better(half(before[i / 2]), half(x[i / 2])))
          x[i / 2] = (x[i / 2] & ~mask) | (before[i / 2] & mask);
      }
    }
    global_store_dwordx4(to, x);
  }
  // Of a row that has seen no key the reference is -inf.
  __device__ __forceinline__ Log2 log2_of_reference(const Sums& sums) const {
    if (sums.sum == 0) return {-kInf, 0};
    const float whole = sums.reference * rate_;
    return {whole, __builtin_fmaf(sums.reference, rate_, -whole) + whole * rest_};
  }
  __device__ __forceinline__ Log log_of(const Sums& sums) const {
    return sums.sum == 0 ? Log{-kInf, 0} : log2_of_reference(sums).natural(sums.sum);
  }
  // One more score, whose value is 0. What is left of O may be less than a float32 of it: O is
  // multiplied by a root twice.
  __device__ __forceinline__ void join_sink(float sink, Sums& sums, Log& lse) const {
    if (sink == -kInf) return;
    const Log2 of_keys = log2_of_reference(sums), of_sink = Log2::of_natural(sink);
    const float above = (of_keys.whole - of_sink.whole) + (of_keys.rest - of_sink.rest);
    const float root = v_exp_f32(__builtin_fminf(above, 0) * 0.5f), keys = sums.sum * root;
    // An infinite one, or none, makes all NaN.
    const float total = keys * root + v_exp_f32(__builtin_fminf(-above, 0)) + (sink - sink);
    const float rest = keys * v_rcp_f32(total);
    for (f32x4& o : sums.o) o = o * root * rest;
    lse = above > 0 ? of_keys.natural(total) : Log{sink, v_log_f32(total) * kLn2};
  }
  // Whether what was computed with care is to be kept of an element: not where it had been finite,
  // nor where the weight of an infinity has become 0.
  static __device__ __forceinline__ bool is_better(float before, float now) {
    return !(__builtin_fabsf(before) < kInf) && now == now;
  }

  Arguments& args;
  const Segment& segment;
  Local<Exchange<S>>& lds;
  int item_, parts_;
  uint32_t lane_ = Lane::in_workgroup();
  float v_scale_, rate_, rest_;
  bool is_careful_;
};
