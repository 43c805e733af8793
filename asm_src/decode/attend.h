// What a wave knows of its rows: Q, the running maximum, the sum of exponentials, O.
#pragma once
#include "decode/cache.h"
#include "isa/unroll.h"
#include "isa/valu.h"
#include "merge/logarithm.h"
#include "tile/reduce.h"

// One row of an item: query and head of the group.
struct Row {
  int query, head;
  bool there;
  template <class S>
  static __device__ __forceinline__ Row of(Arguments& args, const Segment& segment, int nth) {
    // Of less than 2^21 rows the quotient is off an integer by more than what rounding adds.
    const int row = segment.row_tile * S::kRows + nth;
    const int query = int((float(row) + 0.5f) * v_rcp_f32(float(args.group)));
    return {query, segment.head * args.group + row - query * args.group, query < args.seqlen_q};
  }
};

// log2 of the weight of a row's reference, which is the greatest score where it was found last; and
// how far above it, in log2 units, it is found anew. So weights down to 2^-134 of the greatest have
// bits, as many as bfloat16s to nearest below 1 would have, and float16s do not overflow. What
// limits bfloat16 are sums of products with V: of 2^17 keys they stay finite for V up to 2^78.
template <class S>
inline constexpr float kTop = S::kElement == Element::kBf16 ? 8 : 7;
template <class S>
inline constexpr float kRoom = S::kElement == Element::kBf16 ? 24 : kTop<S>;

template <class S>
struct Rows {
  bf16x8 q[S::kTiles][S::kKSteps];
  f32x4 o[S::kTiles][S::kProducts];  // O^T: row 4 g + j of a product's columns, query row r
  // Weights are 2^(top + rate * (score - reference)); the sum is of the lane's keys.
  float reference[S::kTiles], sum[S::kTiles];
  int first[S::kTiles], end[S::kTiles];  // keys that the lane's row sees
  int first_of_all, end_of_all;          // that all rows see
  // Scores are sign times products, or under a cap capped; in base 2 rate times that. What is
  // common to those of a row, as 2^20, is taken off before anything is rounded.
  float sign, rate;
  float rest;     // 1 + this and args.softmax_scale_rest times that is the true scale
  float v_scale;  // of O
  float top;      // see kTop; less where sums must not overflow

  __device__ __forceinline__ void start(Arguments& args, const Segment& segment,
                                        const Cache<S>& cache, int attempt) {
    const Length& length = cache.length();
    // Of the second attempt weights are at most 1, so that what is far below the greatest one keeps
    // its bits; of the last one all weights of a row together are at most a half.
    top = attempt == 0 ? kTop<S> : attempt == 1 ? 0 : __builtin_clz(length.all) - 32.0f;
    park(top);
    first_of_all = length.seen;
    if (args.window_left >= 0)
      first_of_all = max_of(first_of_all, length.all - 1 - args.window_left);
    end_of_all = length.all;
    if (args.window_right >= 0)
      end_of_all = min_of(end_of_all, length.all - args.seqlen_q + args.window_right + 1);
    unroll<S::kTiles>([&]<int t>() {
      const Row row = Row::of<S>(args, segment, t * kMatrix + matrix_row());
      const auto* from = row_of_q(args, segment, row);
      unroll<S::kKSteps>([&]<int c>() {
        const int column = S::column_of_step(c);
        q[t][c] = bf16x8{};
        if (row.there && column < args.head_dim) q[t][c] = global_load_dwordx4(from + column);
      });
      const int diagonal = row.query + length.all - args.seqlen_q;
      first[t] = length.seen;
      if (args.window_left >= 0) first[t] = max_of(first[t], diagonal - args.window_left);
      end[t] = length.all;
      if (args.window_right >= 0) end[t] = min_of(end[t], diagonal + args.window_right + 1);
      reference[t] = -kInf;
      sum[t] = 0;
      for (int i = 0; i < S::kProducts; ++i) o[t][i] = f32x4{};
    });
  }
  // Where nothing that is loaded waits for it.
  __device__ __forceinline__ void put_scales(Arguments& args, const Cache<S>& cache) {
    put_scale(args, cache.k_scale());
    v_scale = cache.v_scale();
  }
  // Q again, of columns that are turned. Nothing waits for what was loaded before.
  __device__ __forceinline__ void turn(Arguments& args, const Segment& segment,
                                       const Length& length) {
    if (!args.rotary_cos) return;
    const bool masked = args.window_left >= 0 || args.window_right >= 0;
    unroll<S::kTiles>([&]<int t>() {
      const Row row = Row::of<S>(args, segment, t * kMatrix + matrix_row());
      const auto* from = row_of_q(args, segment, row);
      const int position = length.old + (masked && row.there ? row.query : 0);
      unroll<S::kKSteps>([&]<int c>() {
        const int column = S::column_of_step(c);
        if (row.there && column < args.rotary_dim)
          q[t][c] = turning<S::kElement>(args, from, column, position);
      });
    });
  }

  __device__ __forceinline__ void spoil(float by) {
    for (float& x : sum) x += by;
  }

  // Keys from `key` on; some of these may be seen by some rows only.
  __device__ __forceinline__ void attend(Arguments& args, Chunk<S>& chunk, int key) {
    const float softcap = args.softcap;
    unroll<S::kKeyTiles>([&]<int n>() { chunk.template exchange<n>(); });
    unroll<S::kTiles>([&]<int t>() {
      f32x4 p[S::kKeyTiles];
      // Those of 16 keys and of the next ones by turns: none waits for the one before.
      for (int n = 0; n < S::kKeyTiles; ++n) p[n] = f32x4{};
      unroll<S::kKSteps>([&]<int c>() {
        unroll<S::kKeyTiles>([&]<int n>() {
          p[n] = product<S::kElement>(chunk.template k_operand<n, c>(), q[t][c], p[n]);
        });
      });
      if (__builtin_expect(sign != 1, false)) {
        for (int n = 0; n < S::kKeyTiles; ++n) p[n] *= sign;
        if (softcap > 0) bound(p, softcap);
      }
      // Of several tiles this way around has not the registers.
      if (S::kTiles > 1 || key < first_of_all || key + S::kKeys > end_of_all) mask<t>(p, key);
      float most = v_max_f32(p[0][0], p[0][1]);
      for (int n = 0; n < S::kKeyTiles; ++n)
        for (int i = n == 0 ? 2 : 0; i < 4; ++i) most = v_max_f32(most, p[n][i]);
      // By any reference that is not far from the greatest results are the same to rounding: that
      // of a row, which its lanes have in common, is found anew only where it is too small.
      const float room = top > 0 ? kRoom<S> : 0;
      if (any_lane((most - reference[t]) * rate > room)) {
        most = max_over_groups(most);
        const float before = reference[t];
        reference[t] = (most - before) * rate > room ? most : before;
        float by = (before - base_of(reference[t])) * rate;
        // In two steps where the exponential would flush what its product with O need not.
        if (__builtin_expect(any_lane(by < kLeastExponent && by > -kInf), false)) {
          const float first = by < kLeastExponent ? 0x1p-64f : 1.0f;
          by = by < kLeastExponent ? by + 64 : by;
          for (int i = 0; i < S::kProducts; ++i) o[t][i] *= first;
          sum[t] *= first;
        }
        const float factor = v_exp_f32(by);
        sum[t] *= factor;
        for (int i = 0; i < S::kProducts; ++i) o[t][i] *= factor;
      }
      const float base = -base_of(reference[t]);
      bf16x4 weights[S::kKeyTiles];
      unroll<S::kKeyTiles>([&]<int n>() {
        p[n] = __builtin_elementwise_fma(p[n] + base, f32x4{} + rate, f32x4{} + top);
        for (int i = 0; i < 4; ++i) {
          p[n][i] = v_exp_f32(p[n][i]);
          sum[t] += p[n][i];
        }
        weights[n] = {rounded<S::kElement>(p[n][0], p[n][1]),
                      rounded<S::kElement>(p[n][2], p[n][3])};
      });
      add<t>(chunk, weights);
    });
  }

 private:
  // Rate is never negative, so that the greatest score counts most, and never 0, which times the
  // infinity of a hidden key is NaN.
  __device__ __forceinline__ void put_scale(Arguments& args, float k_scale) {
    const float given = args.softmax_scale_log2;
    const float scale = given * k_scale;
    constexpr uint32_t kSign = 1u << 31, kOne = 0x3f800000;
    const uint32_t size = bits(scale) & ~kSign;
    const bool is_whole = args.softcap > 0 || size < kLeastRate;
    rate = __builtin_bit_cast(float, is_whole ? kOne : size);
    sign =
        uniform(__builtin_bit_cast(float, is_whole ? bits(scale) : (bits(scale) & kSign) | kOne));
    rest = 0;
    if constexpr (S::kFp8)
      if (!is_whole) rest = __builtin_fmaf(given, k_scale, -scale) * v_rcp_f32(scale);
  }
  static constexpr uint32_t kLeastRate = (127 - 100) << 23;  // 2^-100
  static constexpr float kLeastExponent = -126;              // of a normal number
  static __device__ __forceinline__ float uniform(float x) {
    return __builtin_bit_cast(float, ::uniform(int(bits(x))));
  }
  // Of a row that has seen no key, any.
  static __device__ __forceinline__ float base_of(float reference) {
    return reference == -kInf ? 0 : reference;
  }
  static __device__ __forceinline__ const Global<uint16_t>* row_of_q(Arguments& args,
                                                                     const Segment& segment,
                                                                     const Row& row) {
    return (const Global<uint16_t>*)args.q + segment.batch * args.q_batch +
           (row.there ? row.query : 0) * args.q_seq + (row.there ? row.head : 0) * args.q_head;
  }
  // O^T += V^T P^T.
  template <int t>
  __device__ __forceinline__ void add(const Chunk<S>& chunk,
                                      const bf16x4 (&weights)[S::kKeyTiles]) {
    constexpr int kAtOnce = kContracts32 && S::kKeyTiles % 2 == 0 ? 2 : 1;  // of 16 keys
    unroll<S::kKeyTiles / kAtOnce>([&]<int nth>() {
      constexpr int n = nth * kAtOnce;
      unroll<S::kPanels>([&]<int panel>() {
        unroll<S::each(panel)>([&]<int c>() {
          f32x4& to = o[t][panel * 8 + c];
          const bf16x4 v = chunk.template v_operand<n, panel, c>();
          if constexpr (kAtOnce == 1) {
            to = mma<S::kElement>(v, weights[n], to);
          } else {
            const bf16x4 next = chunk.template v_operand<n + 1, panel, c>();
            const bf16x8 both_v = {v[0], v[1], next[0], next[1]};
            const bf16x8 both_p = {weights[n][0], weights[n][1], weights[n + 1][0],
                                   weights[n + 1][1]};
            to = product<S::kElement>(both_v, both_p, to);
          }
        });
      });
    });
  }
  // softcap * tanh(x / softcap), with tanh(y) = 1 - 2 / (e^2y + 1)
  static __device__ __forceinline__ void bound(f32x4 (&p)[S::kKeyTiles], float softcap) {
    const float cap = softcap * kLog2E, inverse = 2 / softcap;
    unroll<S::kKeyTiles>([&]<int n>() {
      for (int i = 0; i < 4; ++i)
        p[n][i] = cap - 2 * cap * v_rcp_f32(v_exp_f32(p[n][i] * inverse) + 1);
    });
  }
  template <int t>
  __device__ __forceinline__ void mask(f32x4 (&p)[S::kKeyTiles], int key) const {
    unroll<S::kKeyTiles>([&]<int n>() {
      const int own = key + n * kMatrix + 4 * lane_group();
      for (int i = 0; i < 4; ++i)
        p[n][i] = own + i >= first[t] && own + i < end[t] ? p[n][i] : -kInf;
    });
  }
};
