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
// is not exactly 1 and is rounded like the others. Dividing O by the sum of the rounded
// probabilities makes up for most of that; lse comes from the exact ones.
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

  const AttnFwdArgs& args;
  AttnWork work;
  Loop loop;
  int lane, row, group;  // of the lane: row l % 16 and keys 4 * (l / 16) of a tile
  int wave_row;          // of the wave's first row, in the sequence

  __device__ __forceinline__ explicit Forward(const AttnFwdArgs& arguments)
      : args(arguments), work(arguments, S::kRows) {
    lane = Lane::in_wave();
    row = lane % kTile;
    group = lane / kTile;
    wave_row = work.q_start + Lane::wave() * S::kWaveRows;
  }

  // ---- Start
  __device__ __forceinline__ void set_constants(uint32_t lds) {
    const float scale = args.softmax_scale_log2;
    loop.scale = f32x2{scale, scale};
    loop.two_to_16 = f32x2{65536, 65536};
    loop.limit = 64;  // eight equal scores have a sum of 8
    loop.high_halves = kHighHalves;
    loop.unit_sum = loop.unit_rounded_sum = f32x2{0, 0};

    const int wave = Lane::wave();
    const uint32_t stride_k = 2 * args.k_stride_seq, stride_v = 2 * args.v_stride_seq;
    // 64 dwords of LDS a load; the chunk c of row r lies at c ^ (r % 8), so that 8 rows of one
    // chunk are in different banks.
    constexpr int kOfEightRows = 8 * S::kRowBytesK / (kWaves * 256);
    for (int n = 0; n < S::kLoadsK; ++n) {
      const int byte = (n % kOfEightRows * kWaves + wave) * 256 + lane * 4;
      const int r = byte / S::kRowBytesK, chunk = byte % S::kRowBytesK / 16 ^ (r & 7);
      loop.load_k[n] = r * stride_k + chunk * 16 + byte % 16 + n / kOfEightRows * (8 * stride_k);
    }
    loop.m0 = lds + wave * 256;
    for (int octet = 0; octet < 2; ++octet)
      loop.read_k[octet] = lds + row * S::kRowBytesK + ((4 * octet + group) ^ (row & 7)) * 16;

    const int v_group = 2 * wave + lane / 32, v_half = lane / 16 % 2;
    for (int r = 0; r < 4; ++r)
      loop.load_v[r] = (4 * v_group + r) * stride_v + 2 * (row * S::kTilesD + v_half * S::kWidthV);
    loop.write_v =
        lds + S::kBaseV + v_group * S::kGroupV + v_half * (S::kWidthV / 2) * 256 + row * 16;
    loop.read_v = lds + S::kBaseV + group * S::kGroupV + row * 16;
  }

  // The first block of keys: V and K on their way as soon as the address of each is known.
  __device__ __forceinline__ void load_first_block() {
    const int first = work.first * kKeys;
    const int64_t row = work.kv_base + first;
    const uint64_t v = args.v + 2 * (work.batch * args.v_stride_batch +
                                     work.head_kv * args.v_stride_head + row * args.v_stride_seq);
    loop.base_v = uint64_t(uniform(v >> 32)) << 32 | uniform(v);
    loop.stride_v = 2 * args.v_stride_seq;
    loop.gap_v = loop.stride_v - S::kRowBytesV;
    loop.rows_left = uniform(work.keys - first) + kKeys;
    unroll_from<2, 5>([&]<int n>() { loop.template prepare_step<n>(); });
    unroll_from<8, 10>([&]<int n>() { loop.template prepare_step<n>(); });
    loop.bytes_v = ordered::s_max_i32(loop.bytes_v, 0);
    loop.buffer_v = Loop::descriptor(loop.base_v, loop.bytes_v);
    unroll<4>([&]<int n>() { loop.template load_v_part<n>(); });

    const uint64_t k = args.k + 2 * (work.batch * args.k_stride_batch +
                                     work.head_kv * args.k_stride_head + row * args.k_stride_seq);
    loop.base_k = uint64_t(uniform(k >> 32)) << 32 | uniform(k);
    loop.stride_k = 2 * args.k_stride_seq;
    loop.gap_k = loop.stride_k - S::kRowBytesK;
    unroll_from<5, 8>([&]<int n>() { loop.template prepare_step<n>(); });
    loop.buffer_k = Loop::descriptor(loop.base_k, loop.bytes_k);
    unroll<S::kLoadsK>([&]<int n>() { load_k<n>(); });
    loop.step_k = uint64_t(kKeys) * 2 * args.k_stride_seq;
    loop.step_v = uint64_t(kKeys) * 2 * args.v_stride_seq;
  }
  template <int n>
  __device__ __forceinline__ void load_k() {
    loop.template address_k_part<n>();
    ordered::s_nop<1>();
    loop.template load_k_part<n>();
  }

  __device__ __forceinline__ void set_mask() {
    const int first = work.first * kKeys;
    const int diagonal = wave_row + row + work.diagonal - first - 4 * group, far = 1 << 30;
    loop.mask_keys = work.keys - first - 4 * group;
    loop.mask_to = args.window_right < 0 ? far : diagonal + args.window_right + 1;
    loop.mask_from = args.window_left < 0 ? -far : diagonal - args.window_left;
  }

  // Q of a tile, straight to where it stays. Rows behind the last one are copies of it.
  template <int t>
  __device__ __forceinline__ void load_q(const Global<uint8_t>* q) {
    const uint64_t stride = 2 * args.q_stride_seq;
    const uint32_t r =
        least(wave_row - work.q_start + t * kTile + row, work.rows - 1 - work.q_start);
    const auto* from = q + r * stride;
    unroll<S::kReadsK>([&]<int octet>() {
      if constexpr (t < S::kTilesQAcc)
        ordered::global_load_dwordx4_acc<S::template kAccQuery<t, octet>, octet * 64>(from);
      else
        ordered::global_load_dwordx4<octet * 64>(loop.q[t - S::kTilesQAcc][octet], from);
    });
  }

  __device__ __forceinline__ void zero_output() {
    Quad zero = {};
    ordered::settle(zero);
    static_assert(S::kAccO % 32 == 0);
    unroll<S::kAccO / 32>([&]<int n>() { ordered::v_mfma_f32_32x32x4_2b_zero_acc<32 * n>(zero); });
  }

  // Tiles of Q under way at a time, and what a turn (see find_references) loads of the second block
  // when there is no tile left to load: the last loads of Q are the longest part of the start.
  static constexpr int kTilesAhead = 3;
  static constexpr int kLoadsOfBlock = 4 + S::kLoadsK;
  static constexpr int loads_of_turn(int t) {
    if (t + kTilesAhead < kN) return S::kReadsK;
    return t == kN - 1 ? kLoadsOfBlock : 0;
  }
  static constexpr int loads_after(int t) {  // issued behind those of tile t by the time it is used
    int n = (least(t + kTilesAhead, kN) - t - 1) * S::kReadsK;
    return n + loads_of_turn(t);
  }

  // The greatest of the first 16 scores is a row's reference. In turn t the matrix unit has tile t,
  // the vector unit the one before, and the exchanges over the lanes of a row those before that.
  template <bool kMasked>
  __device__ __forceinline__ void find_references(const Global<uint8_t>* q) {
    f32x4 score[kN + 1];
    float greatest[kN], other[kN];
    const uint32_t lane_bytes = 4 * lane;
    constexpr int kMfmas = S::kStepsD;
    unroll<kN + 3>([&]<int turn>() {
      constexpr int first = turn - 1, second = turn - 2, last = turn - 3;
      if constexpr (turn + kTilesAhead < kN) load_q<turn + kTilesAhead>(q);
      if constexpr (turn == kN - 1) {
        unroll<4>([&]<int n>() { loop.template load_v_part<n>(); });
        unroll<S::kLoadsK>([&]<int n>() { load_k<n>(); });
      }
      if constexpr (turn < kN) {
        ordered::s_waitcnt<loads_after(turn), ordered::kAnyLgkm>();
        if constexpr (turn >= S::kTilesQAcc)
          for (auto& octet : loop.q[turn - S::kTilesQAcc]) ordered::settle(octet);
      }
      unroll<kMfmas>([&]<int step>() {
        if constexpr (turn == 0 && step % 2 == 0)
          ordered::s_waitcnt<ordered::kAnyVm, 2 * S::kReadsK - 1 - step / 2>();
        if constexpr (turn < kN) loop.template add_product<turn, 2 * step>(score[turn]);
        if constexpr (turn == kN) loop.template score_op<0, 2 * step + 1, 0>();
        if constexpr (turn > 0 && step == kMfmas - 1) {
          ordered::s_waitcnt<ordered::kAnyVm, 0>();
          if constexpr (last >= 0 && last < kN)
            loop.negative_ref[last / 2][last % 2] = -ordered::v_max_f32(greatest[last], other[last]);
          if constexpr (second >= 0 && second < kN) {
            greatest[second] = ordered::v_max_f32(greatest[second], other[second]);
            other[second] = ordered::ds_bpermute_b32(lane_bytes ^ 4 * 32, greatest[second]);
          }
          if constexpr (first >= 0 && first < kN) {
            greatest[first] = greatest_of<first, kMasked>(score[first]);
            other[first] = ordered::ds_bpermute_b32(lane_bytes ^ 4 * 16, greatest[first]);
          }
        }
      });
    });
    loop.score[0][0] = score[0];
  }
  template <int t, bool kMasked>
  __device__ __forceinline__ float greatest_of(f32x4 score) {
    f32x2 lo = ordered::v_pk_mul_f32(pair_of(score, 0), loop.scale);
    f32x2 hi = ordered::v_pk_mul_f32(pair_of(score, 1), loop.scale);
    if constexpr (kMasked)
      for (int i = 0; i < 2; ++i) {
        if (!loop.template visible<t>(i)) lo[i] = -kInf;
        if (!loop.template visible<t>(2 + i)) hi[i] = -kInf;
      }
    return ordered::v_max3_f32(hi[0], hi[1], ordered::v_max3_f32(lo[0], lo[1], -kInf));
  }

  __device__ __forceinline__ void start(uint32_t lds) {
    set_constants(lds);
    load_first_block();
    zero_output();
    const auto* q = (const Global<uint8_t>*)args.q +
                    2 * (work.batch * args.q_stride_batch + work.head_q * args.q_stride_head +
                         (work.q_base + work.q_start) * args.q_stride_seq + group * 8);
    unroll<kTilesAhead>([&]<int t>() { load_q<t>(q); });
    unroll<Loop::Plan::kPrepareOps>([&]<int n>() { loop.template prepare_step<n>(); });
    set_mask();
    ordered::s_waitcnt<kTilesAhead * S::kReadsK, ordered::kAnyLgkm>();
    unroll<2 * S::kWidthV>([&]<int n>() { loop.template transpose_part<n>(); });
    unroll<S::kWidthV / 2>([&]<int n>() { loop.template write_v_part<n>(); });
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    ordered::s_barrier();
    loop.m0 ^= S::kStageK;
    loop.write_v ^= S::kStageV;
    unroll<S::kReadsK>([&]<int n>() { loop.template read_k_part<2 * n>(); });
    unroll<S::kReadsK>([&]<int n>() { loop.template read_k_part<2 * n + 1>(); });
    for (auto& sum : loop.sum) sum = f32x2{0, 0};
    for (auto& sum : loop.rounded_sum) sum = f32x2{0, 0};
    // The unit before the first one has probabilities 0.
    for (auto& half : loop.v)
      for (auto& octet : half) octet = Octet{};
    for (auto& half : loop.p[1]) half = Quad{};
    for (auto& address : loop.read_k) address ^= S::kStageK;
    if (work.full_first > work.first || work.full_end == work.full_first)
      find_references<true>(q);
    else
      find_references<false>(q);
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
    loop.rounded_sum[kN - 1] += loop.unit_rounded_sum;
  }

  __device__ __forceinline__ void operator()(uint32_t lds) {
    reserve_acc();
    if (work.q_start >= work.rows) return;
    if (work.end > work.first) {
      start(lds);
      run();
    } else {
      unroll<S::kAccO>([&]<int r>() { v_accvgpr_zero_b32<r>(); });
      for (auto& sum : loop.sum) sum = f32x2{0, 0};
      for (auto& sum : loop.rounded_sum) sum = f32x2{0, 0};
      for (auto& ref : loop.negative_ref) ref = f32x2{kInf, kInf};
      for (auto& half : loop.v)
        for (auto& octet : half) octet = Octet{};
      for (auto& half : loop.p[(kN - 1) % 2]) half = Quad{};
    }
    Finish<S>(work, loop, wave_row)();
  }
};
