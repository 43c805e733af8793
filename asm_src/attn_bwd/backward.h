// Attention backward for one block of keys: dK and dV of its keys, and what they add to dQ.
//
//   step n    matrix unit                      vector unit                memory
//             S, dP of tile n                  P, dS; dS to LDS           rows of tile n + 1
//             dV += P^T dO, dK += dS^T Q                                  tile n + 1 to LDS
//             dQ of tile n - 1 = dS K                                     Q, dO of tile n + 2; dQ
//
// A wave holds dK and dV of its keys and K and V of them, and of all keys of the block its share of
// the columns of K, by columns. S = Q K^T has rows of q in the accumulator's rows, so that P and dS
// are operands of the sums over rows where they are computed; dQ, the sum over keys, takes dS from
// LDS, where the lanes of four keys have put four rows' pieces. One barrier a step: what a step
// reads was written in the step before. Of GQA the heads of a group follow each other.
#pragma once
#include "attn_bwd/stage.h"
#include "attn_bwd/turns.h"
#include "isa/dpp.h"
#include "isa/global.h"
#include "isa/issue_order.h"
#include "isa/unroll.h"
#include "isa/valu.h"
#include "isa/wait.h"
#include "tile/mma.h"

template <class S>
struct Backward {
  static constexpr Element kOf = S::kElement;
  static constexpr int kSteps = S::steps(S::kHeadDim), kStepsV = S::steps(S::kHeadDimV);
  static constexpr int kChunks = S::kHeadDim / 32, kChunksV = S::kHeadDimV / 32;  // of a lane
  static constexpr int kPairs = S::kTiles / 2;  // of tiles of keys: 16 bytes of dS
  static constexpr int kPatches = S::kHeadDim + S::kHeadDimV;
  static constexpr int kPatchSteps = (kPatches + S::kLanes - 1) / S::kLanes;

  struct Position {  // of a tile of rows
    int head, tile;
  };
  struct RowSums {
    f32x4 lse[S::kHalves], minus_delta[S::kHalves];
  };

  // Read again where they are needed: all of them would not fit in scalar registers.
  static __device__ __forceinline__ Constant<AttnBwdArgs>& arguments() {
    return *(Constant<AttnBwdArgs>*)anew((uint64_t)__builtin_amdgcn_kernarg_segment_ptr());
  }

  const AttnBwdArgs& args;
  const BackwardWork<S> work;
  Local<char>* const lds;
  const int wave = Lane::wave(), lane = Lane::in_wave(), c = matrix_row(), g = lane_group();
  const int group;
  bf16x8 k[S::kWaveTiles][kChunks], v[S::kWaveTiles][kChunksV], k_columns[kPairs][S::kDqTiles];
  f32x4 dk[S::kWaveTiles][kSteps] = {}, dv[S::kWaveTiles][kStepsV] = {};
  Patch<S> patch[kPatchSteps];
  RowSums next_sums;

  __device__ __forceinline__ Backward(const AttnBwdArgs& args, int id, Local<char>* lds)
      : args(args), work(args, id), lds(lds), group(work.heads_q) {}

  // ---- Addresses
  __device__ __forceinline__ static uint64_t row_of(uint64_t base, int64_t batch_stride,
                                                    int64_t seq_stride, int64_t head_stride,
                                                    int batch, int64_t row, int head, int bytes) {
    return base + (batch * batch_stride + row * seq_stride + head * head_stride) * bytes;
  }
  // Rows from `row` on, up to `rows` of them.
  __device__ __forceinline__ static BufferResource rows_from(uint64_t address, int rows,
                                                             int64_t stride, int columns,
                                                             int bytes) {
    const int end = rows > 0 ? ((rows - 1) * int(stride) + columns) * bytes : 0;
    return raw_buffer((const Global<void>*)address, end);
  }
  __device__ __forceinline__ int rows_left(int tile) const {
    return min_of(work.rows - tile * S::kRows, S::kRows);
  }
  __device__ __forceinline__ int head_q(Position at) const { return work.head_q + at.head; }
  __device__ __forceinline__ Position after(Position at) const {
    const bool last = at.tile == work.first;
    return {at.head + last, last ? work.end - 1 : at.tile - 1};
  }
  __device__ __forceinline__ bool within(Position at) const { return at.head < group; }

  // ---- Loads
  __device__ __forceinline__ void load_patches(Position at) {
    auto& args = arguments();
    const int rows = within(at) ? rows_left(at.tile) : 0;
    const int64_t row = work.q_base + int64_t(at.tile) * S::kRows;
    unroll<kPatchSteps>([&]<int n>() {
      const int waves_before = n * S::kWaves + wave;
      const bool of_q = waves_before < S::kHeadDim / kWaveLanes;
      if (waves_before >= kPatches / kWaveLanes) return;
      const uint64_t q = row_of(args.q, args.q_stride_batch, args.q_stride_seq, args.q_stride_head,
                                work.batch, row, head_q(at), 2);
      const uint64_t dout = row_of(args.dout, args.dout_stride_batch, args.dout_stride_seq,
                                   args.dout_stride_head, work.batch, row, head_q(at), 2);
      const int64_t stride = of_q ? args.q_stride_seq : args.dout_stride_seq;
      const int columns = of_q ? args.head_dim : args.head_dim_v;
      const int nth = waves_before * kWaveLanes + lane - (of_q ? 0 : S::kHeadDim);
      patch[n].load(rows_from(of_q ? q : dout, rows, stride, columns, 2), nth, int(stride) * 2,
                    columns);
    });
  }
  __device__ __forceinline__ void store_patches(Local<char>* stage) {
    unroll<kPatchSteps>([&]<int n>() {
      const int waves_before = n * S::kWaves + wave, nth = waves_before * kWaveLanes + lane;
      if (waves_before < S::kHeadDim / kWaveLanes) {
        patch[n].template store_rows<S::kHeadDim>(stage + S::kQ, nth);
        patch[n].template store_columns<S::kHeadDim>(stage + S::kQColumns, nth);
      } else if (waves_before < kPatches / kWaveLanes) {
        patch[n].template store_rows<S::kHeadDimV>(stage + S::kDo, nth - S::kHeadDim);
        patch[n].template store_columns<S::kHeadDimV>(stage + S::kDoColumns, nth - S::kHeadDim);
      }
    });
  }
  __device__ __forceinline__ void load_sums(Position at) {
    if (!within(at)) return;
    auto& args = arguments();
    const int64_t tile =
        (int64_t(work.batch) * args.num_heads_q + head_q(at)) * args.row_tiles + at.tile;
    const auto* from = (const Global<char>*)args.rows + tile * (2 * S::kRows * 4);
    for (int h = 0; h < S::kHalves; ++h) {
      next_sums.lse[h] = *(const Global<f32x4>*)(from + 64 * h + 16 * g);
      next_sums.minus_delta[h] = *(const Global<f32x4>*)(from + 4 * S::kRows + 64 * h + 16 * g);
    }
  }

  // ---- Before the loop
  __device__ __forceinline__ void load_keys() {
    auto& args = arguments();
    const int rows = max_of(min_of(work.keys - work.first_key, S::kKeys), 0);
    const int64_t row = work.kv_base + int64_t(work.first_key);
    const uint64_t k_from = row_of(args.k, args.k_stride_batch, args.k_stride_seq,
                                   args.k_stride_head, work.batch, row, work.head_kv, 2);
    const uint64_t v_from = row_of(args.v, args.v_stride_batch, args.v_stride_seq,
                                   args.v_stride_head, work.batch, row, work.head_kv, 2);
    const BufferResource of_k = rows_from(k_from, rows, args.k_stride_seq, args.head_dim, 2);
    const BufferResource of_v = rows_from(v_from, rows, args.v_stride_seq, args.head_dim_v, 2);
    unroll<S::kWaveTiles>([&]<int t>() {
      const int key = S::tile_of(wave, t) * S::kTile + c;
      unroll<kChunks>([&]<int n>() {
        const int column = 32 * n + 8 * g;
        k[t][n] = buffer_load_dwordx4(of_k, column < args.head_dim
                                                ? (key * int(args.k_stride_seq) + column) * 2
                                                : int(kOutside));
      });
      unroll<kChunksV>([&]<int n>() {
        const int column = 32 * n + 8 * g;
        v[t][n] = buffer_load_dwordx4(of_v, column < args.head_dim_v
                                                ? (key * int(args.v_stride_seq) + column) * 2
                                                : int(kOutside));
      });
    });
    // K by columns goes through LDS: eight keys of a column of K are an operand.
    static_assert(S::kKeys * S::kHeadDim * 2 <= S::kLdsBytes);
    unroll<S::kWaveTiles>([&]<int t>() {
      const int key = S::tile_of(wave, t) * S::kTile + c;
      unroll<kChunks>([&]<int n>() {
        const int chunk = (4 * n + g) ^ key % 8;
        ds_write_b128((Local<u32x4>*)(lds + key * 2 * S::kHeadDim + chunk * 16), k[t][n]);
      });
    });
    s_barrier();  // K is in LDS
    if constexpr (S::kDirect)
      read_key_columns_transposed();
    else
      read_key_columns();
    s_barrier();  // all waves have read it: tiles of Q and dO come in its place
  }
  // Eight keys of a column of a lane: 4 g to 4 g + 3 of a tile, and of the next one.
  __device__ __forceinline__ void read_key_columns() {
    unroll<kPairs>([&]<int p>() {
      unroll<S::kDqTiles>([&]<int m>() {
        const int column = S::kHeadDim / S::kWaves * wave + S::kTile * m + c;
        uint32_t of_key[8];
        unroll<8>([&]<int i>() {
          const int key = 32 * p + 16 * (i / 4) + 4 * g + i % 4;
          const int chunk = column / 8 ^ key % 8;
          of_key[i] =
              *(const Local<uint16_t>*)(lds + key * 2 * S::kHeadDim + chunk * 16 + column % 8 * 2);
        });
        unroll<4>([&]<int i>() { k_columns[p][m][i] = of_key[2 * i] | of_key[2 * i + 1] << 16; });
      });
    });
  }
  __device__ __forceinline__ void read_key_columns_transposed() {
    const int key = 4 * g + c / 4;
    unroll<S::kDqTiles>([&]<int m>() {
      const int chunk = (S::kHeadDim / S::kWaves * wave + S::kTile * m) / 8 + c % 4 / 2;
      const uint32_t from =
          uint32_t(lds) + key * 2 * S::kHeadDim + (chunk ^ key % 8) * 16 + c % 2 * 8;
      unroll<2 * kPairs>([&]<int n>() {
        const u32x2 x = ordered::ds_read_b64_tr_b16<n * S::kTile * 2 * S::kHeadDim>(from);
        k_columns[n / 2][m][n % 2 * 2] = x[0];
        k_columns[n / 2][m][n % 2 * 2 + 1] = x[1];
      });
    });
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    for (auto& pair : k_columns)
      for (auto& one : pair) ordered::settle(one);
  }

  // ---- Main loop
  // Two numbers to 16 bits.
  static __device__ __forceinline__ uint32_t pack(float lo, float hi) {
    if constexpr (Here::kConvertsPairs && kOf == Element::kBf16) {
      using Pair = __bf16 __attribute__((ext_vector_type(2)));
      return __builtin_bit_cast(uint32_t, __builtin_convertvector(f32x2{lo, hi}, Pair));
    } else {
      constexpr bool kAway = !Here::kConvertsPairs && kOf == Element::kBf16;
      return round_numbers<kOf, kAway ? Rounding::kNearestAway : Rounding::kNearestEven>(lo, hi);
    }
  }
  // Of four keys and four rows, each lane a key: now each lane a row.
  static __device__ __forceinline__ u32x2 exchanged(u32x2 x) {
    constexpr int kOther = kQuad<1, 0, 3, 2>, kOtherPair = kQuad<2, 3, 0, 1>;
    const int lane = Lane::in_wave();
    const uint32_t which = lane & 1 ? 0x03020706 : 0x05040100;
    const auto dpp = []<int kWhich>(uint32_t x) {
      return uint32_t(__builtin_amdgcn_update_dpp(0, int(x), kWhich, 0xf, 0xf, true));
    };
    const uint32_t rows01 =
        __builtin_amdgcn_perm(dpp.template operator()<kOther>(x[0]), x[0], which);
    const uint32_t rows23 =
        __builtin_amdgcn_perm(dpp.template operator()<kOther>(x[1]), x[1], which);
    const uint32_t there01 = dpp.template operator()<kOtherPair>(rows01);
    const uint32_t there23 = dpp.template operator()<kOtherPair>(rows23);
    return lane & 2 ? u32x2{there23, rows23} : u32x2{rows01, there01};
  }

  template <bool kMasked, bool kCapped>
  __device__ __forceinline__ void scores(Position at, const Local<char>* stage,
                                         Local<char>* ds_to) {
    const RowSums sums = next_sums;
    load_sums(after(at));
    bf16x8 q[S::kHalves][kChunks], dout[S::kHalves][kChunksV];
    unroll<S::kHalves>([&]<int h>() {
      unroll<kChunks>([&]<int n>() {
        q[h][n] = read_rows<S::kHeadDim>(stage + S::kQ + h * 32 * S::kHeadDim, 4 * n + g);
      });
      unroll<kChunksV>([&]<int n>() {
        dout[h][n] = read_rows<S::kHeadDimV>(stage + S::kDo + h * 32 * S::kHeadDimV, 4 * n + g);
      });
    });
    u32x2 p_of[S::kWaveTiles][S::kHalves], ds_of[S::kWaveTiles][S::kHalves];
    unroll<S::kWaveTiles>([&]<int t>() {
      unroll<S::kHalves>([&]<int h>() {
        f32x4 s = {}, dp = {};
        unroll<kChunks>([&]<int n>() { s = mma_chunk<kOf>(q[h][n], k[t][n], s); });
        unroll<kChunksV>([&]<int n>() { dp = mma_chunk<kOf>(dout[h][n], v[t][n], dp); });
        const int nth_tile = S::tile_of(wave, t);
        const int key = work.first_key + nth_tile * S::kTile + c;
        const int row = at.tile * S::kRows + S::kTile * h + 4 * g;
        float p[4], ds[4];
        unroll<4>([&]<int i>() {
          float log2_p, slope = 1;
          if constexpr (kCapped) {
            const float x = s[i] * args.inverse_softcap, size = __builtin_fabsf(x);
            const float e = v_exp_f32(size * (-2 * 1.44269504f)), inverse = v_rcp_f32(1 + e);
            const float tanh = __builtin_copysignf((1 - e) * inverse, x);
            slope = 4 * e * inverse * inverse;
            log2_p = __builtin_fmaf(tanh, args.softcap * 1.44269504f, -sums.lse[h][i]);
          } else {
            log2_p = __builtin_fmaf(s[i], args.softmax_scale_log2, -sums.lse[h][i]);
          }
          p[i] = v_exp_f32(log2_p);
          ds[i] = p[i] * (dp[i] + sums.minus_delta[h][i]);
          if constexpr (kCapped) ds[i] *= slope;
          if constexpr (kMasked) {
            const int distance = key - (row + i);
            const bool seen = distance >= work.least_distance && distance <= work.most_distance &&
                              key < work.keys && row + i < work.rows;
            p[i] = seen ? p[i] : 0;
            ds[i] = seen ? ds[i] : 0;
          }
        });
        p_of[t][h] = {pack(p[0], p[1]), pack(p[2], p[3])};
        ds_of[t][h] = {pack(ds[0], ds[1]), pack(ds[2], ds[3])};
        // dS to LDS: row 4 g + lane % 4, keys from 4 (c / 4) on.
        const int r = 4 * g + c % 4, chunk = (nth_tile / 2 * 4 + c / 4) ^ r % 8;
        *(Local<u32x2>*)(ds_to + (S::kTile * h + r) * 2 * S::kKeys + chunk * 16 +
                         nth_tile % 2 * 8) = exchanged(ds_of[t][h]);
      });
    });
    sum_over_rows<kStepsV>(dv, p_of, stage + S::kDoColumns);
    sum_over_rows<kSteps>(dk, ds_of, stage + S::kQColumns);
  }

  template <int kStepsOf>
  __device__ __forceinline__ static void sum_over_rows(f32x4 (&sums)[S::kWaveTiles][kStepsOf],
                                                       const u32x2 (&of)[S::kWaveTiles][S::kHalves],
                                                       const Local<char>* columns) {
    constexpr int kSteps16 = 2 / S::kHalves;  // of 16 bytes
    unroll<kStepsOf / kSteps16>([&]<int n>() {
      const bf16x8 x = read_columns(columns, n);
      unroll<S::kWaveTiles>([&]<int t>() {
        if constexpr (S::kHalves == 1) {
          sums[t][2 * n] = mma<kOf>(of[t][0], half_of(x, 0), sums[t][2 * n]);
          sums[t][2 * n + 1] = mma<kOf>(of[t][0], half_of(x, 1), sums[t][2 * n + 1]);
        } else {
          const u32x2 a = of[t][0], b = of[t][S::kHalves - 1];
          sums[t][n] = mma_chunk<kOf>(bf16x8{a[0], a[1], b[0], b[1]}, x, sums[t][n]);
        }
      });
    });
  }

  __device__ __forceinline__ void add_to_dq(Position at, const Local<char>* ds_from) {
    f32x4 dq[S::kHalves][S::kDqTiles] = {};
    unroll<S::kHalves>([&]<int h>() {
      unroll<kPairs>([&]<int p>() {
        const bf16x8 ds = read_rows<S::kKeys>(ds_from + h * 32 * S::kKeys, 4 * p + g);
        unroll<S::kDqTiles>(
            [&]<int m>() { dq[h][m] = mma_chunk<kOf>(ds, k_columns[p][m], dq[h][m]); });
      });
    });
    auto& args = arguments();
    const int64_t row = work.q_base + int64_t(at.tile) * S::kRows;
    const uint64_t to = row_of(args.dq, args.dq_stride_batch, args.dq_stride_seq,
                               args.dq_stride_head, work.batch, row, head_q(at), 4);
    const BufferResource of_dq =
        rows_from(to, rows_left(at.tile), args.dq_stride_seq, args.head_dim, 4);
    const int stride = int(args.dq_stride_seq) * 4;
    Turn turn;
    const bool turns = args.turns != 0;
    if (turns) {
      turn.set(work, counter(args, work, at), at.tile);
      turn.wait();
      order_loads();  // adds are behind it
    }
    unroll<S::kDqTiles>([&]<int m>() {
      const int column = S::kHeadDim / S::kWaves * wave + S::kTile * m + c;
      const int first = column < args.head_dim ? 4 * g * stride + 4 * column : int(kOutside);
      unroll<S::kHalves>([&]<int h>() {
        unroll<4>([&]<int i>() {
          const float x = dq[h][m][i];
          buffer_atomic_add_f32(of_dq, first + (S::kTile * h + i) * stride, x * args.softmax_scale);
        });
      });
    });
    if (turns) {
      order_loads();  // what is added is in front of the wait
      ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      turn.pass();
    }
  }

  // Of a tile of dQ and this wave.
  template <class Arguments>
  __device__ __forceinline__ uint64_t counter(Arguments& args, const BackwardWork<S>& work,
                                              Position at) const {
    const int head = work.head_q + at.head;
    const int64_t tile = (int64_t(work.batch) * args.num_heads_q + head) * args.row_tiles + at.tile;
    return args.turns + 16 + tile * 16 + wave * 4;
  }

  __device__ __forceinline__ void main_loop() {
    Position at = {0, work.end - 1}, before = at;
    load_patches(at);
    load_sums(at);
    load_keys();
    store_patches(lds);
    load_patches(after(at));
    s_barrier();  // the first tile of Q and dO is in LDS
    int parity = 0;
    Local<char>* const ds = lds + S::kDs;
    for (int n = group * (work.end - work.first); n > 0; --n) {
      const int stage = S::kTwoStages ? parity * S::kStageBytes : 0;
      Local<char>* const to = ds + parity * S::kDsBytes;
      if (args.softcap != 0)
        scores<true, true>(at, lds + stage, to);
      else if (work.full(at.tile))
        scores<false, false>(at, lds + stage, to);
      else
        scores<true, false>(at, lds + stage, to);
      parity ^= 1;
      const Position next = after(at);
      if constexpr (!S::kTwoStages) s_barrier();  // all waves have read the only stage
      store_patches(lds + (S::kTwoStages ? parity * S::kStageBytes : 0));
      load_patches(after(next));
      if (before.head != at.head || before.tile != at.tile)
        add_to_dq(before, ds + parity * S::kDsBytes);
      before = at;
      at = next;
      s_barrier();  // the next tile, and dS of this one, are in LDS
    }
    add_to_dq(before, ds + (parity ^ 1) * S::kDsBytes);
  }

  // ---- After it
  static __device__ __forceinline__ uint32_t rounded(float lo, float hi) {
    if constexpr (Here::kConvertsPairs)
      return pack(lo, hi);
    else
      return round_pair<kOf, Rounding::kNearestEven>(lo, hi);
  }
  // `sum<t, n, i>()` is an element of accumulator n of tile t of the wave's keys. Its lanes are
  // columns, a lane's of all n next to each other, and i is a key; or lanes are keys, and i one of
  // four columns. What lies beyond the last key or column is outside of the buffer.
  template <int kStepsOf, bool kFloats, class Sum>
  __device__ __forceinline__ void store(Sum&& sum, BufferResource to, int stride, int columns,
                                        float scale) const {
    constexpr int kBytes = kFloats ? 4 : 2;
    const auto store_four = [&](int at, const float (&x)[4]) {
      if constexpr (kFloats)
        buffer_store_dwordx4(to, at, u32x4{bits(x[0]), bits(x[1]), bits(x[2]), bits(x[3])});
      else
        buffer_store_dwordx2(to, at, u32x2{rounded(x[0], x[1]), rounded(x[2], x[3])});
    };
    unroll<S::kWaveTiles>([&]<int t>() {
      const int tile = S::tile_of(wave, t) * S::kTile;
      if constexpr (S::kDirect) {
        unroll<kStepsOf>([&]<int n>() {
          float x[4];
          unroll<4>([&]<int i>() { x[i] = sum.template operator()<t, n, i>() * scale; });
          const int column = S::kTile * n + 4 * g;
          store_four(column < columns ? ((tile + c) * stride + column) * kBytes : int(kOutside), x);
        });
      } else {
        unroll<4>([&]<int i>() {
          const int key = tile + 4 * g + i;
          const int row = (key * stride + kStepsOf * c) * kBytes;
          unroll<kStepsOf / 4>([&]<int n>() {
            float x[4];
            unroll<4>([&]<int j>() { x[j] = sum.template operator()<t, 4 * n + j, i>() * scale; });
            const int at = kStepsOf * c + 4 * n < columns ? row + 4 * n * kBytes : int(kOutside);
            store_four(at, x);
          });
        });
      }
    });
  }
  __device__ __forceinline__ static bool is_whole(const BackwardWork<S>& work) {
    return work.split == BackwardWork<S>::kWhole;
  }
  template <bool kFloats, class Arguments, class SumDk, class SumDv>
  __device__ __forceinline__ void store_both_as(Arguments& args, const BackwardWork<S>& work,
                                                SumDk&& of_dk, SumDv&& of_dv) const {
    const int64_t row = work.kv_base + int64_t(work.first_key);
    const int keys = min_of(work.keys - work.first_key, S::kKeys);
    constexpr int kBytes = kFloats ? 4 : 2;
    const bool whole = is_whole(work);
    const auto& to = *(const Constant<BackwardResults>*)(whole ? &args.dk : &args.dk_sums);
    // Splits are float32.
    const uint64_t dk_from = to.dk + (whole ? 0 : work.split * args.dk_stride_split * 4);
    const uint64_t dv_from = to.dv + (whole ? 0 : work.split * args.dv_stride_split * 4);
    const uint64_t dk = row_of(dk_from, to.dk_stride_batch, to.dk_stride_seq, to.dk_stride_head,
                               work.batch, row, work.head_kv, kBytes);
    const uint64_t dv = row_of(dv_from, to.dv_stride_batch, to.dv_stride_seq, to.dv_stride_head,
                               work.batch, row, work.head_kv, kBytes);
    store<kSteps, kFloats>(of_dk, rows_from(dk, keys, to.dk_stride_seq, args.head_dim, kBytes),
                           to.dk_stride_seq, args.head_dim, args.softmax_scale);
    store<kStepsV, kFloats>(of_dv, rows_from(dv, keys, to.dv_stride_seq, args.head_dim_v, kBytes),
                            to.dv_stride_seq, args.head_dim_v, 1);
  }
  template <class Arguments, class SumDk, class SumDv>
  __device__ __forceinline__ void store_both(Arguments& args, const BackwardWork<S>& work,
                                             SumDk&& of_dk, SumDv&& of_dv) const {
    if (!is_whole(work) || args.keeps_floats)
      store_both_as<true>(args, work, of_dk, of_dv);
    else
      store_both_as<false>(args, work, of_dk, of_dv);
  }
  __device__ __forceinline__ void operator()() {
    if (work.first_key >= work.keys) return;
    if (work.first < work.end) main_loop();
    store_both(
        arguments(), work, [&]<int t, int n, int i>() { return dk[t][n][i]; },
        [&]<int t, int n, int i>() { return dv[t][n][i]; });
  }
};
