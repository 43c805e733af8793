// Attention forward: O = softmax(Q K^T * softmax_scale) V, for one tile of q rows of one head.
//
//   phase     matrix unit                    vector unit             memory
//   prologue    scores of 16 keys, all tiles   a reference per row     Q; K, V of two blocks
//   loop      scores n + 1, output n - 1     softmax n               K, V two blocks ahead
//   epilogue  output of the last unit        O / sum, rounding       O, lse
//
// Both products are transposed, S^T = K Q^T and O^T = V^T P^T, so that P is an operand in the
// registers where it was computed. A row's probabilities are relative to a reference, the greatest
// of its first scores; it is renewed when a sum over the keys of a unit outgrows it, so that the
// loop needs no maximum and no exchange between lanes. The price: the greatest probability of a row
// is not exactly 1 and is rounded like the others. A tile with a result that is not finite is done
// again with exact references, which cannot overflow where an online softmax does not.
//
// Sources: online softmax, Milakov and Gimelshein 2018 (arXiv 1805.02867); tiling, Dao 2023
// (arXiv 2307.08691); conditional rescaling, Shah et al. 2024 (arXiv 2407.08608) and after.
#pragma once
#include "attn/epilogue.h"
#include "attn/steps.h"

// Exact: as an online softmax has it, with the greatest score so far as reference.
template <class S, bool kExact>
struct Forward {
  using Loop = Pipeline<S>;
  static constexpr int kN = S::kTilesQ;

  Arguments* from;  // the same in memory
  AttnFwdArgs args;
  Loop loop;
  int wave, lane, row, group;  // of the lane: row l % kTile and keys 4 * (l / kTile) of a tile
  AttnWork work;
  int wave_row;   // of the wave's first row, in the sequence
  int columns;    // of V and O, that there are
  bool padded_q;  // Q and K have fewer columns than the matrix instructions take

  // One trip to memory for what comes first in the struct, whatever the compiler thinks of its
  // registers.
  static __device__ __forceinline__ void fetch(AttnFwdArgs& a) {
    struct Words {
      uint32_t word[sizeof(AttnFwdArgs) / 4];
    };
    Words all = __builtin_bit_cast(Words, a);
    unroll<__builtin_offsetof(AttnFwdArgs, o) / 4>(
        [&]<int n>() { ordered::settle_uniform(all.word[n]); });
    a = __builtin_bit_cast(AttnFwdArgs, all);
  }
  // What needs no arguments, while they are on their way.
  __device__ __forceinline__ const AttnFwdArgs& prepared(uint32_t lds) {
    int id = Lane::in_workgroup();
    ordered::settle(id);  // nothing of the second attempt before the first one
    wave = uniform(id / kWaveLanes);
    ordered::settle_uniform(wave);
    lane = id & (kWaveLanes - 1);
    loop.lane = lane;
    row = lane % S::kTile;
    group = lane / S::kTile;
    set_lds_addresses(lds);
    fetch(args);
    return args;
  }

  __device__ __forceinline__ Forward(const AttnFwdArgs& arguments, Arguments* again, uint32_t lds)
      : from(again), args(arguments), work(prepared(lds), S::kRows, S::kHeadDimV) {
    wave_row = work.q_start + wave * S::kWaveRows;
    columns = least(args.head_dim_v - int(work.column), S::kHeadDimV);
    padded_q = args.head_dim < S::kHeadDim;
  }

  // ---- Prologue
  static constexpr uint32_t kBehindBlock = 3u << 30;  // an offset that reads as 0
  // 64 dwords of LDS a load of K, at permuted chunks of 16 bytes: attn/shape.h.
  static constexpr int kOfEightRows = 8 * S::kRowBytesK / (kWaves * S::kLoadBytesK);
  uint32_t row_k[kOfEightRows], column_k[kOfEightRows];  // bytes, of a lane's loads
  uint32_t row_v, column_v;                              // of V, its first row
  __device__ __forceinline__ void set_lds_addresses(uint32_t lds) {
    const uint32_t l = lane, r = l % S::kTile, g = l / S::kTile;
    unroll<kOfEightRows>([&]<int n>() {
      const uint32_t byte = (n * kWaves + wave) * S::kLoadBytesK + l * 4;
      row_k[n] = byte / S::kRowBytesK;
      const uint32_t chunk = byte % S::kRowBytesK / 16 ^ (row_k[n] & S::kPermutedK);
      column_k[n] = chunk * 16 + l % 4 * 4;
    });
    loop.load.m0 = lds + wave * S::kPitchK;
    const uint32_t row_byte = r * S::kRowBytesK;
    const uint32_t row_start = row_byte / S::kLoadBytesK * S::kPitchK + row_byte % S::kLoadBytesK;
    for (int octet = 0; octet < S::kAddressesK; ++octet)
      loop.lds.read_k[octet] =
          lds + row_start + ((S::kGroups * octet + g) ^ (r & S::kPermutedK)) * 16;
    // Of V half a wave loads 4 keys: a lane of all columns that lane r of an operand has, or two
    // lanes one half each.
    const uint32_t v_half = l % 32 / S::kTile;
    row_v = 4 * (2 * wave + l / 32);
    column_v = r * S::kTilesD + v_half * S::kWidthV;
    loop.lds.write_v =
        lds + S::kBaseV + row_v / 4 * S::kGroupV + v_half * (S::kWidthV / 2) * S::kOctetV + r * 16;
    loop.lds.read_v =
        lds + S::kBaseV + g * S::kGroupV + r * 16 + (Loop::Plan::kFlipsFirst ? S::kStageV : 0);
    for (auto& column : column_k) ordered::settle(column);
    for (auto& address : loop.lds.read_k) ordered::settle(address);
    ordered::settle(loop.lds.write_v);
    ordered::settle(loop.lds.read_v);
    ordered::settle(row_v);
    ordered::settle(column_v);
  }

  __device__ __forceinline__ void set_constants([[maybe_unused]] bool can_overflow) {
    Uniform& u = loop.uniform;
    u.scale = args.softmax_scale_log2;
    if constexpr (S::kCapped) {
      const float cap = args.softcap_log2;
      u.cap_rate = uniform_float(2 * kLog2E * u.scale * v_rcp_f32(cap));
      u.scale = -2 * cap;
    }
    u.low_halves = kLowHalfOfBoth;
    u.high_halves = kHighHalfOfBoth;
    u.top = S::kTop + S::kLog2Bias;
    u.inverse_bias = 1 / S::kBias;
    u.limit = S::kLimit;
    if constexpr (kExact) {
      // Every sum is beyond the limit. If need be, no sum of probabilities is greater than 1, so
      // that those of products with V cannot overflow.
      const int log2_keys = kLog2Keys + 32 - __builtin_clz(work.end - work.first);
      u.top = uniform_float(can_overflow ? 0.0f : -float(log2_keys));
      u.inverse_bias = 1;
      u.limit = -1;
    } else {  // in registers over the loop
      ordered::settle_uniform(u.limit);
      ordered::settle_uniform(u.low_halves);
      ordered::settle_uniform(u.high_halves);
    }

    KvLoads<S>& load = loop.load;
    const uint32_t stride_k = 2 * args.k_stride_seq, stride_v = 2 * args.v_stride_seq;
    unroll<S::kLoadsK>([&]<int n>() {
      constexpr int first = n % kOfEightRows;
      load.offset_k[n] =
          n < kOfEightRows ? row_k[first] * stride_k + column_k[first]
                           : load.offset_k[n < kOfEightRows ? n : n - kOfEightRows] + 8 * stride_k;
    });
    if (__builtin_expect(padded_q, false))
      unroll<S::kLoadsK>([&]<int n>() {
        load.offset_k[n] =
            int(column_k[n % kOfEightRows]) < 2 * args.head_dim ? load.offset_k[n] : kBehindBlock;
      });

    for (int r = 0; r < 4; ++r) load.offset_v[r] = (row_v + r) * stride_v + 2 * column_v;
    if (__builtin_expect(columns < S::kHeadDimV, false))
      for (auto& offset : load.offset_v) offset = int(column_v) < columns ? offset : kBehindBlock;
  }

  // ---- The first loads. Addresses by the piece, for the gaps between memory instructions.
  uint64_t q_rows;      // the first row of the workgroup's tile
  Global<uint16_t>* o;  // the lane's first element of the wave's first tile
  static constexpr int kPieces = 4;

  __device__ __forceinline__ uint32_t first_key() const {
    return work.kv_base + work.first * kKeys;
  }
  __device__ __forceinline__ void find_k() {
    const uint64_t k =
        args.k + 2 * (work.batch * args.k_stride_batch + work.head_kv * args.k_stride_head +
                      first_key() * args.k_stride_seq);
    KvLoads<S>& load = loop.load;
    load.base_k = uniform64(k);
    load.stride_k = 2 * args.k_stride_seq;
    load.gap_k = load.stride_k - 2 * args.head_dim;
    load.step_k = uint64_t(kKeys) * 2 * args.k_stride_seq;
    load.rows_left = uniform(uint32_t(work.keys - work.first * kKeys + kKeys));
    unroll_from<2, 8>([&]<int n>() { load.template next_block<n>(); });
    load.buffer_k = raw_descriptor(load.base_k, load.bytes_k);
    ordered::settle_uniform(load.buffer_k);  // its last word is in a register over the loop
  }
  template <int kPiece>
  __device__ __forceinline__ void find_v() {
    KvLoads<S>& load = loop.load;
    uint64_t& v_rows = load.base_v;
    if constexpr (kPiece == 0)
      v_rows = args.v + 2 * (work.column + work.batch * args.v_stride_batch);
    if constexpr (kPiece == 1) v_rows += 2 * work.head_kv * args.v_stride_head;
    if constexpr (kPiece == 2) v_rows += 2 * first_key() * args.v_stride_seq;
    if constexpr (kPiece < 3) settle_uniform(v_rows);
    if constexpr (kPiece == 3) {
      load.stride_v = 2 * args.v_stride_seq;
      load.gap_v = load.stride_v - 2 * columns;
      load.step_v = uint64_t(kKeys) * 2 * args.v_stride_seq;
      unroll_from<8, 10>([&]<int n>() { load.template next_block<n>(); });
      load.bytes_v = ordered::s_max_i32<0>(load.bytes_v);
      load.buffer_v = raw_descriptor(load.base_v, load.bytes_v);
      ordered::settle_uniform(load.buffer_v);
    }
  }
  __device__ __forceinline__ void find_q_rows() {
    q_rows = args.q + 2 * (work.batch * args.q_stride_batch + work.head_q * args.q_stride_head +
                           (work.q_base + work.q_start) * args.q_stride_seq);
    settle_uniform(q_rows);
  }
  static __device__ __forceinline__ void settle_uniform(uint64_t& x) {
    x = uniform64(x);
    ordered::settle_uniform(x);
  }

  static constexpr int kChunks = 16 * S::kGroups;  // bytes of a row that its lanes load at once
  // Q of a tile, straight to where it stays. Rows behind the last one are copies of it.
  template <int t>
  __device__ __forceinline__ const Global<uint8_t>* find_q() {
    const uint64_t stride = 2 * args.q_stride_seq;
    const uint32_t r =
        least(wave_row - work.q_start + t * S::kTile + row, work.rows - 1 - work.q_start);
    return (const Global<uint8_t>*)q_rows + group * 16 + r * stride;
  }
  template <int t, int octet>
  __device__ __forceinline__ void load_q(const Global<uint8_t>* from) {
    if constexpr (t < S::kTilesQAcc)
      ordered::global_load_dwordx4_acc<S::template kAccQuery<t, octet>, octet * kChunks>(from);
    else
      ordered::global_load_dwordx4<octet * kChunks>(loop.operand.q[t - S::kTilesQAcc][octet], from);
  }

  // All of Q, with zeros for the columns that are not there; waits for it.
  __device__ __forceinline__ void load_padded_q() {
    // Rarely called: the compiler would not inline the pieces, and would keep all in memory.
    unroll<kN>([&]<int t>() __attribute__((always_inline)) {
      const auto* from = find_q<t>();
      unroll<S::kReadsK>([&]<int octet>() __attribute__((always_inline)) {
        const bool there = kChunks / 2 * octet + 8 * group < args.head_dim;
        bf16x8 x;
        ordered::global_load_dwordx4<0>(x, from + (there ? kChunks * octet : -16 * group));
        ordered::s_waitcnt<0, ordered::kAnyLgkm>();
        ordered::settle(x);
        for (int i = 0; i < 4; ++i) x[i] = there ? x[i] : 0;
        if constexpr (t < S::kTilesQAcc)
          unroll<4>([&]<int i>() __attribute__((always_inline)) {
            v_accvgpr_write_b32<S::template kAccQuery<t, octet> + i>(x[i]);
          });
        else
          loop.operand.q[t - S::kTilesQAcc][octet] = x;
      });
    });
  }

  template <int t>
  __device__ __forceinline__ void load_tile() {
    const auto* from = find_q<t>();
    unroll<S::kReadsK>([&]<int octet>() { load_q<t, octet>(from); });
  }

  __device__ __forceinline__ void set_mask() {
    const int first = work.first * kKeys;
    const int diagonal = wave_row + row + work.diagonal - first - 4 * group, far = 1 << 30;
    loop.mask.keys = work.keys - first - 4 * group;
    loop.mask.to = args.window_right < 0 ? far : diagonal + args.window_right + 1;
    loop.mask.from = args.window_left < 0 ? -far : diagonal - args.window_left;
    ordered::settle(loop.mask.keys);
    ordered::settle(loop.mask.to);
    ordered::settle(loop.mask.from);
  }

  // The first block of keys, behind the first tile of Q; the CU's memory unit takes no more at a
  // time, and Q is most of what is to come.
  // O becomes 0 beside that: an instruction of the matrix unit zeroes 32 registers in 64 clk.
  static constexpr int kZeros = S::kAccO / 32;
  static_assert(S::kAccO % 32 == 0);
  __device__ __forceinline__ void load_first() {
    const bf16x4 zero = ordered::v_mov_b64_zero();
    const auto zero_some = [&]<int kPlace>() {
      constexpr int kPlaces = 6;
      unroll_from<kPlace * kZeros / kPlaces, (kPlace + 1) * kZeros / kPlaces>(
          [&]<int n>() { ordered::v_mfma_f32_32x32x4_2b_zero_acc<32 * n>(zero); });
    };
    find_k();
    unroll<S::kLoadsK>([&]<int n>() {
      loop.load.template set_m0<n>();
      unroll_from<n * kPieces / S::kLoadsK, (n + 1) * kPieces / S::kLoadsK>(
          [&]<int piece>() { find_v<piece>(); });
      ordered::s_nop<1>();
      loop.load.template load_k<n>();
      if constexpr (n % (S::kLoadsK / 4) == 0)
        zero_some.template operator()<n / (S::kLoadsK / 4)>();
    });
    unroll<S::kLoadsV>([&]<int n>() { loop.load.template load_v<n>(); });
    zero_some.template operator()<4>();
    if (__builtin_expect(padded_q, false)) load_padded_q();
    zero_some.template operator()<5>();
  }

  // ---- References. The greatest of the first 16 scores is a row's reference. In turn t the matrix
  // unit has tile t, the vector unit those before; tile t + kTilesAhead is on its way, and then the
  // second block of keys. Windows of matrix instructions from a tile's last one to its scaling, to
  // the exchanges over the lanes of a row, and to the end:
  // Scores may be read 7 instructions behind the matrix unit's last, 11 where it has 32 rows: where
  // turns are short, those of other tiles' exchanges are among them.
  static constexpr int kExchanges = S::kGroups / 2, kFirstKeys = 16 / S::kGroups;  // of a lane
  static constexpr int kToScale = S::kStepsD > 8 || S::kTile == 32 ? 6 : S::kCapped ? 3 : 1;
  static constexpr int kToFirst = kToScale + 2, kToSecond = kToFirst + 4;
  static constexpr int kToLast = kExchanges == 2 ? kToSecond : kToFirst, kToEnd = kToLast + 5;
  static constexpr int kTilesAhead = least(kN, 4), kWindows = S::kStepsD;
  static constexpr int kLoadsOfBlock = S::kLoadsV + S::kLoadsK;
  // Of the second block, in the turns before window w of this one: evenly over two or three turns,
  // behind the first one, which finds the block.
  static constexpr int kFirstLoads = most(kN - 2, 1),
                       kLoadWindows = (kN + 1 - kFirstLoads) * kWindows;
  static constexpr int loads_of_block(int turn, int w) {
    const int windows = (turn - kFirstLoads) * kWindows + w;
    return most(0, least(kLoadsOfBlock, windows * kLoadsOfBlock / kLoadWindows));
  }
  static constexpr int loads_since(int t) {  // behind those of tile t when turn t begins
    return (least(t + kTilesAhead, kN) - t - 1) * S::kReadsK + loads_of_block(t, 0);
  }
  static constexpr int kTurns = kN + 1 + kToEnd / kWindows;
  // Of which tile a window is so many behind; none: -1.
  static constexpr int tile_at(int turn, int w, int behind) {
    const int windows = turn * kWindows + w - behind, tile = windows / kWindows - 1;
    return windows >= kWindows && windows % kWindows == 0 && tile < kN ? tile : -1;
  }
  // Between the last exchange of a tile and its end. In a window second ones come first.
  static constexpr int exchanges_since(int tile) {
    int n = 0;
    const int begin = (tile + 1) * kWindows, exchange = begin + kToLast, end = begin + kToEnd;
    for (int w = exchange; w < end; ++w)
      n += ((w > exchange || kExchanges == 2) && tile_at(0, w, kToFirst) >= 0) +
           (w > exchange && kExchanges == 2 && tile_at(0, w, kToSecond) >= 0);
    return n;
  }
  struct References {
    typename Accumulator<S::kAccRegs>::Type score[kN];
    float scaled[kN][kFirstKeys], max[kN], other[kN];
    const Global<uint8_t>* from;
  };

  __device__ __forceinline__ void find_references(bool masked) {
    References r;
    unroll<kTurns>([&]<int turn>() {
      if constexpr (turn < kN) {
        ordered::s_waitcnt<kExact ? 0 : loads_since(turn), ordered::kAnyLgkm>();
        if constexpr (turn >= S::kTilesQAcc)
          for (auto& octet : loop.operand.q[turn - S::kTilesQAcc]) ordered::settle(octet);
      }
      unroll<kWindows>([&]<int w>() {
        if constexpr (turn == 0 && w % 2 == 0)
          ordered::s_waitcnt<ordered::kAnyVm, least(14, S::kHalves * S::kReadsK - 1 - w / 2)>();
        if constexpr (turn < kN) loop.template multiply_keys<turn, S::kHalves * w>(r.score[turn]);
        if constexpr (turn == kN && S::kHalves == 2)
          loop.template multiply_keys<0, 2 * w + 1>(loop.operand.score[0][1]);
        load_more<turn, w>(r);
        reduce<turn, w>(r, masked);
      });
    });
    loop.operand.score[0][0] = r.score[0];
  }
  template <int turn, int w>
  __device__ __forceinline__ void load_more(References& r) {
    constexpr int tile = turn + kTilesAhead, kReads = S::kReadsK;
    if constexpr (tile < kN) {
      if constexpr (w == 0) r.from = find_q<tile>();
      if (__builtin_expect(!padded_q, true))
        unroll_from<w * kReads / kWindows, (w + 1) * kReads / kWindows>(
            [&]<int octet>() { load_q<tile, octet>(r.from); });
    }
    if constexpr (turn == 0)
      unroll_from<w * Loop::Plan::kNextBlockOps / kWindows,
                  (w + 1) * Loop::Plan::kNextBlockOps / kWindows>(
          [&]<int n>() { loop.load.template next_block<n>(); });
    unroll_from<loads_of_block(turn, w), loads_of_block(turn, w + 1)>([&]<int n>() {
      // First what the loop waits for first.
      constexpr int k = Loop::Plan::kShort ? n : n - S::kLoadsV;
      constexpr int v = Loop::Plan::kShort ? n - S::kLoadsK : n;
      if constexpr (v >= 0 && v < S::kLoadsV) loop.load.template load_v<v>();
      if constexpr (k >= 0 && k < S::kLoadsK) {
        loop.load.template set_m0<k>();
        ordered::s_nop<1>();
        loop.load.template load_k<k>();
      }
    });
  }
  template <int turn, int w>
  __device__ __forceinline__ void reduce(References& r, bool masked) {
    constexpr int halves[2] = {tile_at(turn, w, kToScale), tile_at(turn, w, kToScale + 1)};
    constexpr int first = tile_at(turn, w, kToFirst), last = tile_at(turn, w, kToEnd);
    constexpr int second = kExchanges == 2 ? tile_at(turn, w, kToSecond) : -1;
    if constexpr (second >= 0)
      ordered::s_waitcnt<ordered::kAnyVm, 0>();
    else if constexpr (last >= 0)
      ordered::s_waitcnt<ordered::kAnyVm, exchanges_since(last)>();
    if constexpr (last >= 0)
      loop.row.negative_ref[last] =
          loop.uniform.top - ordered::v_max_f32(r.max[last], r.other[last]);
    if constexpr (second >= 0) {
      r.max[second] = ordered::v_max_f32(r.max[second], r.other[second]);
      r.other[second] = ordered::ds_bpermute_b32(4 * lane ^ 4 * 32, r.max[second]);
    }
    unroll<2>([&]<int half>() {
      constexpr int tile = halves[half];
      if constexpr (tile >= 0) {
        if constexpr (half == 0) {
          // No other tile's are beside the last one's.
          if constexpr (S::kHalves == 1) ordered::s_nop<tile == kN - 1 ? 11 : 5>();
          ordered::settle(r.score[tile]);  // those that are not read, too
          for (int i = 0; i < kFirstKeys; ++i) r.scaled[tile][i] = r.score[tile][i];
          if constexpr (S::kCapped) loop.cap(r.scaled[tile]);
        }
        for (int i = half * kFirstKeys / 2; i < (half + 1) * kFirstKeys / 2; ++i)
          r.scaled[tile][i] = ordered::v_mul_f32(loop.uniform.scale, r.scaled[tile][i]);
      }
    });
    if constexpr (first >= 0) {
      auto& x = r.scaled[first];
      if (__builtin_expect(masked, false)) {
        const auto keys = loop.mask.template further_down<first * S::kTile>();
        for (int i = 0; i < kFirstKeys; ++i)
          if (!keys.has(S::key(i))) x[i] = -kInf;
      }
      float max = ordered::v_max_f32(x[0], x[1]);
      for (int i = 2; i < kFirstKeys; i += 2) max = ordered::v_max3_f32(x[i], x[i + 1], max);
      r.max[first] = max;
      r.other[first] = ordered::ds_bpermute_b32(4 * lane ^ 4 * S::kTile, max);
    }
  }

  // The unit before the first one has probabilities 0.
  static __device__ __forceinline__ void zero(float& x) {
    x = 0;
    ordered::settle(x);  // here, where the wave waits anyway
  }
  __device__ __forceinline__ void zero_sums() {
    for (float& sum : loop.row.sum) zero(sum);
    for (float& sum : loop.row.sample) zero(sum);
    for (float& sum : loop.row.rounded_sample) zero(sum);
  }
  __device__ __forceinline__ void zero_operands() {
    for (auto& step : loop.operand.v)
      for (auto& octet : step) octet = bf16x8{};
    for (auto& step : loop.operand.p[1]) step = bf16x4{};
    zero(loop.row.unit_sum);
    zero(loop.row.unit_rounded_sample);
    zero(loop.softmax.x[kSampled]);
    for (auto& step : loop.operand.p[1]) ordered::settle(step);
    for (auto& step : loop.operand.v)
      for (auto& octet : step) ordered::settle(octet);
  }

  __device__ __forceinline__ void prologue(uint32_t lds, bool can_overflow) {
    find_q_rows();
    if (__builtin_expect(!padded_q, true)) load_tile<0>();
    set_constants(can_overflow);
    load_first();
    if (__builtin_expect(!padded_q, true)) load_tile<1>();
    zero_sums();
    if (__builtin_expect(!padded_q, true))
      unroll_from<2, kTilesAhead / 2 + 1>([&]<int t>() { load_tile<t>(); });
    set_mask();
    o = output_row(args, work, wave_row + row) + 4 * group * S::kTilesD;
    ordered::settle(o);
    ordered::ds_write_b32(lds + S::kBaseVote + 4 * wave, 0.0f);
    if (__builtin_expect(!padded_q, true))
      unroll_from<kTilesAhead / 2 + 1, kTilesAhead>([&]<int t>() { load_tile<t>(); });
    ordered::s_waitcnt<(kTilesAhead - 1) * S::kReadsK, ordered::kAnyLgkm>();  // for K and V
    unroll<Loop::Plan::kTransposes>(
        [&]<int n>() { loop.load.template transpose<n>(kLowHalfOfBoth, kHighHalfOfBoth); });
    unroll<S::kWidthV / 2>(
        [&]<int n>() { loop.lds.template write_values<n>(loop.load.transposed); });
    zero_operands();
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    ordered::s_barrier();
    loop.load.m0 ^= S::kStageK;
    unroll<S::kHalves * S::kReadsK>([&]<int n>() {  // one half of the keys, then the other
      constexpr int half = n / S::kReadsK, octet = n % S::kReadsK;
      loop.lds.template read_keys<octet * S::kHalves + half>(loop.operand);
    });
    if constexpr (!Loop::Plan::kFlipsFirst) {
      for (auto& address : loop.lds.read_k) address ^= S::kStageK;
      loop.lds.write_v ^= S::kStageV;
    }
    find_references(work.full_first > work.first || work.full_end == work.full_first);
  }

  // ---- Main loop
  template <bool kMasked>
  __device__ __forceinline__ void block() {
    unroll<kN>([&]<int t>() { loop.template unit<t, kMasked>(); });
    if constexpr (kMasked) loop.mask.skip(1);
  }

  // Blocks at either end of the rows' windows have a mask, those between have none.
  __device__ __forceinline__ void main_loop() {
    if constexpr (kExact) {  // rare: without code for blocks that have no mask
      work.full_first = work.end;
      work.full_end = work.end;
    }
    int masked = work.full_first - work.first, full = work.full_end - work.full_first,
        behind = work.end - work.full_end;
    do {
      for (; masked > 0; --masked) block<true>();
      if (!kExact && full > 0) {
        loop.mask.skip(full);
        do block<false>();
        while (--full);
      }
      masked = behind;
      behind = 0;
    } while (masked > 0);
    ordered::s_waitcnt<0, 0>();  // loads behind the last block: their registers are used again
    loop.row.sum[kN - 1] += loop.row.unit_sum;
    loop.row.sample[kN - 1] += loop.softmax.x[kSampled];
    loop.row.rounded_sample[kN - 1] += loop.row.unit_rounded_sample;
  }

  // False if an element of the result is not finite, which asks for another try, an exact one.
  __device__ __forceinline__ bool operator()(uint32_t lds, [[maybe_unused]] bool can_overflow) {
    reserve_acc();
    if (work.q_start >= work.rows) return true;
    prologue(lds, can_overflow);
    main_loop();
    return Epilogue<S, kExact>(from, work, loop, wave_row, o, lds)(can_overflow);
  }
};
