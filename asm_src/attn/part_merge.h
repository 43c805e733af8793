// The merge of a tile's parts along KV by the last one of them to arrive, wave by wave: what
// kernels/attn_merge.hip does in a launch of its own, to the bit.
#pragma once
#include "attn/output.h"
#include "attn/parts.h"
#include "isa/ordered_l2.h"

struct PlaceOfPart {
  int own, parts;      // which part of how many
  int64_t first_part;  // index of the tile's first partial result
  uint64_t counter;    // address of the wave's counter of arrivals
};

// E: the Epilogue (attn/epilogue.h), whose wave it is.
template <class E>
struct PartMerge {
  using S = typename E::Sizes;
  static constexpr int kN = E::kN, kPairs = E::kPairs, kPieces = E::kPieces;
  E& e;

  // Of a lane's row, in LDS.
  struct RowOfParts {
    const Local<f32x2>* max_sum;
    int count;
    __device__ __forceinline__ MaxSum of(int p) const {
      const f32x2 x = max_sum[p * S::kWaveRows];
      return {x[0], x[1]};
    }
  };
  // A lane's elements of one of its rows in one part.
  struct Elements {
    f32x4 quad[kPairs / 2];
    __device__ __forceinline__ void load(const Global<float>* from) {
      for (int n = 0; n < kPairs / 2; ++n)
        quad[n] = *(const Global<f32x4>*)(from + E::column_of(n / 2) + n % 2 * 4);
    }
  };
  // kFromRegisters: the part of its own; else it is in memory, too.
  template <bool kFromRegisters>
  __device__ __forceinline__ void run(const PlaceOfPart& here) {
    ordered::buffer_inv_sc1();  // what the others wrote is there for whatever is loaded next
    const int own = kFromRegisters ? here.own : -1, parts = here.parts;
    const int64_t first = here.first_part * S::kRows + e.wave_row - e.work.q_start;
    const auto* o_of_row = (const Global<float>*)e.args.partial_o + (first + e.row) * S::kHeadDimV +
                           S::column_of_group(e.group);
    Elements next{};  // else the compiler keeps those of the attempt before
    for (f32x4& x : next.quad) ordered::settle(x);
    const auto load_next = [&](int t, int p) {
      next.load(o_of_row + (int64_t(p) * S::kRows + t * S::kTile) * S::kHeadDimV);
    };
    const int first_other = own == 0;
    if (e.inside(0)) load_next(0, first_other);

    auto* stats = (Local<f32x2>*)(e.lds + 256 + Lane::wave() * S::kMostMerged * S::kWaveRows * 8);
    const auto* max_sum = (const Global<f32x2>*)e.args.partial_max_sum + first;
#pragma clang loop unroll(disable)
    for (int p = 0; p < parts; ++p)
#pragma clang loop unroll(disable)
      for (int r = e.loop.lane; r < S::kWaveRows; r += kWaveLanes)
        if (p != own && e.wave_row + r < e.work.rows)
          stats[p * S::kWaveRows + r] = max_sum[int64_t(p) * S::kRows + r];
    if (kFromRegisters && e.group == 0)
      for (int t = 0; t < kN; ++t)
        stats[own * S::kWaveRows + t * S::kTile + e.row] = f32x2{e.reference[t], e.sums[t]};
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront", "local");

    if (e.sinks != 0)
      e.sink = Sink(((const Global<float>*)e.sinks)[e.work.head_q],
                    log2_rest_of(e.args, e.work.head_kv));
    auto* to = e.o;
#pragma clang loop unroll(disable)
    for (int t = 0; t < kN; ++t) {
      if (e.inside(t)) {
        const RowOfParts of_row{stats + t * S::kTile + e.row, parts};
        const MergedSoftmax softmax(of_row, e.sink);
        const float inverse = softmax.inverse();
        f32x4 merged[kPairs / 2] = {};
#pragma clang loop unroll(disable)
        for (int p = 0; p < parts; ++p) {
          Elements x = next;
          if (p == own) {
            read_own(t, x);
          } else {
            const int following = p + 1 + (p + 1 == own);
            if (following < parts)
              load_next(t, following);
            else if (t + 1 < kN && e.inside(t + 1))
              load_next(t + 1, first_other);
          }
          const MaxSum part = of_row.of(p);
          if (part.sum == 0) continue;  // it may hold nothing
          const float root = softmax.root_of(part), rest = part.sum * inverse * root;
          for (int n = 0; n < kPairs / 2; ++n) merged[n] += x.quad[n] * root * rest;
        }
        if (softmax.nan != softmax.nan)
          for (auto& x : merged) x = f32x4{} + softmax.nan;
        for (int piece = 0; piece < kPieces; ++piece) {
          const int column = E::column_of(piece);
          if (S::column_of_group(e.group) + column >= e.columns) continue;
          u32x4 out;
          for (int n = 0; n < 4; ++n) {
            const f32x4 x = merged[2 * piece + n / 2];
            out[n] = round_pair<S::kElement, S::kRounding>(x[n % 2 * 2], x[n % 2 * 2 + 1]);
          }
          ordered::global_store_dwordx4_sc1_done(to + column, out);
        }
        if (e.lse != 0 && e.work.column == 0 && e.group == 0)
          lse_of_rows(e.args, e.work)[e.row_of(t)] =
              softmax.log_sum_exp(e.sink, log2_rest_of(e.args, e.work.head_kv)).rounded();
      }
      to = (Global<uint16_t>*)((Global<uint8_t>*)to + e.tile_stride);
    }
    if (e.loop.lane == 0) ordered::global_store_dwordx2_sc1(here.counter, 0, 0);
  }
  __device__ __forceinline__ void read_own(int t, Elements& to) const {
    unroll<kN>([&]<int n>() {
      if (t != n) return;
      const float by = e.scale[n / 2][n % 2];
      unroll<kPairs>([&]<int i>() {
        const f32x2 x = E::template read_pair<n, i>() * by;
        to.quad[i / 2][i % 2 * 2] = x[0];
        to.quad[i / 2][i % 2 * 2 + 1] = x[1];
      });
    });
  }
};
