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
  const AttnFwdArgs& args;
  AttnWork work;
  Loop loop;
  int wave, lane, row, group;  // of the lane: row l % kTile and keys 4 * (l / kTile) of a tile
  int wave_row;                // of the wave's first row, in the sequence
  int columns;                 // of V and O, that there are
  bool padded_q;               // Q and K have fewer columns than the matrix instructions take

  // One trip to memory for what the prologue needs, whatever the compiler thinks of its registers.
  static __device__ __forceinline__ const AttnFwdArgs& fetched(const AttnFwdArgs& a) {
    ordered::need_uniform(
        a.q, a.k, a.v, a.q_stride_batch, a.q_stride_seq, a.q_stride_head, a.k_stride_batch,
        a.k_stride_seq, a.k_stride_head, a.v_stride_batch, a.v_stride_seq, a.v_stride_head,
        a.num_heads_q, a.seqlen_q, a.seqlen_kv, a.window_left, a.window_right, a.whole_tiles,
        a.q_tiles, a.q_tiles_inverse, a.q_tiles_shift, a.num_heads_q_inverse, a.num_heads_q_shift,
        a.group_inverse, a.group_shift, a.head_dim, a.head_dim_v, a.column_groups);
    return a;
  }

  __device__ __forceinline__ Forward(const AttnFwdArgs& arguments, Arguments* again)
      : from(again), args(arguments), work(fetched(arguments), S::kRows, S::kHeadDimV) {
    lane = Lane::in_wave();
    ordered::settle(lane);  // nothing of this before the arguments are asked for
    loop.lane = lane;
    wave = Lane::wave();
    ordered::settle_uniform(wave);
    row = lane % S::kTile;
    group = lane / S::kTile;
    wave_row = work.q_start + wave * S::kWaveRows;
    columns = least(args.head_dim_v - int(work.column), S::kHeadDimV);
    padded_q = args.head_dim < S::kHeadDim;
  }

  // ---- Prologue
  static constexpr uint32_t kBehindBlock = 3u << 30;  // an offset that reads as 0
  __device__ __forceinline__ void set_constants(uint32_t lds, [[maybe_unused]] bool can_overflow) {
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
    // 64 dwords of LDS a load; the chunk c of row r lies at c ^ (r % 8), so that 8 rows of one
    // chunk are in different banks.
    constexpr int kOfEightRows = 8 * S::kRowBytesK / (kWaves * 256);
    unroll<S::kLoadsK>([&]<int n>() {
      const int byte = (n % kOfEightRows * kWaves + wave) * 256 + lane * 4;
      const int r = byte / S::kRowBytesK, chunk = byte % S::kRowBytesK / 16 ^ (r & S::kPermutedK);
      load.offset_k[n] = r * stride_k + chunk * 16 + byte % 16 + n / kOfEightRows * (8 * stride_k);
    });
    if (__builtin_expect(padded_q, false))
      unroll<S::kLoadsK>([&]<int n>() {
        const int byte = (n % kOfEightRows * kWaves + wave) * 256 + lane * 4;
        const int chunk = byte % S::kRowBytesK / 16 ^ (byte / S::kRowBytesK & S::kPermutedK);
        load.offset_k[n] = 8 * chunk < args.head_dim ? load.offset_k[n] : kBehindBlock;
      });
    load.m0 = lds + wave * S::kPitchK;
    const int row_byte = row * S::kRowBytesK;
    const int row_start = row_byte / S::kLoadBytesK * S::kPitchK + row_byte % S::kLoadBytesK;
    for (int octet = 0; octet < S::kAddressesK; ++octet)
      loop.lds.read_k[octet] =
          lds + row_start + ((S::kGroups * octet + group) ^ (row & S::kPermutedK)) * 16;

    // Of V half a wave loads 4 keys: a lane of all columns that lane `row` of an operand has, or
    // two lanes one half each.
    const int v_group = 2 * wave + lane / 32, v_half = lane % 32 / S::kTile;
    const int v_column = row * S::kTilesD + v_half * S::kWidthV;
    for (int r = 0; r < 4; ++r) load.offset_v[r] = (4 * v_group + r) * stride_v + 2 * v_column;
    if (__builtin_expect(columns < S::kHeadDimV, false))
      for (auto& offset : load.offset_v) offset = v_column < columns ? offset : kBehindBlock;
    loop.lds.write_v =
        lds + S::kBaseV + v_group * S::kGroupV + v_half * (S::kWidthV / 2) * S::kOctetV + row * 16;
    loop.lds.read_v = lds + S::kBaseV + group * S::kGroupV + row * 16 +
                      (Loop::Plan::kFlipsFirst ? S::kStageV : 0);
  }

  // ---- The first loads. Addresses by the piece, for the gaps between memory instructions.
  uint64_t q_rows;      // the first row of the workgroup's tile
  Global<uint16_t>* o;  // the lane's first element of the wave's first tile
  static constexpr int kPieces = 8;

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
  __device__ __forceinline__ void find_v_and_q() {
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
    if constexpr (kPiece == 4) q_rows = args.q + 2 * work.batch * args.q_stride_batch;
    if constexpr (kPiece == 5) q_rows += 2 * work.head_q * args.q_stride_head;
    if constexpr (kPiece == 6) q_rows += 2 * (work.q_base + work.q_start) * args.q_stride_seq;
    if constexpr (kPiece > 3) settle_uniform(q_rows);
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
  }

  // The first block of keys and the first tile of Q; the CU's memory unit takes no more at a time.
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
          [&]<int piece>() { find_v_and_q<piece>(); });
      ordered::s_nop<1>();
      loop.load.template load_k<n>();
      if constexpr (n % (S::kLoadsK / 4) == 0)
        zero_some.template operator()<n / (S::kLoadsK / 4)>();
    });
    unroll<S::kLoadsV>([&]<int n>() { loop.load.template load_v<n>(); });
    zero_some.template operator()<4>();
    if (__builtin_expect(padded_q, false))
      load_padded_q();
    else
      load_tile<0>();
    zero_some.template operator()<5>();
  }

  // ---- References. The greatest of the first 16 scores is a row's reference. In turn t the matrix
  // unit has tile t, the vector unit the one before, and the exchanges over the lanes of a row
  // those before that; tile t + kTilesAhead is on its way, and then the second block of keys.
  static constexpr int kTilesAhead = least(kN, 64 / S::kTile), kExchanges = S::kGroups / 2;
  static constexpr int kTurns = kN + 1 + kExchanges, kWindows = S::kStepsD;
  static constexpr int kLoadsOfBlock = S::kLoadsV + S::kLoadsK;
  static constexpr int kFirstKeys = 16 / S::kGroups;  // a lane's, of a reference
  // Of the second block, in the turns before window w of this one: evenly over the last ones.
  static constexpr int kLoadTurns = kExchanges + 1;
  static constexpr int loads_of_block(int turn, int w) {
    return most(0, least(kLoadsOfBlock, ((turn - kN + kExchanges) * kWindows + w) * kLoadsOfBlock /
                                            (kLoadTurns * kWindows)));
  }
  static constexpr int loads_since(int t) {  // behind those of tile t when turn t begins
    return (least(t + kTilesAhead, kN) - t - 1) * S::kReadsK + loads_of_block(t, 0);
  }
  struct References {
    typename Accumulator<S::kAccRegs>::Type score[kN];
    float max[kN], other[kN];
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
    constexpr int first = turn - 1, second = turn - 2, last = first - kExchanges;
    if constexpr (turn > 0 && w == kWindows / 2 - 1) {
      ordered::s_waitcnt<ordered::kAnyVm, 0>();
      if constexpr (last >= 0 && last < kN)
        loop.row.negative_ref[last] =
            loop.uniform.top - ordered::v_max_f32(r.max[last], r.other[last]);
      if constexpr (kExchanges == 2 && second >= 0 && second < kN) {
        r.max[second] = ordered::v_max_f32(r.max[second], r.other[second]);
        r.other[second] = ordered::ds_bpermute_b32(4 * lane ^ 4 * 32, r.max[second]);
      }
    }
    if constexpr (first >= 0 && first < kN && w == kWindows - 2) {
      // Beside the next tile's, or without one: what the last one has to be kept away from.
      if constexpr (turn == kN && S::kHalves == 1) ordered::s_nop<11>();
      ordered::settle(r.score[first]);  // those that are not read, too
      float x[kFirstKeys];
      for (int i = 0; i < kFirstKeys; ++i) x[i] = r.score[first][i];
      if constexpr (S::kCapped) loop.cap(x);
      for (float& one : x) one = ordered::v_mul_f32(loop.uniform.scale, one);
      if (__builtin_expect(masked, false)) {
        const auto keys = loop.mask.template further_down<first * S::kTile>();
        for (int i = 0; i < kFirstKeys; ++i)
          if (!keys.has(S::key(i))) x[i] = -kInf;
      }
      float max = -kInf;
      for (int i = 0; i < kFirstKeys; i += 2) max = ordered::v_max3_f32(x[i], x[i + 1], max);
      r.max[first] = max;
      r.other[first] = ordered::ds_bpermute_b32(4 * lane ^ 4 * S::kTile, max);
    }
  }

  // The unit before the first one has probabilities 0.
  __device__ __forceinline__ void zero_registers() {
    for (auto& step : loop.operand.v)
      for (auto& octet : step) octet = bf16x8{};
    for (auto& step : loop.operand.p[1]) step = bf16x4{};
    const auto zero = [](float& x) {
      x = 0;
      ordered::settle(x);  // here, where the wave waits anyway
    };
    for (float& sum : loop.row.sum) zero(sum);
    for (float& sum : loop.row.sample) zero(sum);
    for (float& sum : loop.row.rounded_sample) zero(sum);
    zero(loop.row.unit_sum);
    zero(loop.row.unit_rounded_sample);
    zero(loop.softmax.x[kSampled]);
    for (auto& step : loop.operand.p[1]) ordered::settle(step);
    for (auto& step : loop.operand.v)
      for (auto& octet : step) ordered::settle(octet);
  }

  __device__ __forceinline__ void prologue(uint32_t lds, bool can_overflow) {
    set_constants(lds, can_overflow);
    load_first();
    set_mask();
    o = output_row(args, work, wave_row + row) + 4 * group * S::kTilesD;
    ordered::settle(o);
    ordered::s_waitcnt<0, ordered::kAnyLgkm>();  // whichever way Q was loaded
    unroll<Loop::Plan::kTransposes>(
        [&]<int n>() { loop.load.template transpose<n>(kLowHalfOfBoth, kHighHalfOfBoth); });
    unroll<S::kWidthV / 2>(
        [&]<int n>() { loop.lds.template write_values<n>(loop.load.transposed); });
    if (__builtin_expect(!padded_q, true)) load_tile<1>();
    zero_registers();
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    ordered::s_barrier();
    loop.load.m0 ^= S::kStageK;
    unroll<S::kHalves * S::kReadsK>([&]<int n>() {  // one half of the keys, then the other
      constexpr int half = n / S::kReadsK, octet = n % S::kReadsK;
      loop.lds.template read_keys<octet * S::kHalves + half>(loop.operand);
    });
    if (__builtin_expect(!padded_q, true))
      unroll_from<2, kTilesAhead>([&]<int t>() { load_tile<t>(); });
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
    int masked = work.full_first - work.first, full = work.full_end - work.full_first;
    for (int pass = 0; pass < 2; ++pass) {
      for (; masked > 0; --masked) block<true>();
      if (!kExact && full > 0) {
        loop.mask.skip(full);
        do block<false>();
        while (--full);
      }
      masked = work.end - work.full_end;
    }
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
