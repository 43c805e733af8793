// Attention forward under windows of at most kMostKeys keys: few keys, many rows.
//
// A wave has 16 rows of Q of several heads that share a kv head, and all of their keys and values
// in registers: K as it lies in memory, V transposed once. Each head is then two products with a
// softmax between them, of which the scores of whole rows are registers, too: the maximum is exact
// and nothing is rescaled. There is no LDS, no barrier and no loop over keys; a second wave on the
// SIMD fills the gaps.
//
// Both products are transposed as in attn/forward.h, so that P is an operand where it was computed.
#pragma once
#include "attn/output.h"
#include "isa/buffer.h"
#include "isa/global.h"
#include "isa/mfma.h"
#include "isa/packed.h"

template <int kHeadDim_, Element kElement_, Rounding kRounding_>
struct NarrowShape {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr Element kElement = kElement_;
  static constexpr Rounding kRounding = kRounding_;
  static constexpr int kRows = kTile;
  static constexpr int kTiles = 9, kKeys = kTile * kTiles;  // of keys that the rows of a wave see
  static constexpr int kMostKeys = kKeys - kTile + 1;       // that one row sees
  static constexpr int kLog2Heads = 2;                      // of a tile, at most
  static constexpr int kOctets = kHeadDim / 32;             // of a lane and row of K and Q
  static constexpr int kTilesD = kHeadDim / 16;
};

template <class S>
struct Narrow {
  static constexpr int kTiles = S::kTiles, kTilesD = S::kTilesD, kOctets = S::kOctets;
  static constexpr bool kBf16 = S::kElement == Element::kBf16;
  using Wide = Shape<S::kHeadDim, S::kHeadDim, 4, S::kElement, S::kRounding>;
  using Rules = Pipeline<Wide>;

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
  int tiles;             // of keys that some row sees, from `first` on; may be negative

  u32x4 k[kTiles][kOctets];  // row l % 16 of a tile
  u32x2 v[kTiles][kTilesD];  // column 4 * (l % 16) + d of keys 4 * (l / 16) + 0..3
  f32x4 score[kTiles];       // keys 4 * (l / 16) + 0..3 of row l % 16
  f32x4 o[kTilesD];          // columns 16 * (l / 16) + 4 * i + d of row l % 16

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

  __device__ __forceinline__ explicit Narrow(const AttnFwdArgs& arguments)
      : args(fetched(arguments)),
        share(arguments),
        work(AttnWork::nth_tile_of_heads(arguments, share.tile, S::kRows, S::kHeadDim,
                                         share.tile_heads_log2)) {
    work.head_q += share.first_head;
    lane = Lane::in_wave();
    row = lane % kTile;
    group = lane / kTile;
    const int diagonal = work.q_start + work.diagonal;
    left = args.window_left < 0 ? kFar : args.window_left;
    right = args.window_right < 0 ? kFar : args.window_right;
    first = AttnWork::clamp(diagonal - left, 0, work.keys);
    from = diagonal + row - left - first;
    to = AttnWork::most(from, least(diagonal + row + right + 1, work.keys) - first);
  }

  static constexpr int kFar = 1 << 29;  // beyond all keys

  static __device__ __forceinline__ f32x4 product(u32x2 a, u32x2 b, f32x4 c) {
    if constexpr (kBf16)
      return v_mfma_f32_16x16x16_bf16(__builtin_bit_cast(bf16x4, a), __builtin_bit_cast(bf16x4, b),
                                      c);
    else
      return v_mfma_f32_16x16x16_f16(__builtin_bit_cast(f16x4, a), __builtin_bit_cast(f16x4, b), c);
  }

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
            __builtin_amdgcn_raw_buffer_load_b128(buffer, offset + t * kTile * stride, 0, 0);
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
            __builtin_amdgcn_raw_buffer_load_b64(buffer, offset + t * kTile * stride, 0, 0);
    }
  }
  __device__ __forceinline__ void transpose_v(const u32x2 (&rows)[kTiles][4]) {
    for (int t = 0; t < kTiles; ++t)
      for (int d = 0; d < kTilesD; ++d)
        for (int pair = 0; pair < 2; ++pair) {
          const uint32_t lo = rows[t][2 * pair][d / 2], hi = rows[t][2 * pair + 1][d / 2];
          v[t][d][pair] =
              d % 2 ? ::v_perm_b32<kHighHalves>(hi, lo) : ::v_perm_b32<kLowHalves>(hi, lo);
        }
  }

  // ---- A head
  struct Query {
    u32x4 octets[kOctets];
  };
  __device__ __forceinline__ const Global<uint16_t>* find_q() const {
    const int r = least(work.q_start + row, work.rows - 1);  // behind the last row copies of it
    return (const Global<uint16_t>*)args.q + work.batch * args.q_stride_batch +
           work.head_q * args.q_stride_head + (work.q_base + r) * args.q_stride_seq;
  }
  __device__ __forceinline__ Query load_q(const Global<uint16_t>* from) const {
    Query q;
    for (int octet = 0; octet < kOctets; ++octet)
      q.octets[octet] =
          global_load_dwordx4(from + (column(octet) < args.head_dim ? column(octet) : 0));
    return q;
  }
  // Zeros for the columns that are not there, and the sign of the scale: the greatest score must be
  // the greatest scaled one.
  __device__ __forceinline__ void prepare(Query& q) const {
    if (args.head_dim < S::kHeadDim)
      for (int octet = 0; octet < kOctets; ++octet)
        if (column(octet) >= args.head_dim) q.octets[octet] = u32x4{};
    if (args.softmax_scale_log2 < 0)
      for (auto& octet : q.octets) octet ^= 0x80008000;
  }

  // Which tiles hide keys of some row: the first its left end, the last one its right end, or any.
  enum class Masks { kEnds, kAny };
  // Tiles that some row sees a key of.
  template <Masks kMasks>
  __device__ __forceinline__ bool used(int t) const {
    return kMasks == Masks::kEnds || t < tiles;
  }
  template <Masks kMasks>
  __device__ __forceinline__ void hide(int t) {
    const bool left = kMasks == Masks::kAny || t == 0,
               right = kMasks == Masks::kAny || t == kTiles - 1;
    for (int i = 0; i < 4; ++i) {
      const int key = t * kTile + i + 4 * group;
      if (left && right)
        score[t][i] = uint32_t(key - from) < uint32_t(to - from) ? score[t][i] : -kInf;
      else if (left)
        score[t][i] = key >= from ? score[t][i] : -kInf;
      else if (right)
        score[t][i] = key < to ? score[t][i] : -kInf;
    }
  }

  template <Masks kMasks>
  __device__ __forceinline__ void scores(const Query& q) {
    if constexpr (kMasks == Masks::kAny) {  // else all are kept over the heads, in too many SGPRs
      ordered::settle(from);
      ordered::settle(to);
    }
    for (int t = 0; t < kTiles; ++t) {
      if (!used<kMasks>(t)) continue;
      score[t] = f32x4{};
      for (int octet = 0; octet < kOctets; ++octet)
        for (int half = 0; half < 2; ++half)
          score[t] = product(half_of(k[t][octet], half), half_of(q.octets[octet], half), score[t]);
    }
    for (int t = 0; t < kTiles; ++t)
      if (used<kMasks>(t)) hide<kMasks>(t);
  }

  // To bf16s in the high halves, as in attn/pipeline.h, convert.
  static __device__ __forceinline__ f32x2 nearest(f32x2 x) {
    const f32x2 by = {65536, 65536};
    const f32x2 h = v_pk_fma_f32(x, by, -x);
    return v_pk_fma_f32(x, by, -h);
  }
  static __device__ __forceinline__ uint32_t probabilities(f32x2 x) {
    if constexpr (!kBf16)
      return Rules::template round_pair<S::kElement, Rules::kNearest>(x[0], x[1]);
    if constexpr (S::kRounding != Rounding::kTowardZero) x = nearest(x);
    return packed(x[0], x[1]);
  }

  // Over the four lanes of a row, by matrix instructions: an exchange through the LDS takes longer.
  __device__ __forceinline__ float row_sum(float x) const {
    return v_mfma_f32_16x16x4_f32(1, x, f32x4{})[0];
  }
  __device__ __forceinline__ float row_max(float x) const {
    // Register i of a lane becomes x of group i's lane. The others are multiplied by 0: no
    // infinities.
    const float all = __builtin_amdgcn_fmed3f(x, -kGreatest, kGreatest);
    const f32x4 of = v_mfma_f32_16x16x4_f32(row % 4 == group ? 1 : 0, all, f32x4{});
    const float greatest = v_max_f32(v_max_f32(of[0], of[1]), v_max_f32(of[2], of[3]));
    return __builtin_fabsf(greatest) == kGreatest ? 2 * greatest : greatest;
  }
  static constexpr float kGreatest = 3.4028234663852886e38f;

  // Truncated probabilities are all too small: O is divided by their sum. lse has the exact one.
  static constexpr bool kSumsRounded = kBf16 && S::kRounding == Rounding::kTowardZero;
  float reference, sum, rounded_sum;
  template <Masks kMasks>
  __device__ __forceinline__ void softmax_and_output() {
    float greatest = -kInf;
    for (int t = 0; t < kTiles; ++t)
      for (int i = 0; i < 4 && used<kMasks>(t); ++i) greatest = v_max_f32(greatest, score[t][i]);
    greatest = row_max(greatest);
    // Not 0, or hidden scores would be NaN.
    const float scale = v_max_f32(__builtin_fabsf(args.softmax_scale_log2), 0x1p-126f);
    reference = greatest == -kInf ? -kInf : greatest * scale;
    const float shift = greatest == -kInf ? 0 : -reference;
    const f32x2 scales = {scale, scale}, shifts = {shift, shift};
    f32x2 sums = {0, 0};
    f32x4 rounded_sums = {};
    constexpr uint32_t kOnes = 0x3f803f80;
    for (auto& x : o) x = f32x4{};
    for (int t = 0; t < kTiles; ++t) {
      if (!used<kMasks>(t)) continue;
      u32x2 p;
      for (int half = 0; half < 2; ++half) {
        f32x2 x = v_pk_fma_f32(pair_of(score[t], half), scales, shifts);
        x = f32x2{::v_exp_f32(x[0]), ::v_exp_f32(x[1])};
        sums += x;
        p[half] = probabilities(x);
      }
      for (int d = 0; d < kTilesD; ++d) o[d] = product(v[t][d], p, o[d]);
      if constexpr (kSumsRounded) rounded_sums = product(u32x2{kOnes, kOnes}, p, rounded_sums);
    }
    sum = row_sum(sums[0] + sums[1]);
    rounded_sum = kSumsRounded && sum == sum ? rounded_sums[0] : sum;
  }

  __device__ __forceinline__ void finish(int head, float sink, Query& next) {
    float scale = v_rcp_f32(rounded_sum);
    if (args.sinks != 0) {
      const float greatest = v_max_f32(reference, sink);
      const float fresh = greatest == -kInf ? 0 : greatest;
      const float weight = ::v_exp_f32(reference - fresh), of_sink = ::v_exp_f32(sink - fresh);
      scale = weight * v_rcp_f32(rounded_sum * weight + of_sink);
      sum = sum * weight + of_sink;
      reference = fresh;
    }
    if (sum == 0) scale = 0;
    const bool inside = work.q_start + row < work.rows;
    u32x4 out[2];
    float probe = 0;  // NaN when an element is, or overflows in rounding
    f32x2 x[kTilesD][2];
    for (int d = 0; d < kTilesD; ++d)
      for (int half = 0; half < 2; ++half) {
        x[d][half] = pair_of(o[d], half) * f32x2{scale, scale};
        if constexpr (kProbeFloats) probe += x[d][half][0] + x[d][half][1];
        x[d][half] = rounded(x[d][half]);
      }
    for (int i = 0; i < 4; ++i)
      for (int pair = 0; pair < 2; ++pair)
        out[i / 2][2 * (i % 2) + pair] =
            packed(x[2 * pair][i / 2][i % 2], x[2 * pair + 1][i / 2][i % 2]);
    if constexpr (!kProbeFloats)
      for (auto& half : out)
        for (int i = 0; i < 4; i += 2) probe = dot2_f16(half[i], half[i + 1], probe);
    if (__builtin_expect(__builtin_amdgcn_ballot_w64(probe != probe) != 0, false))
      for (int i = 0; i < 4; ++i)
        for (int pair = 0; pair < 2; ++pair) {
          f32x2 y = f32x2{o[2 * pair][i], o[2 * pair + 1][i]} * scale;
          if (scale != scale) y = f32x2{scale, scale};  // of two NaNs the row's
          if (sum == 0) y = f32x2{0, 0};
          out[i / 2][2 * (i % 2) + pair] = round_any_pair<Wide>(y[0], y[1]);
        }
    // Arrives before the stores are under way: a wait behind them would be for them, too.
    for (auto& octet : next.octets) ordered::settle(octet);
    auto* to = output_row(args, work, work.q_start + row) + head * args.o_stride_head + 16 * group;
    if (inside && 16 * group < args.head_dim_v) global_store_dwordx4(to, out[0]);
    if (inside && 16 * group + 8 < args.head_dim_v) global_store_dwordx4(to + 8, out[1]);
    if (args.lse != 0 && inside && group == 0)
      lse_of_rows(args, work)[head * args.lse_stride_head + work.q_start + row] =
          sum == 0 ? -kInf : (reference + v_log_f32(sum)) * kLn2;
  }
  // As if there were no NaN and no overflow.
  static constexpr bool kProbeFloats = kBf16 && S::kRounding == Rounding::kNearestAway;
  static __device__ __forceinline__ f32x2 rounded(f32x2 x) {
    if constexpr (kBf16 && S::kRounding == Rounding::kNearestEven) return nearest(x);
    if constexpr (kBf16 && S::kRounding == Rounding::kNearestAway)
      for (int i = 0; i < 2; ++i) x[i] = __builtin_bit_cast(float, bits(x[i]) + 0x8000);
    return x;
  }
  static __device__ __forceinline__ uint32_t packed(float lo, float hi) {
    if constexpr (kBf16) return ::v_perm_b32<kHighHalves>(bits(hi), bits(lo));
    return Rules::template round_pair<S::kElement, S::kRounding>(lo, hi);
  }
  static __device__ __forceinline__ float dot2_f16(uint32_t a, uint32_t b, float c) {
    using Pair = _Float16 __attribute__((ext_vector_type(2)));
    return __builtin_amdgcn_fdot2(__builtin_bit_cast(Pair, a), __builtin_bit_cast(Pair, b), c,
                                  false);
  }

  __device__ __forceinline__ float sink_of(int head) const {
    return args.sinks == 0 ? 0 : ((Constant<float>*)args.sinks)[work.head_q + head] * kLog2E;
  }

  template <Masks kMasks>
  __device__ __forceinline__ void heads(Query q, const Global<uint16_t>* from_q, float sink) {
    for (int head = 0;;) {
      prepare(q);
      scores<kMasks>(q);
      from_q += args.q_stride_head;
      const int next = head + 1;
      const bool last = next >> share.heads_log2 != 0;
      const float its_sink = sink;
      if (!last) {
        q = load_q(from_q);
        sink = sink_of(next);
      }
      softmax_and_output<kMasks>();
      finish(head, its_sink, q);
      head = next;
      if (last) break;
    }
  }

  __device__ __forceinline__ void operator()() {
    if (work.q_start >= work.rows) return;
    const auto* from_q = find_q();
    const Query q = load_q(from_q);
    const float sink = sink_of(0);
    load_k();
    u32x2 rows[kTiles][4];
    load_v(rows);
    transpose_v(rows);
    const int key = work.q_start + work.diagonal;  // of the diagonal of the first row
    const int last =
        least(least(work.q_start + kTile, work.rows) - 1 + work.diagonal + right + 1, work.keys);
    tiles = (last - first + kTile - 1) / kTile;
    if (key >= left && key + kTile - 1 + right < work.keys && left + right >= kKeysOfAll)
      heads<Masks::kEnds>(q, from_q, sink);
    else
      heads<Masks::kAny>(q, from_q, sink);
  }
  // left + right from which on no tile but the first and the last one hides a key.
  static constexpr int kKeysOfAll = S::kKeys - kTile - 1;
};
