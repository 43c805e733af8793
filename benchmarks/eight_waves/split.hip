// Eight waves, two a SIMD that have the same 64 rows of Q: one computes probabilities, the other
// multiplies them with V. Each reads one of K and V from LDS, for two tiles of rows.
//
//   wave     matrix unit                 vector unit    LDS
//   0 to 3   scores of the next tile     softmax        K; writes P
//   4 to 7   output of the block before  -              V, P; loads of K and V to LDS
//
// At barrier i the first ones are in block i, the others in block i - 2; both take it where they
// have matrix instructions before and behind it that wait for nothing.
#ifndef AHEAD
#define AHEAD 6
#endif
#include "parts.h"

inline constexpr int kPairs = 4, kTiles = 2, kLoads = 4;  // of a wave that loads, of a block
inline constexpr int kStagesK = 2, kStagesV = 3, kStagesP = 2;
inline constexpr int kBytesP = kTileRows * kBlock * 2, kBytesOfLanes = 4 * kWaveLanes;
// Of P: stage, pair of waves, tile, 16 keys, lane. A bit of an address is its stage; likewise of K.
inline constexpr int kStageP = kPairs * kTiles * kBytesP;
inline constexpr int kBaseK = kStagesP * kStageP, kBaseV = kBaseK + kStagesK * kBlockBytes;
// By what O is to be multiplied before P is added to it; then 1 / sums.
inline constexpr int kBaseBy = kBaseV + kStagesV * kBlockBytes;
inline constexpr int kStageBy = kPairs * kTiles * kBytesOfLanes;
inline constexpr int kBaseInverse = kBaseBy + kStagesP * kStageBy;
inline constexpr int kLdsBytes = kBaseInverse + kStageBy;

struct Scores {
  bf16x8 q[kTiles][8], k[2][8], p[4];
  f32x16 score[kTiles][2];
  float negative_reference[kTiles], sum[kTiles];
  uint32_t address_k, address_p, address_by;
  float scale;
  int lane;
  Softmax<32> softmax;

  template <int kTile, int m>
  __device__ __forceinline__ void multiply_keys() {
    constexpr int half = m / 8, step = m % 8;
    if constexpr (step == 0)
      multiply_zero(score[kTile][half], k[half][step], q[kTile][step]);
    else
      multiply(score[kTile][half], k[half][step], q[kTile][step]);
  }
  template <int n>
  __device__ __forceinline__ void read_keys() {
    constexpr int half = n / 8, step = n % 8;
    read_k<half * kBlockBytes / 2, step>(k[half][step], address_k);
  }
  template <int kTile, int kStep>
  __device__ __forceinline__ void write_p() {
    ordered::ds_write_b128<kTile * kBytesP + kStep * kLoadBytes>(address_p, p[kStep]);
  }

  // Softmax of a tile; scores of the next one.
  template <int kTile>
  __device__ __forceinline__ void unit() {
    constexpr int kBarrier = 4;  // in front of this matrix instruction
    const auto matrix = [&]<int m>() {
      // Four steps of K: so many reads and writes of P are behind them.
      if constexpr (kTile == 1 && m == 0) ordered::s_waitcnt<ordered::kAnyVm, 6>();
      if constexpr (kTile == 1 && m == 4) ordered::s_waitcnt<ordered::kAnyVm, 4>();
      if constexpr (kTile == 1 && m == 8) ordered::s_waitcnt<ordered::kAnyVm, 5>();
      if constexpr (kTile == 1 && m == 12) ordered::s_waitcnt<ordered::kAnyVm, 1>();
      if constexpr (kTile == 0 && m == kBarrier) {
        ordered::s_waitcnt<ordered::kAnyVm, 0>();
        ordered::s_barrier();
      }
      multiply_keys<1 - kTile, m>();
    };
    const auto vector = [&]<int m>() {
      softmax.template share<m, 16>(
          scale, negative_reference[kTile], [&]<int n>() { return score[kTile][n / 16][n % 16]; },
          [&]<int n>(uint32_t pair) {
            p[n / 4][n % 4] = pair;
            if constexpr (n % 4 == 3) write_p<kTile, n / 4>();
          });
    };
    const auto memory = [&]<int m>() {
      if constexpr (kTile == 0 && m >= 8) read_keys<m - 8>();
      if constexpr (kTile == 1 && m < 8) read_keys<m + 8>();
      if constexpr (kTile == 1 && m == 8) ordered::v_xor_b32<kBlockBytes>(address_k);
    };
    unroll<16>([&]<int m>() {
      matrix.template operator()<m>();
      vector.template operator()<m>();
      memory.template operator()<m>();
    });
    const uint64_t exceeds = ordered::v_cmp_nlt_f32(softmax.sum, kMostSum);
    if (__builtin_expect(exceeds != 0, 0)) renew<kTile>();
    ordered::v_accumulate_f32(sum[kTile], softmax.sum);
    if constexpr (kTile == 1) {
      ordered::v_xor_b32<kStageP>(address_p);
      ordered::v_xor_b32<kStageBy>(address_by);
    }
  }

  __device__ __forceinline__ float greatest(int tile) const {
    float most = -kInf;
    unroll<16>(
        [&]<int n>() { most = v_max_f32(most, v_max_f32(score[tile][0][n], score[tile][1][n])); });
    return row_max(most, lane);
  }
  // A row's reference is too small: exact online softmax of the tile and block.
  template <int kTile>
  __device__ __forceinline__ void renew() {
    const float most = greatest(kTile) * scale;
    const float old = -negative_reference[kTile];
    const float reference = v_max_f32(old, most);
    const float by = v_exp_f32(old - reference);
    float x[32], unit_sum = 0;
    unroll<32>([&]<int n>() {
      x[n] = v_exp_f32(__builtin_fmaf(score[kTile][n / 16][n % 16], scale, -reference));
      unit_sum += x[n];
    });
    unroll<16>(
        [&]<int n>() { p[n / 4][n % 4] = ordered::v_cvt_pk_bf16_f32(x[2 * n], x[2 * n + 1]); });
    ordered::v_mov_b32(sum[kTile], sum[kTile] * by);
    ordered::v_mov_b32(softmax.sum, unit_sum);
    ordered::v_mov_b32(negative_reference[kTile], -reference);
    unroll<4>([&]<int s>() { write_p<kTile, s>(); });
    ordered::ds_write_b32(address_by + kTile * kBytesOfLanes, by);
  }

  __device__ __forceinline__ void run(uint32_t base, int pair, const Place& place,
                                      const EightArgs& a) {
    const int group = lane / 32;
    const auto buffer_q = raw_descriptor(place.q, bytes_of(place.rows, a.q_row));
    unroll<kTiles>([&]<int t>() {
      const int row = (kTiles * pair + t) * kTileRows + lane % 32;
      load_q(q[t], buffer_q, row * a.q_row + 16 * group);
    });
    address_k = base + kBaseK + lane_address_k(lane);
    address_p = base + pair * kTiles * kBytesP + 16 * lane;
    address_by = base + kBaseBy + pair * kTiles * kBytesOfLanes + 4 * lane;
    for (int stage = 0; stage < kStagesP; ++stage)
      for (int t = 0; t < kTiles; ++t)
        ordered::ds_write_b32(address_by + stage * kStageBy + t * kBytesOfLanes, 1.0f);
    scale = a.scale_log2;
    ordered::s_waitcnt<0, 0>();
    ordered::s_barrier();
    unroll<16>([&]<int n>() { read_keys<n>(); });
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    // The second tile's reference is of half of the block; its scores come once more.
    unroll<8>([&]<int n>() { multiply_keys<1, n>(); });
    unroll<16>([&]<int n>() { multiply_keys<0, n>(); });
    score[1][1] = score[1][0];
    products_done(score[0][0], score[0][1], score[1][0]);
    for (int t = 0; t < kTiles; ++t) {
      negative_reference[t] = -(t == 0 ? greatest(0) : first_half_of_1()) * scale;
      sum[t] = 0;
      ordered::settle(negative_reference[t]);
      ordered::settle(sum[t]);
    }
    ordered::v_xor_b32<kBlockBytes>(address_k);
    for (int blocks = a.keys / kBlock; blocks > 0; --blocks) {
      unit<0>();
      unit<1>();
    }
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    ordered::s_barrier();
    for (int t = 0; t < kTiles; ++t)
      ordered::ds_write_b32(base + kBaseInverse + (pair * kTiles + t) * kBytesOfLanes + 4 * lane,
                            v_rcp_f32(row_sum(sum[t], lane)));
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    ordered::s_barrier();
  }
  __device__ __forceinline__ float first_half_of_1() const {
    float most = -kInf;
    unroll<16>([&]<int n>() { most = v_max_f32(most, score[1][0][n]); });
    return row_max(most, lane);
  }
};

struct Outputs {
  f32x16 o[kTiles][4];
  bf16x8 v[4][4], p[kTiles][4];
  float by[kTiles], both;
  uint64_t renewed;
  uint32_t address_v, address_p, address_by;
  Source<kLoads> from_k, from_v;
  uint32_t lds_k, lds_v;  // where the wave's next loads go
  // To the next stage of V that is read, and those after; as loads are two stages ahead, theirs is
  // the third one.
  uint32_t step[3];

  __device__ __forceinline__ Outputs(Source<kLoads> k, Source<kLoads> its_v)
      : from_k(k), from_v(its_v) {}

  template <int n>
  __device__ __forceinline__ void set_m0() {
    ordered::s_add_m0<n % kLoads * kPairs * kLoadBytes>(n < kLoads ? lds_k : lds_v);
  }
  template <int n>
  __device__ __forceinline__ void load() {
    if constexpr (n < kLoads)
      from_k.template load<n>();
    else
      from_v.template load<n - kLoads>();
  }
  template <int kTile, int kStep>
  __device__ __forceinline__ void read_p() {
    ordered::ds_read_b128<kTile * kBytesP + kStep * kLoadBytes>(p[kTile][kStep], address_p);
  }
  template <int t>
  __device__ __forceinline__ void read_by() {
    asm volatile("ds_read_b32 %0, %1 offset:%2"
                 : "=v"(by[t])
                 : "v"(address_by), "n"(t * kBytesOfLanes));
  }
  template <int kOp>
  __device__ __forceinline__ void read_values() {
    read_v<0, kOp / 4, kOp % 4, 0>(v[kOp / 4][kOp % 4], address_v);
    read_v<0, kOp / 4, kOp % 4, 1>(v[kOp / 4][kOp % 4], address_v);
  }
  __device__ __forceinline__ void rotate() {
    const uint32_t first = step[0];
    step[0] = step[1];
    step[1] = step[2];
    step[2] = first;
  }

  __device__ __forceinline__ void further() {
    from_k.further();
    from_v.further();
    ordered::s_xor_b32<kBlockBytes>(lds_k);
    s_add_u32(lds_v, step[2]);
    rotate();
  }
  // A vector instruction, in front of those of the other wave, which never ends to have some.
  template <class One>
  __device__ __forceinline__ void first(One&& one) {
    s_setprio<3>();
    one();
    s_setprio<0>();
  }
  __device__ __forceinline__ void block() {
    constexpr int kBarrier = 15;  // behind this matrix instruction
    ordered::s_waitcnt<ordered::kAnyVm, 12>();
    if (__builtin_expect(renewed != 0, 0)) renew();
    unroll<32>([&]<int m>() {
      constexpr int op = m / 2, step_of = op / 4, t = m % 2;
      if constexpr (m % 8 == 0 && m > 0) ordered::s_waitcnt<ordered::kAnyVm, 12>();
      multiply(o[t][op % 4], v[step_of][op % 4], p[t][step_of]);
      if constexpr (m == kBarrier) {
        ordered::s_waitcnt<0, 14>();  // all that the block before has read
        ordered::s_barrier();
      }
      constexpr bool loads = m > kBarrier && m <= kBarrier + 4 * kLoads && (m - kBarrier) % 2 == 1;
      constexpr int n = (m - kBarrier) / 2;
      if constexpr (loads) set_m0<n>();
      if constexpr (m == 0) first([&] { v_add_u32(address_v, step[0]); });
      if constexpr (m == 10) further();
      if constexpr (m == 4) first([&] { ordered::v_xor_b32<kStageP>(address_p); });
      if constexpr (m == 8) first([&] { ordered::v_xor_b32<kStageBy>(address_by); });
      if constexpr (m == 28) {
        ordered::s_waitcnt<ordered::kAnyVm, 10>();
        first([&] { asm volatile("v_mul_f32 %0, %1, %2" : "=v"(both) : "v"(by[0]), "v"(by[1])); });
      }
      if constexpr (m == 30)
        first([&] { asm volatile("v_cmp_neq_f32 %0, 1.0, %1" : "=s"(renewed) : "v"(both)); });
      if constexpr (m == 16) read_p<0, 0>();
      if constexpr (m == 17) read_p<1, 0>();
      if constexpr (m == 18) read_p<0, 1>();
      if constexpr (m == 19) read_p<1, 1>();
      if constexpr (m == 20) read_by<0>();
      if constexpr (m == 21) read_by<1>();
      if constexpr (m > 16 && m % 8 == 6) read_p<0, step_of>();
      if constexpr (m > 16 && m % 8 == 7) read_p<1, step_of>();
      if constexpr (t == 1) read_values<op>();
      if constexpr (loads) {
        ordered::s_nop<1>();
        load<n>();
      }
    });
  }
  // Some rows' references have been renewed: their probabilities are relative to others from this
  // block on.
  __device__ __forceinline__ void renew() {
    unroll<kTiles>([&]<int t>() {
      products_done(o[t][0], o[t][1], o[t][2], o[t][3]);
      unroll<4>([&]<int n>() {
        o[t][n] *= by[t];
        ordered::settle(o[t][n]);
      });
      ordered::ds_write_b32(address_by + t * kBytesOfLanes, 1.0f);
    });
  }

  __device__ __forceinline__ void run(uint32_t base, int pair, int lane, const Place& place,
                                      const EightArgs& a) {
    const int blocks = a.keys / kBlock;
    step[0] = step[1] = kBlockBytes;
    step[2] = -(kStagesV - 1) * kBlockBytes;
    lds_k = base + kBaseK + pair * kLoadBytes;
    lds_v = base + kBaseV + pair * kLoadBytes;
    constexpr int kApart = kPairs * kLoadBytes;
    from_k.load_block<kApart>(lds_k);
    from_k.load_block<kApart>(lds_k + kBlockBytes);
    from_v.load_block<kApart>(lds_v);
    unroll<kTiles * 4>([&]<int n>() {
      o[n / 4][n % 4] = f32x16{};
      ordered::settle(o[n / 4][n % 4]);
    });
    address_v = base + kBaseV + lane_address_v(lane);
    address_p = base + pair * kTiles * kBytesP + 16 * lane;
    address_by = base + kBaseBy + pair * kTiles * kBytesOfLanes + 4 * lane;
    ordered::settle(address_v);
    ordered::settle(address_p);
    ordered::settle(address_by);
    ordered::s_waitcnt<0, 0>();
    ordered::s_barrier();  // K of blocks 0 and 1, V of block 0
    ordered::s_barrier();
    from_k.load_block<kApart>(lds_k);
    from_v.load_block<kApart>(lds_v + kBlockBytes);
    unroll<16>([&]<int op>() { read_values<op>(); });
    ordered::s_waitcnt<0, ordered::kAnyLgkm>();
    ordered::s_barrier();
    // block() goes further before it loads.
    from_k.load_block<kApart, false>(lds_k + kBlockBytes);
    from_v.load_block<kApart, false>(lds_v + 2 * kBlockBytes);
    lds_k ^= kBlockBytes;
    lds_v += 2 * kBlockBytes;
    unroll<4>([&]<int s>() {
      read_p<0, s>();
      read_p<1, s>();
    });
    read_by<0>();
    read_by<1>();
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    renewed = __builtin_amdgcn_ballot_w64(by[0] * by[1] != 1);
    for (int b = blocks; b > 0; --b) block();
    ordered::s_waitcnt<0, 0>();
    float inverse[kTiles];
    for (int t = 0; t < kTiles; ++t)
      inverse[t] = *(const Local<float>*)(base + kBaseInverse +
                                          (pair * kTiles + t) * kBytesOfLanes + 4 * lane);
    unroll<kTiles>([&]<int t>() {
      products_done(o[t][0], o[t][1], o[t][2], o[t][3]);
      const int row = (kTiles * pair + t) * kTileRows + lane % 32;
      store_o(o[t], inverse[t],
              raw_buffer((const Global<void>*)place.o, bytes_of(place.rows, a.o_row)),
              row * a.o_row + 16 * (lane / 32));
    });
  }
};

extern "C" __global__ void WORKGROUP(2 * kPairs * kWaveLanes, 2) KERNEL(EightArgs a) {
  __shared__ u32x4 lds[kLdsBytes / sizeof(u32x4)];
  const auto base = (uint32_t)(Local<u32x4>*)lds;
  const Place place(a, kPairs * kTiles * kTileRows);
  const int lane = Lane::in_wave(), wave = Lane::wave(), pair = wave % kPairs;
  if (wave < kPairs) {
    Scores s;
    s.lane = lane;
    s.run(base, pair, place, a);
  } else {
    Outputs s({place.k, a.keys, a.kv_row, 4 * kPairs, lane_offset_k(lane, pair, a.kv_row)},
              {place.v, a.keys, a.kv_row, 4 * kPairs, lane_offset_v(lane, 4 * pair, a.kv_row)});
    s.run(base, pair, lane, place, a);
  }
}
