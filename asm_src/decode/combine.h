// From the sums of waves to results: over the waves through LDS, over the parts of an item through
// memory. Nobody waits for a workgroup that has not started: the last part to arrive has the rest.
#pragma once
#include "decode/attend.h"
#include "isa/ordered_memory.h"
#include "isa/wait.h"

inline constexpr int kArrivals = 0xffff, kGenerationBit = 17;  // of a counter, as in gemm/splits.h

// Some columns of a row: O / sum is the result.
struct Sums {
  float greatest, sum;
  f32x4 o[2] = {};
  // All of them by one reference: the greatest of theirs.
  template <int kCount>
  static __device__ __forceinline__ Sums of(const Sums (&each)[kCount]) {
    Sums all{each[0].greatest, 0};
    for (int n = 1; n < kCount; ++n) all.greatest = v_max_f32(all.greatest, each[n].greatest);
    const float base = all.greatest == -kInf ? 0 : all.greatest;
    for (int n = 0; n < kCount; ++n) {
      const float factor = v_exp_f32(each[n].greatest - base), sum = each[n].sum * factor;
      all.sum = n == 0 ? sum : all.sum + sum;
      for (int i = 0; i < 2; ++i) {
        const f32x4 o = each[n].o[i] * factor;
        all.o[i] = n == 0 ? o : all.o[i] + o;
      }
    }
    return all;
  }
};

template <class S>
struct Exchange {
  static constexpr int kPitch = S::kPanel + 4;  // floats
  alignas(16) float o[S::kWaves][kMatrix][kPitch];
  float greatest[S::kWaves][kMatrix], sum[S::kWaves][kMatrix];
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
           args.row_tiles, args.num_heads_kv, 0, 0, 0, 0);
    ordered::settle(lane_);  // what follows from it is not computed before the first keys
    parts_ = uniform(segment.parts);
    item_ = uniform((segment.batch * args.num_heads_kv + segment.head) * args.row_tiles +
                    segment.row_tile);
  }
  __device__ __forceinline__ void run(Rows<S>& rows) {
    scale_ = rows.v_scale;
    unroll<S::kTiles>([&]<int t>() {
      rows.sum[t] = sum_over_groups(rows.sum[t]);
      unroll<S::kPanels>([&]<int p>() {
        put<t, p>(rows);
        s_barrier();
        if (has_columns<p>()) {
          const Sums sums = over_waves();
          if (parts_ == 1)
            finish<p>(sums, t);
          else
            keep<p>(sums, t);
        }
        s_barrier();
      });
    });
    if (parts_ == 1 || !arrive()) return;
    unroll<S::kTiles>([&]<int t>() {
      unroll<S::kPanels>([&]<int p>() {
        if (has_columns<p>()) finish<p>(over_parts<p>(t), t);
      });
    });
  }

 private:
  static __device__ __forceinline__ uint64_t counter_of(Arguments& args, int item) {
    return args.counters + int64_t(item) * 8;
  }
  static constexpr int kLanesOfRow = S::kLanes / kMatrix;
  static constexpr int kSlot = S::kRows * (S::kColumns + 2) * 4;  // bytes
  static constexpr int kColumnsOfLane = 8;

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
    lds.greatest[wave()][matrix_row()] = rows.greatest[t];
    lds.sum[wave()][matrix_row()] = rows.sum[t];
  }
  __device__ __forceinline__ Sums of_wave(int wave) const {
    Sums sums{lds.greatest[wave][row()], lds.sum[wave][row()]};
    for (int i = 0; i < 2; ++i)
      sums.o[i] = *(const Local<f32x4>*)&lds.o[wave][row()][column() + 4 * i];
    return sums;
  }
  __device__ __forceinline__ Sums over_waves() const {
    Sums each[S::kWaves];
    unroll<S::kWaves>([&]<int w>() { each[w] = of_wave(w); });
    return Sums::of(each);
  }

  // ---- Parts in memory: O of all rows, then maximum and sum of each.
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
    const uint64_t to = slot(uniform(segment.part));
    for (int i = 0; i < 2; ++i) {
      const auto x = __builtin_bit_cast(u32x4, sums.o[i]);
      ordered::global_store_dwordx4_sc1(to, offset_of_o<p>(t) + 16 * i, x);
    }
    if (p == 0 && column() == 0)
      ordered::global_store_dwordx2_sc1(to, offset_of_sum(t),
                                        uint64_t(bits(sums.sum)) << 32 | bits(sums.greatest));
  }
  template <int p>
  __device__ __forceinline__ Sums over_parts(int t) const {
    constexpr int kAtOnce = 8;
    Sums sums{-kInf, 0, {}};
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
      Sums each[kAtOnce + 1];
      each[kAtOnce] = sums;
      for (int n = 0; n < kAtOnce; ++n) {
        ordered::settle(o[n][0]);
        ordered::settle(o[n][1]);
        ordered::settle(sum[n]);
        // One that is there twice counts once.
        const bool is_one = first + n < parts_;
        each[n].greatest = is_one ? __builtin_bit_cast(float, uint32_t(sum[n])) : -kInf;
        each[n].sum = __builtin_bit_cast(float, uint32_t(sum[n] >> 32));
        for (int i = 0; i < 2; ++i) each[n].o[i] = __builtin_bit_cast(f32x4, o[n][i]);
      }
      sums = Sums::of(each);
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
    if (args.sinks) {
      const float sink = ((const Global<float>*)args.sinks)[of.head] * kLog2E;
      sums = Sums::of({sums, Sums{sink, sink == -kInf ? 0.f : 1.f, {}}});
    }
    const int first = p * S::kPanel + column();
    if (first == 0 && args.lse)
      ((Global<float>*)
           args.lse)[(int64_t(segment.batch) * args.num_heads_kv * args.group + of.head) *
                         args.seqlen_q +
                     of.query] =
          sums.sum == 0 ? -kInf : (sums.greatest + v_log_f32(sums.sum)) * kLn2;
    if (first >= args.head_dim_v) return;
    const float inverse = sums.sum == 0 ? 0 : v_rcp_f32(sums.sum) * scale_;
    bf16x8 x;
    for (int i = 0; i < 4; ++i) {
      const f32x4& from = sums.o[i / 2];
      x[i] = round_pair<S::kElement, Rounding::kNearestEven>(from[i % 2 * 2] * inverse,
                                                             from[i % 2 * 2 + 1] * inverse);
    }
    auto* to = (Global<uint16_t>*)args.o + segment.batch * args.o_batch + of.query * args.o_seq +
               of.head * args.o_head;
    global_store_dwordx4(to + first, x);
  }

  Arguments& args;
  const Segment& segment;
  Local<Exchange<S>>& lds;
  int item_, parts_;
  uint32_t lane_ = Lane::in_workgroup();
  float scale_;
};
