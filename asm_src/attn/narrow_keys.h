// The keys and values that a wave of a kernel for narrow windows has, all of them in registers, and
// which heads of which tile it computes.
#pragma once
#include "attn/output.h"
#include "isa/buffer.h"
#include "isa/global.h"
#include "isa/mfma.h"
#include "tile/operand.h"

template <int kHeadDim_, Element kElement_, Rounding kRounding_>
struct NarrowShape {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr Element kElement = kElement_;
  static constexpr Rounding kRounding = kRounding_;
  static constexpr int kRows = kMatrix;
  static constexpr int kTiles = 9, kKeys = kMatrix * kTiles;  // of keys that the rows of a wave see
  static constexpr int kMostKeys = kKeys - kMatrix + 1;       // that one row sees
  static constexpr int kLog2Heads = 2;                        // of a tile, at most
  static constexpr int kOctets = kHeadDim / 32;               // of a lane and row of K and Q
  static constexpr int kTilesD = kHeadDim / 16;
};

template <class S>
struct NarrowKeys {
  static constexpr int kTiles = S::kTiles, kTilesD = S::kTilesD, kOctets = S::kOctets;

  // Which heads of which tile, as asm_src/attn/work.h has it but for the parts: those of a tile
  // that is not whole have some of its heads each. Part by part, so that a kv head stays on its
  // XCD.
  struct Share {
    int tile, tile_heads_log2, heads_log2, first_head;

    __device__ __forceinline__ explicit Share(const AttnFwdArgs& args) {
      const int id = __builtin_amdgcn_workgroup_id_x(), whole = args.whole_tiles;
      tile_heads_log2 =
          least(S::kLog2Heads, __builtin_ctz(args.num_heads_q) - __builtin_ctz(args.num_heads_kv));
      tile = id;
      heads_log2 = tile_heads_log2;
      first_head = 0;
      if (id >= whole) {
        const int tiles = (args.batch * args.num_heads_q >> tile_heads_log2) * args.q_tiles - whole;
        const int part = AttnWork::divide(id - whole, tiles);
        tile = id - part * tiles;
        heads_log2 -= __builtin_ctz(args.parts);
        first_head = part << heads_log2;
      }
    }
  };

  const AttnFwdArgs& args;
  const Share share;
  AttnWork work;
  int lane, row, group;  // of the lane: row l % 16 of Q; keys 4 * (l / 16) + 0..3 of a tile
  int left, right;       // keys that a row sees before and behind its diagonal
  int first;             // key of the wave's first tile
  int from, to;          // keys that the lane's row sees, from `first` on
  int tiles;  // of keys that some row sees, from `first` on, once loaded; may be negative

  u32x4 k[kTiles][kOctets];  // row l % 16 of a tile
  u32x2 v[kTiles][kTilesD];  // column 4 * (l % 16) + d of keys 4 * (l / 16) + 0..3

  // One trip to memory for what the start needs, whatever the compiler thinks of its registers.
  static __device__ __forceinline__ const AttnFwdArgs& fetched(const AttnFwdArgs& a) {
    ordered::need_uniform(a.q, a.k, a.v, a.sinks, a.cu_seqlens_q, a.cu_seqlens_kv, a.q_stride_batch,
                          a.q_stride_seq, a.q_stride_head, a.k_stride_batch, a.k_stride_seq,
                          a.k_stride_head, a.v_stride_batch, a.v_stride_seq, a.v_stride_head,
                          a.batch, a.num_heads_q, a.seqlen_q, a.seqlen_kv, a.window_left,
                          a.window_right, a.top_left, a.q_tiles, a.head_dim, a.head_dim_v,
                          a.column_groups, a.q_tiles_inverse, a.q_tiles_shift,
                          a.num_heads_q_inverse, a.num_heads_q_shift, a.group_inverse,
                          a.group_shift, a.num_heads_kv, a.whole_tiles, a.parts);
    return a;
  }

  __device__ __forceinline__ explicit NarrowKeys(const AttnFwdArgs& arguments)
      : args(fetched(arguments)),
        share(arguments),
        work(AttnWork::nth_tile_of_heads(arguments, share.tile, S::kRows, S::kHeadDim,
                                         share.tile_heads_log2)) {
    work.head_q += share.first_head;
    work.column = 0;  // one tile has all
    lane = Lane::in_wave();
    row = lane % kMatrix;
    group = lane / kMatrix;
    const int diagonal = work.q_start + work.diagonal;
    left = args.window_left < 0 ? kFar : args.window_left;
    right = args.window_right < 0 ? kFar : args.window_right;
    first = AttnWork::clamp(diagonal - left, 0, work.keys);
    from = diagonal + row - left - first;
    to = AttnWork::most(from, least(diagonal + row + right + 1, work.keys) - first);
  }

  static constexpr int kFar = 1 << 29;  // beyond all keys

  // ---- K and V of the wave's keys. Rows and columns that are not there read as 0.
  static constexpr uint32_t kBehind = 3u << 29;  // an offset behind every buffer
  __device__ __forceinline__ BufferResource rows_of(uint64_t base, int64_t stride_batch,
                                                    int64_t stride_head, int64_t stride,
                                                    int columns) const {
    base += 2 * (work.batch * stride_batch + work.head_kv * stride_head +
                 (work.kv_base + uint32_t(first)) * stride);
    const int rows = least(work.keys - first, S::kKeys);
    const int bytes = rows <= 0 ? 0 : 2 * ((rows - 1) * int(stride) + columns);
    return raw_buffer((const Global<void>*)uniform64(base), uniform(bytes));
  }
  // The lane's first column of an octet of K and Q.
  __device__ __forceinline__ int column(int octet) const { return 32 * octet + 8 * group; }
  __device__ __forceinline__ void load_k() {
    const uint32_t stride = 2 * args.k_stride_seq;
    const auto buffer =
        rows_of(args.k, args.k_stride_batch, args.k_stride_head, args.k_stride_seq, args.head_dim);
    for (int octet = 0; octet < kOctets; ++octet) {
      const int first_column = column(octet);
      const uint32_t offset =
          first_column < args.head_dim ? row * stride + 2 * first_column : kBehind;
      for (int t = 0; t < kTiles; ++t)
        k[t][octet] =
            __builtin_amdgcn_raw_buffer_load_b128(buffer, offset + t * kMatrix * stride, 0, 0);
    }
  }
  __device__ __forceinline__ void load_v(u32x2 (&rows)[kTiles][4]) const {
    const uint32_t stride = 2 * args.v_stride_seq;
    const auto buffer = rows_of(args.v, args.v_stride_batch, args.v_stride_head, args.v_stride_seq,
                                args.head_dim_v);
    for (int r = 0; r < 4; ++r) {
      const uint32_t offset =
          4 * row < args.head_dim_v ? (4 * group + r) * stride + 2 * (4 * row) : kBehind;
      for (int t = 0; t < kTiles; ++t)
        rows[t][r] =
            __builtin_amdgcn_raw_buffer_load_b64(buffer, offset + t * kMatrix * stride, 0, 0);
    }
  }
  __device__ __forceinline__ void transpose_v(const u32x2 (&rows)[kTiles][4]) {
    for (int t = 0; t < kTiles; ++t)
      for (int d = 0; d < kTilesD; ++d)
        for (int pair = 0; pair < 2; ++pair) {
          const uint32_t lo = rows[t][2 * pair][d / 2], hi = rows[t][2 * pair + 1][d / 2];
          v[t][d][pair] =
              d % 2 ? ::v_perm_b32<kHighHalfOfBoth>(hi, lo) : ::v_perm_b32<kLowHalfOfBoth>(hi, lo);
        }
  }

  // Of all keys: K as it is, V transposed.
  __device__ __forceinline__ void load() {
    load_k();
    u32x2 rows[kTiles][4];
    load_v(rows);
    transpose_v(rows);
    const int last =
        least(least(work.q_start + kMatrix, work.rows) - 1 + work.diagonal + right + 1, work.keys);
    tiles = (last - first + kMatrix - 1) / kMatrix;
  }
  // Does no tile but the first, at its left end, and the last, at its right end, mask a key?
  __device__ __forceinline__ bool masked_at_ends() const {
    const int key = work.q_start + work.diagonal;  // of the diagonal of the first row
    return key >= left && key + kMatrix - 1 + right < work.keys &&
           left + right >= S::kKeys - kMatrix - 1;
  }
};
