// Attention forward: O = softmax(Q K^T * softmax_scale) V, for one tile of q rows of one head.
//
//   phase     matrix unit                    vector unit             memory
//   start     scores of 16 keys, all tiles   a reference per row     Q; K, V of two blocks
//   loop      scores n + 1, output n - 1     softmax n               K, V two blocks ahead
//   finish    output of the last unit        O / sum, rounding       O, lse
//
// Both products are transposed, S^T = K Q^T and O^T = V^T P^T, so that P is an operand in the
// registers where it was computed. A row's probabilities are relative to a reference, the greatest
// of its first scores; it is renewed when a sum over the keys of a unit outgrows it, so that the
// loop needs no maximum and no exchange between lanes. The price: the greatest probability of a row
// is not exactly 1 and is rounded like the others. With bf16 tensors, rounded to nearest, the
// second product works on fp16, whose 11 bits more than make up for that; a tile with a V that is
// no fp16 is done again in bf16.
//
// Sources: online softmax, Milakov and Gimelshein 2018 (arXiv 1805.02867); tiling, Dao 2023
// (arXiv 2307.08691); conditional rescaling, Shah et al. 2024 (arXiv 2407.08608) and after.
#pragma once
#include "attn/finish.h"
#include "attn/pipeline.h"

template <class S>
struct Forward {
  using Loop = Pipeline<S>;
  static constexpr int kN = S::kTilesQ;

  Arguments* from;  // the same in memory
  const AttnFwdArgs& args;
  AttnWork work;
  Loop loop;
  int lane, row, group;  // of the lane: row l % 16 and keys 4 * (l / 16) of a tile
  int wave_row;          // of the wave's first row, in the sequence
  int columns;           // of V and O, that there are
  bool padded_q;         // Q and K have fewer columns than the matrix instructions take

  // One trip to memory for what the start needs, whatever the compiler thinks of its registers.
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
    row = lane % kTile;
    group = lane / kTile;
    wave_row = work.q_start + Lane::wave() * S::kWaveRows;
    columns = least(args.head_dim_v - int(work.column), S::kHeadDimV);
    padded_q = args.head_dim < S::kHeadDim;
  }

  // ---- Start
  static constexpr uint32_t kBehindBlock = 3u << 30;  // an offset that reads as 0
  __device__ __forceinline__ void set_constants(uint32_t lds) {
    float scale = args.softmax_scale_log2;
    if constexpr (S::kCapped) {
      const float cap = args.softcap_log2;
      const float rate =
          __builtin_bit_cast(float, uniform(bits(2 * kLog2E * scale * v_rcp_f32(cap))));
      loop.cap_rate = f32x2{rate, rate};
      ordered::settle(loop.cap_rate);
      scale = -2 * cap;
    }
    loop.scale = f32x2{scale, scale};
    loop.two_to_16 = f32x2{65536, 65536};
    loop.scale_v = f32x2{S::kScaleV, S::kScaleV};
    loop.scale_v_halves = 0x4c004c00;
    if constexpr (S::kConverts) {
      ordered::settle(loop.scale_v);
      ordered::settle(loop.scale_v_halves);
    }
    loop.greatest = 0;
    loop.limit = S::kLimit;
    loop.high_halves = kHighHalves;

    const int wave = Lane::wave();
    const uint32_t stride_k = 2 * args.k_stride_seq, stride_v = 2 * args.v_stride_seq;
    // 64 dwords of LDS a load; the chunk c of row r lies at c ^ (r % 8), so that 8 rows of one
    // chunk are in different banks.
    constexpr int kOfEightRows = 8 * S::kRowBytesK / (kWaves * 256);
    unroll<S::kLoadsK>([&]<int n>() {
      const int byte = (n % kOfEightRows * kWaves + wave) * 256 + lane * 4;
      const int r = byte / S::kRowBytesK, chunk = byte % S::kRowBytesK / 16 ^ (r & 7);
      loop.load_k[n] = r * stride_k + chunk * 16 + byte % 16 + n / kOfEightRows * (8 * stride_k);
    });
    if (__builtin_expect(padded_q, false))
      unroll<S::kLoadsK>([&]<int n>() {
        const int byte = (n % kOfEightRows * kWaves + wave) * 256 + lane * 4;
        const int chunk = byte % S::kRowBytesK / 16 ^ (byte / S::kRowBytesK & 7);
        loop.load_k[n] = 8 * chunk < args.head_dim ? loop.load_k[n] : kBehindBlock;
      });
    loop.m0 = lds + wave * 256;
    for (int octet = 0; octet < 2; ++octet)
      loop.read_k[octet] = lds + row * S::kRowBytesK + ((4 * octet + group) ^ (row & 7)) * 16;

    const int v_group = 2 * wave + lane / 32, v_half = lane / 16 % 2;
    for (int r = 0; r < 4; ++r)
      loop.load_v[r] = (4 * v_group + r) * stride_v + 2 * (row * S::kTilesD + v_half * S::kWidthV);
    if (__builtin_expect(columns < S::kHeadDimV, false))
      for (auto& offset : loop.load_v)
        offset = row * S::kTilesD + v_half * S::kWidthV < columns ? offset : kBehindBlock;
    loop.write_v =
        lds + S::kBaseV + v_group * S::kGroupV + v_half * (S::kWidthV / 2) * 256 + row * 16;
    loop.read_v = lds + S::kBaseV + group * S::kGroupV + row * 16;
    loop.write_greatest = lds + S::kBaseFit + 4 * (wave * kWaveLanes + lane);
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
    loop.base_k = uniform64(k);
    loop.stride_k = 2 * args.k_stride_seq;
    loop.gap_k = loop.stride_k - 2 * args.head_dim;
    loop.step_k = uint64_t(kKeys) * 2 * args.k_stride_seq;
    loop.rows_left = uniform(uint32_t(work.keys - work.first * kKeys + kKeys));
    unroll_from<2, 8>([&]<int n>() { loop.template prepare_step<n>(); });
    loop.buffer_k = Loop::descriptor(loop.base_k, loop.bytes_k);
  }
  template <int kPiece>
  __device__ __forceinline__ void find_v_and_q() {
    uint64_t& v_rows = loop.base_v;
    if constexpr (kPiece == 0)
      v_rows = args.v + 2 * (work.column + work.batch * args.v_stride_batch);
    if constexpr (kPiece == 1) v_rows += 2 * work.head_kv * args.v_stride_head;
    if constexpr (kPiece == 2) v_rows += 2 * first_key() * args.v_stride_seq;
    if constexpr (kPiece < 3) settle_uniform(v_rows);
    if constexpr (kPiece == 3) {
      loop.stride_v = 2 * args.v_stride_seq;
      loop.gap_v = loop.stride_v - 2 * columns;
      loop.step_v = uint64_t(kKeys) * 2 * args.v_stride_seq;
      unroll_from<8, 10>([&]<int n>() { loop.template prepare_step<n>(); });
      loop.bytes_v = ordered::s_max_i32(loop.bytes_v, 0);
      loop.buffer_v = Loop::descriptor(loop.base_v, loop.bytes_v);
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

  // Q of a tile, straight to where it stays. Rows behind the last one are copies of it.
  template <int t>
  __device__ __forceinline__ const Global<uint8_t>* find_q() {
    const uint64_t stride = 2 * args.q_stride_seq;
    const uint32_t r =
        least(wave_row - work.q_start + t * kTile + row, work.rows - 1 - work.q_start);
    return (const Global<uint8_t>*)q_rows + group * 16 + r * stride;
  }
  template <int t, int octet>
  __device__ __forceinline__ void load_q(const Global<uint8_t>* from) {
    if constexpr (t < S::kTilesQAcc)
      ordered::global_load_dwordx4_acc<S::template kAccQuery<t, octet>, octet * 64>(from);
    else
      ordered::global_load_dwordx4<octet * 64>(loop.q[t - S::kTilesQAcc][octet], from);
  }

  // All of Q, with zeros for the columns that are not there; waits for it.
  __device__ __forceinline__ void load_padded_q() {
    // Rarely called: the compiler would not inline the pieces, and would keep all in memory.
    unroll<kN>([&]<int t>() __attribute__((always_inline)) {
      const auto* from = find_q<t>();
      unroll<S::kReadsK>([&]<int octet>() __attribute__((always_inline)) {
        const bool there = 32 * octet + 8 * group < args.head_dim;
        Octet x;
        ordered::global_load_dwordx4<0>(x, from + (there ? 64 * octet : -16 * group));
        ordered::s_waitcnt<0, ordered::kAnyLgkm>();
        ordered::settle(x);
        for (int i = 0; i < 4; ++i) x[i] = there ? x[i] : 0;
        if constexpr (t < S::kTilesQAcc)
          unroll<4>([&]<int i>() __attribute__((always_inline)) {
            v_accvgpr_write_b32<S::template kAccQuery<t, octet> + i>(x[i]);
          });
        else
          loop.q[t - S::kTilesQAcc][octet] = x;
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
    loop.mask_keys = work.keys - first - 4 * group;
    loop.mask_to = args.window_right < 0 ? far : diagonal + args.window_right + 1;
    loop.mask_from = args.window_left < 0 ? -far : diagonal - args.window_left;
  }

  // The first block of keys and the first tile of Q; the CU's memory unit takes no more at a time.
  // O becomes 0 beside that: an instruction of the matrix unit zeroes 32 registers in 64 clk.
  static constexpr int kZeros = S::kAccO / 32;
  static_assert(S::kAccO % 32 == 0);
  __device__ __forceinline__ void load_first() {
    const Quad zero = ordered::v_mov_b64_zero();
    const auto zero_some = [&]<int kPlace>() {
      constexpr int kPlaces = 6;
      unroll_from<kPlace * kZeros / kPlaces, (kPlace + 1) * kZeros / kPlaces>(
          [&]<int n>() { ordered::v_mfma_f32_32x32x4_2b_zero_acc<32 * n>(zero); });
    };
    find_k();
    unroll<S::kLoadsK>([&]<int n>() {
      loop.template address_k_part<n>();
      unroll_from<n * kPieces / S::kLoadsK, (n + 1) * kPieces / S::kLoadsK>(
          [&]<int piece>() { find_v_and_q<piece>(); });
      ordered::s_nop<1>();
      loop.template load_k_part<n>();
      if constexpr (n % (S::kLoadsK / 4) == 0)
        zero_some.template operator()<n / (S::kLoadsK / 4)>();
    });
    unroll<4>([&]<int n>() { loop.template load_v_part<n>(); });
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
  static constexpr int kTilesAhead = 4, kTurns = kN + 3, kWindows = S::kStepsD;
  static constexpr int window(int n, int of) { return n * kWindows / of; }  // n of `of` things
  static constexpr int kLoadsOfBlock = 4 + S::kLoadsK;
  // Of the second block, in the turns before window w of this one: evenly over three turns.
  static constexpr int loads_of_block(int turn, int w) {
    return most(
        0, least(kLoadsOfBlock, ((turn - kN + 2) * kWindows + w) * kLoadsOfBlock / (3 * kWindows)));
  }
  static constexpr int loads_since(int t) {  // behind those of tile t when turn t begins
    return (least(t + kTilesAhead, kN) - t - 1) * S::kReadsK + loads_of_block(t, 0);
  }
  struct References {
    f32x4 score[kN];
    float greatest[kN], other[kN];
    const Global<uint8_t>* from;
  };

  __device__ __forceinline__ void find_references(bool masked) {
    References r;
    unroll<kTurns>([&]<int turn>() {
      if constexpr (turn < kN) {
        ordered::s_waitcnt<loads_since(turn), ordered::kAnyLgkm>();
        if constexpr (turn >= S::kTilesQAcc)
          for (auto& octet : loop.q[turn - S::kTilesQAcc]) ordered::settle(octet);
      }
      unroll<kWindows>([&]<int w>() {
        if constexpr (turn == 0 && w % 2 == 0)
          ordered::s_waitcnt<ordered::kAnyVm, 2 * S::kReadsK - 1 - w / 2>();
        if constexpr (turn < kN) loop.template add_product<turn, 2 * w>(r.score[turn]);
        if constexpr (turn == kN) loop.template score_op<0, 2 * w + 1, 0>();
        load_more<turn, w>(r);
        reduce<turn, w>(r, masked);
      });
    });
    loop.score[0][0] = r.score[0];
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
      unroll_from<w * Loop::Plan::kPrepareOps / kWindows,
                  (w + 1) * Loop::Plan::kPrepareOps / kWindows>(
          [&]<int n>() { loop.template prepare_step<n>(); });
    unroll_from<loads_of_block(turn, w), loads_of_block(turn, w + 1)>([&]<int n>() {
      if constexpr (n < 4) {
        loop.template load_v_part<n>();
      } else {
        loop.template address_k_part<n - 4>();
        ordered::s_nop<1>();
        loop.template load_k_part<n - 4>();
      }
    });
  }
  template <int turn, int w>
  __device__ __forceinline__ void reduce(References& r, bool masked) {
    constexpr int first = turn - 1, second = turn - 2, last = turn - 3;
    if constexpr (turn > 0 && w == kWindows / 2 - 1) {
      ordered::s_waitcnt<ordered::kAnyVm, 0>();
      if constexpr (last >= 0 && last < kN)
        loop.negative_ref[last / 2][last % 2] =
            S::kTop - ordered::v_max_f32(r.greatest[last], r.other[last]);
      if constexpr (second >= 0 && second < kN) {
        r.greatest[second] = ordered::v_max_f32(r.greatest[second], r.other[second]);
        r.other[second] = ordered::ds_bpermute_b32(4 * lane ^ 4 * 32, r.greatest[second]);
      }
    }
    if constexpr (first >= 0 && first < kN && w == kWindows - 2) {
      f32x2 x[2];
      f32x4 score = r.score[first];
      if constexpr (S::kCapped) score = loop.capped(score);
      for (int i = 0; i < 2; ++i) x[i] = ordered::v_pk_mul_f32(pair_of(score, i), loop.scale);
      if (__builtin_expect(masked, false)) {
        const auto keys = loop.template seen<first>();
        for (int i = 0; i < 4; ++i)
          if (!keys.has(i)) x[i / 2][i % 2] = -kInf;
      }
      const float half = ordered::v_max3_f32(x[0][0], x[0][1], -kInf);
      r.greatest[first] = ordered::v_max3_f32(x[1][0], x[1][1], half);
      r.other[first] = ordered::ds_bpermute_b32(4 * lane ^ 4 * 16, r.greatest[first]);
    }
  }

  // The unit before the first one has probabilities 0.
  __device__ __forceinline__ void zero_registers() {
    for (auto& half : loop.v)
      for (auto& octet : half) octet = Octet{};
    for (auto& half : loop.p[1]) half = Quad{};
    for (auto& sum : loop.sum) sum = f32x2{0, 0};
    loop.unit_sum = f32x2{0, 0};
    // Here, where the wave waits anyway.
    for (auto& sum : loop.sum) ordered::settle(sum);
    ordered::settle(loop.unit_sum);
    if constexpr (S::kSumsRounded) {
      for (auto& sum : loop.rounded_sum) {
        sum = f32x2{0, 0};
        ordered::settle(sum);
      }
      loop.unit_rounded_sum = f32x2{0, 0};
      ordered::settle(loop.unit_rounded_sum);
    }
    for (auto& half : loop.p[1]) ordered::settle(half);
    for (auto& half : loop.v)
      for (auto& octet : half) ordered::settle(octet);
  }

  __device__ __forceinline__ void start(uint32_t lds) {
    set_constants(lds);
    load_first();
    set_mask();
    o = output_row(args, work, wave_row + row) + 4 * group * S::kTilesD;
    ordered::settle(o);
    ordered::s_waitcnt<S::kReadsK, ordered::kAnyLgkm>();
    unroll<Loop::Plan::kValueSteps.count>([&]<int n>() {
      loop.template value_step<Loop::Plan::kValueSteps.step[n].op,
                               Loop::Plan::kValueSteps.step[n].n>();
    });
    unroll<S::kWidthV / 2>([&]<int n>() { loop.template write_v_part<n>(); });
    if (__builtin_expect(!padded_q, true)) load_tile<1>();
    zero_registers();
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    ordered::s_barrier();
    loop.m0 ^= S::kStageK;
    loop.write_v ^= S::kStageV;
    unroll<S::kReadsK>([&]<int n>() { loop.template read_k_part<2 * n>(); });
    unroll<S::kReadsK>([&]<int n>() { loop.template read_k_part<2 * n + 1>(); });
    for (auto& address : loop.read_k) address ^= S::kStageK;
    if (__builtin_expect(!padded_q, true))
      unroll_from<2, kTilesAhead>([&]<int t>() { load_tile<t>(); });
    find_references(work.full_first > work.first || work.full_end == work.full_first);
  }

  // ---- Loop
  template <bool kMasked>
  __device__ __forceinline__ void block() {
    unroll<kN - 2>([&]<int t>() { loop.template unit<t, kMasked>(); });
    loop.m0 ^= S::kStageK;
    loop.write_v ^= S::kStageV;
    loop.read_v ^= S::kStageV;
    loop.template unit<kN - 2, kMasked>();
    loop.template unit<kN - 1, kMasked>();
    for (auto& address : loop.read_k) address ^= S::kStageK;
    if constexpr (kMasked) skip_mask(1);
  }
  __device__ __forceinline__ void skip_mask(int blocks) {
    loop.mask_keys -= blocks * kKeys;
    loop.mask_to -= blocks * kKeys;
    loop.mask_from -= blocks * kKeys;
  }

  // Blocks at either end of the rows' windows have a mask, those between have none.
  __device__ __forceinline__ void run() {
    int masked = work.full_first - work.first, full = work.full_end - work.full_first;
    for (int pass = 0; pass < 2; ++pass) {
      for (; masked > 0; --masked) block<true>();
      if (full > 0) {
        skip_mask(full);
        do {  // twice, for half the taken branches
          block<false>();
          if (--full == 0) break;
          block<false>();
        } while (--full);
      }
      masked = work.end - work.full_end;
    }
    ordered::s_waitcnt<0, 0>();  // loads behind the last block: their registers are used again
    loop.sum[kN - 1] += loop.unit_sum;
    if constexpr (S::kConverts)
      unroll<4>([&]<int n>() { loop.template sum_halves<kN - 1, n>(); });
    else if constexpr (S::kSumsRounded)
      loop.rounded_sum[kN - 1] += loop.unit_rounded_sum;
  }

  // False if nothing was written, since V does not fit.
  __device__ __forceinline__ bool operator()(uint32_t lds) {
    reserve_acc();
    if (work.q_start >= work.rows) return true;
    start(lds);
    run();
    return Finish<S>(from, work, loop, wave_row, o, lds)();
  }
};
