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
  int columns;           // of V and O, that there are
  bool padded_q;         // Q and K have fewer columns than the matrix instructions take

  __device__ __forceinline__ explicit Forward(const AttnFwdArgs& arguments)
      : args(arguments), work(arguments, S::kRows, S::kHeadDimV) {
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
      const float log2_e = 1.4426950408889634f, cap = args.softcap_log2;
      const float rate =
          __builtin_bit_cast(float, uniform(bits(2 * log2_e * scale * v_rcp_f32(cap))));
      loop.cap_rate = f32x2{rate, rate};
      scale = -2 * cap;
    }
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
  }

  __device__ __forceinline__ void set_rows() {
    const int first = work.first * kKeys;
    const int64_t row_k = work.kv_base + first, row_v = row_k;
    const uint64_t k = args.k + 2 * (work.batch * args.k_stride_batch +
                                     work.head_kv * args.k_stride_head + row_k * args.k_stride_seq);
    const uint64_t v =
        args.v + 2 * (work.batch * args.v_stride_batch + work.head_kv * args.v_stride_head +
                      row_v * args.v_stride_seq + work.column);
    loop.base_k = uint64_t(uniform(k >> 32)) << 32 | uniform(k);
    loop.base_v = uint64_t(uniform(v >> 32)) << 32 | uniform(v);
    loop.stride_k = 2 * args.k_stride_seq;
    loop.stride_v = 2 * args.v_stride_seq;
    loop.gap_k = loop.stride_k - 2 * args.head_dim;
    loop.gap_v = loop.stride_v - 2 * columns;
    loop.step_k = uint64_t(kKeys) * 2 * args.k_stride_seq;
    loop.step_v = uint64_t(kKeys) * 2 * args.v_stride_seq;
    loop.rows_left = uniform(work.keys - first) + kKeys;
    unroll_from<2, Loop::Plan::kPrepareOps>([&]<int n>() { loop.template prepare_step<n>(); });

    const int diagonal = wave_row + row + work.diagonal - first - 4 * group, far = 1 << 30;
    loop.mask_keys = work.keys - first - 4 * group;
    loop.mask_to = args.window_right < 0 ? far : diagonal + args.window_right + 1;
    loop.mask_from = args.window_left < 0 ? -far : diagonal - args.window_left;
  }

  __device__ __forceinline__ void load_block() {
    unroll<4>([&]<int n>() { loop.template load_v_part<n>(); });
    unroll<S::kLoadsK>([&]<int n>() {
      loop.template address_k_part<n>();
      ordered::s_nop<1>();
      loop.template load_k_part<n>();
    });
  }

  template <int kFrom, int kTo>
  __device__ __forceinline__ void load_q(Octet (&octets)[kN][S::kReadsK]) const {
    if (__builtin_expect(padded_q, false))
      load_q_tiles<kFrom, kTo, true>(octets);
    else
      load_q_tiles<kFrom, kTo, false>(octets);
  }
  template <int kFrom, int kTo, bool kPadded>
  __device__ __forceinline__ void load_q_tiles(Octet (&octets)[kN][S::kReadsK]) const {
    const auto* q = (const Global<uint16_t>*)args.q + work.batch * args.q_stride_batch +
                    work.head_q * args.q_stride_head;
    for (int t = kFrom; t < kTo; ++t) {
      const int r = least(wave_row + t * kTile + row, work.rows - 1);
      const auto* from = q + (work.q_base + r) * args.q_stride_seq + group * 8;
      for (int octet = 0; octet < S::kReadsK; ++octet) {
        const bool there = !kPadded || octet * 32 + group * 8 < args.head_dim;
        const Octet x = *(const Global<Octet>*)(from + (there ? octet * 32 : -group * 8));
        for (int i = 0; i < 4; ++i) octets[t][octet][i] = there ? x[i] : 0;
      }
    }
  }
  __device__ __forceinline__ void keep_q(const Octet (&octets)[kN][S::kReadsK]) {
    unroll<kN>([&]<int t>() {
      unroll<S::kReadsK>([&]<int octet>() {
        if constexpr (t < S::kTilesQAcc)
          unroll<4>([&]<int r>() {
            v_accvgpr_write_b32<S::template kAccQuery<t, octet> + r>(octets[t][octet][r]);
          });
        else
          loop.q[t - S::kTilesQAcc][octet] = octets[t][octet];
      });
    });
  }

  // The greatest of the first 16 scores is a row's reference.
  __device__ __forceinline__ void find_references() {
    f32x4 score[kN];
    unroll<kN>([&]<int t>() {
      unroll<S::kStepsD>([&]<int step>() { loop.template score_op<t, 2 * step, t % 2>(); });
      score[t] = loop.score[t % 2][0];
    });
    ordered::s_nop<8>();
    float greatest[kN];
    unroll<kN>([&]<int t>() {
      greatest[t] = -kInf;
      ordered::settle(score[t]);  // read behind the wait
      for (int i = 0; i < 4; ++i)
        if (loop.template visible<t>(i))
          greatest[t] = v_max_f32(greatest[t], loop.scaled(score[t][i]));
    });
    for (int t = 0; t < kN; ++t) {
      loop.negative_ref[t / 2][t % 2] = -Loop::row_max(greatest[t]);
      loop.sum[t] = loop.rounded_sum[t] = f32x2{0, 0};
    }
  }

  __device__ __forceinline__ void start(uint32_t lds) {
    Octet octets[kN][S::kReadsK];
    load_q<0, kN / 2>(octets);  // half of Q: more than the memory unit takes would hold up the wave
    set_constants(lds);
    set_rows();
    load_block();
    load_q<kN / 2, kN>(octets);
    unroll<S::kAccO>([&]<int r>() { v_accvgpr_zero_b32<r>(); });
    keep_q(octets);  // waits for all loads before, too
    ordered::s_waitcnt<0, ordered::kAnyLgkm>();
    unroll<2 * S::kWidthV>([&]<int n>() { loop.template transpose_part<n>(); });
    unroll<S::kWidthV / 2>([&]<int n>() { loop.template write_v_part<n>(); });
    ordered::s_waitcnt<0, 0>();
    ordered::s_barrier();
    unroll<Loop::Plan::kPrepareOps>([&]<int n>() { loop.template prepare_step<n>(); });
    loop.m0 ^= S::kStageK;
    loop.write_v ^= S::kStageV;
    load_block();
    unroll<2 * S::kReadsK>([&]<int n>() { loop.template read_k_part<n>(); });
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    find_references();
    unroll<S::kScoreOps>([&]<int op>() { loop.template score_op<0, op, 0>(); });
    // The unit before the first one has probabilities 0.
    for (auto& half : loop.v)
      for (auto& octet : half) octet = Octet{};
    for (auto& half : loop.p[1]) half = Quad{};
    for (auto& address : loop.read_k) address ^= S::kStageK;
    ordered::s_nop<8>();
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
    unroll<S::kOutputOps>([&]<int op>() { loop.template output_op<kN - 1, op, (kN - 1) % 2>(); });
    ordered::s_nop<8>();
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
    }
    Finish<S>(work, loop, wave_row).store();
  }
};
