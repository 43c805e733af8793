// Eight waves of 32 rows of Q, or two workgroups of four: each wave has a stream of its own,
// scores of unit n + 1, then output of unit n - 1, softmax of unit n beside, a unit being 32 keys.
// WAVES of a workgroup, 8 or 4. PRIORITY 1: the wave of a SIMD that is behind goes first. CLUSTERS:
// 8, or less of 8 parts of the softmax, are beside matrix instructions, the others beside LDS
// reads, and the waves of a SIMD take turns.
#include "parts.h"

#ifndef WAVES
#define WAVES 8
#endif
#ifndef CLUSTERS
#define CLUSTERS 0
#endif
#ifndef PRIORITY
#define PRIORITY 1
#endif

inline constexpr int kWaves = WAVES, kLoads = 16 / kWaves;  // of a wave, of a block of K or V
inline constexpr int kStagesV = 2, kStagesK = 3, kBaseK = kStagesV * kBlockBytes;
inline constexpr int kUnitBytes = kBlockBytes / 2;

struct Stream {
  f32x16 o[4], score[2];
  bf16x8 q[8], k[8], v[2][4], p[2][2];
  float negative_reference, sum;
  uint32_t address_k, address_v;
  Source<kLoads> from_k, from_v;
  float scale;
  int lane;
  uint64_t exceeds;
  Softmax<16> softmax;
  uint32_t lds_k, lds_v;  // where the wave's next loads go
  // From the stage of K that is read to the next one, and the two steps after; as the first loads
  // have no stage to free, theirs is the third one.
  uint32_t step[3];

  __device__ __forceinline__ Stream(Source<kLoads> k, Source<kLoads> v) : from_k(k), from_v(v) {}

  template <int kUnit>
  __device__ __forceinline__ void unit() {
    auto& scores = score[kUnit];
    auto& next = score[1 - kUnit];
    constexpr int kBarrier = 7;  // of a block: behind this matrix instruction of its first unit
    ordered::s_waitcnt<ordered::kAnyVm, 14>();
    const auto matrix = [&]<int m>() {
      if constexpr (PRIORITY == 1 && CLUSTERS == 0) follow<16 * kUnit + m - kBarrier - 1>();
      if constexpr (m < 8) {
        if constexpr (m == 0)
          multiply_zero(next, k[0], q[0]);
        else
          multiply(next, k[m], q[m]);
        if constexpr (m == 7 && CLUSTERS == 0) {
          // V of the unit before is there; then also what was loaded
          if constexpr (kUnit == 0 && kBarrier == m) {
            ordered::s_waitcnt<0, 7>();
            ordered::s_barrier();
          } else {
            ordered::s_waitcnt<ordered::kAnyVm, 7>();
          }
        }
      } else {
        constexpr int step = (m - 8) / 4, tile = m % 4;
        multiply(o[tile], v[step][tile], p[1 - kUnit][step]);
      }
    };
    const auto vector = [&]<int m>() {
      softmax.template share<m, 16>(
          scale, negative_reference, [&]<int n>() { return scores[n]; },
          [&]<int n>(uint32_t pair) { p[kUnit][n / 4][n % 4] = pair; });
    };
    const auto memory = [&]<int m>() {
      if constexpr (m < 8) {
        constexpr bool loads = kUnit == 1 && m < 2 * kLoads;
        constexpr int n = m % kLoads;
        if constexpr (loads) ordered::s_add_m0<n * kWaves * kLoadBytes>(m < kLoads ? lds_k : lds_v);
        read_k<kUnit * kUnitBytes, m>(k[m], address_k);
        if constexpr (loads && m < kLoads) from_k.template load<n>();
        if constexpr (loads && m >= kLoads) from_v.template load<n>();
      } else {
        constexpr int step_of = (m - 8) / 4, tile = m % 4;
        read_v<kUnit * kUnitBytes, step_of, tile, 0>(v[step_of][tile], address_v);
        read_v<kUnit * kUnitBytes, step_of, tile, 1>(v[step_of][tile], address_v);
        if constexpr (kUnit == 1) further<m - 8>();
      }
    };
    if constexpr (CLUSTERS > 0)
      clusters<kUnit>(matrix, vector, memory);
    else
      unroll<16>([&]<int m>() {
        matrix.template operator()<m>();
        // Behind a barrier a matrix instruction is the next one.
        if constexpr (kUnit == 0 && m == kBarrier) return;
        if constexpr (kUnit == 0 && m == kBarrier + 1) {
          vector.template operator()<m - 1>();
          memory.template operator()<m - 1>();
        }
        vector.template operator()<m>();
        memory.template operator()<m>();
      });
    if constexpr (kUnit == 1) ordered::v_xor_b32<kBlockBytes>(address_v);
    exceeds = ordered::v_cmp_nlt_f32(softmax.sum, kMostSum);
    if (__builtin_expect(exceeds != 0, 0)) renew<kUnit>();
    ordered::v_accumulate_f32(sum, softmax.sum);
  }

  // Matrix instructions of 32 keys with all vector ones, then what is read from LDS, by turns with
  // the other wave of the SIMD: a barrier behind each.
  template <int kUnit, class Matrix, class Vector, class Memory>
  static __device__ __forceinline__ void clusters(Matrix&& matrix, Vector&& vector,
                                                  Memory&& memory) {
    unroll<2>([&]<int half>() {
      if constexpr (half == 1) ordered::s_waitcnt<ordered::kAnyVm, 8>();
      s_setprio<1>();
      unroll_from<8 * half, 8 * half + 8>([&]<int m>() {
        matrix.template operator()<m>();
        if constexpr (m % 8 < CLUSTERS) vector.template operator()<m>();
      });
      s_setprio<0>();
      if constexpr (kUnit == 0 && half == 0) ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      ordered::s_barrier();
      unroll_from<8 * half, 8 * half + 8>([&]<int m>() {
        memory.template operator()<m>();
        if constexpr (m % 8 >= CLUSTERS) vector.template operator()<m>();
      });
      ordered::s_barrier();
    });
  }
  // The wave of a SIMD that is behind goes first: priorities fall from barrier to barrier.
  template <int kMatrix>
  static __device__ __forceinline__ void follow() {
    constexpr int since = (kMatrix + 32) % 32;
    if constexpr (since == 0) s_setprio<3>();
    if constexpr (since > 4 && since % 8 == 4) s_setprio<3 - since / 8>();
  }
  // The block behind the one that has been loaded.
  template <int n>
  __device__ __forceinline__ void further() {
    if constexpr (n == 0) v_add_u32(address_k, step[0]);
    if constexpr (n == 1) from_k.further();
    if constexpr (n == 3) from_v.further();
    if constexpr (n == 5) s_add_u32(lds_k, step[2]);
    if constexpr (n == 6) ordered::s_xor_b32<kBlockBytes>(lds_v);
    if constexpr (n == 7) turn(step[0], step[1], step[2]);
  }

  // A row's reference is too small: exact online softmax of the unit.
  template <int kUnit>
  __device__ __forceinline__ void renew() {
    products_done(o[0], o[1], o[2], o[3]);
    float most = -kInf;
    unroll<16>([&]<int n>() { most = v_max_f32(most, score[kUnit][n]); });
    most = row_max(most, lane) * scale;
    const float old = -negative_reference;
    const float reference = v_max_f32(old, most);
    const float by = v_exp_f32(old - reference);
    float x[16], unit_sum = 0;
    unroll<16>([&]<int n>() {
      x[n] = v_exp_f32(__builtin_fmaf(score[kUnit][n], scale, -reference));
      unit_sum += x[n];
    });
    unroll<8>([&]<int n>() {
      p[kUnit][n / 4][n % 4] = ordered::v_cvt_pk_bf16_f32(x[2 * n], x[2 * n + 1]);
    });
    ordered::v_mov_b32(sum, sum * by);
    ordered::v_mov_b32(softmax.sum, unit_sum);
    ordered::v_mov_b32(negative_reference, -reference);
    unroll<4>([&]<int t>() { o[t] *= by; });
    unroll<4>([&]<int t>() { ordered::settle(o[t]); });
  }
};

extern "C" __global__ void WORKGROUP(kWaves* kWaveLanes, 2) KERNEL(EightArgs a) {
  __shared__ u32x4 lds[(kStagesV + kStagesK) * kBlockBytes / sizeof(u32x4)];
  const auto base = (uint32_t)(Local<u32x4>*)lds;
  const Place place(a, kWaves * kTileRows);
  const int lane = Lane::in_wave(), wave = Lane::wave(), group = lane / 32;
  const int row = wave * kTileRows + lane % 32, blocks = a.keys / kBlock;
  Stream s({place.k, a.keys, a.kv_row, 4 * kWaves, lane_offset_k(lane, wave, a.kv_row)},
           {place.v, a.keys, a.kv_row, 4 * kWaves, lane_offset_v(lane, 4 * wave, a.kv_row)});
  s.lane = lane;
  s.scale = a.scale_log2;
  s.lds_k = base + kBaseK + wave * kLoadBytes;
  s.lds_v = base + wave * kLoadBytes;
  constexpr int kApart = kWaves * kLoadBytes;
  s.from_k.load_block<kApart>(s.lds_k);
  const auto buffer_q = raw_descriptor(place.q, bytes_of(place.rows, a.q_row));
  load_q(s.q, buffer_q, row * a.q_row + 16 * group);
  s.from_v.load_block<kApart>(s.lds_v);
  s.from_k.load_block<kApart>(s.lds_k + kBlockBytes);
  s.from_k.load_block<kApart>(s.lds_k + 2 * kBlockBytes);
  s.address_k = base + kBaseK + lane_address_k(lane);
  ordered::settle(s.address_k);
  s.address_v = base + lane_address_v(lane);
  ordered::settle(s.address_v);
  unroll<4>([&]<int t>() {
    s.o[t] = f32x16{};
    ordered::settle(s.o[t]);
    s.v[0][t] = s.v[1][t] = bf16x8{};
    ordered::settle(s.v[0][t]);
    ordered::settle(s.v[1][t]);
  });
  s.p[1][0] = s.p[1][1] = bf16x8{};
  ordered::settle(s.p[1][0]);
  ordered::settle(s.p[1][1]);
  ordered::s_waitcnt<0, 0>();
  ordered::s_barrier();
  unroll<8>([&]<int n>() { read_k<0, n>(s.k[n], s.address_k); });
  ordered::s_waitcnt<ordered::kAnyVm, 0>();
  unroll<8>([&]<int n>() {
    if constexpr (n == 0)
      multiply_zero(s.score[0], s.k[0], s.q[0]);
    else
      multiply(s.score[0], s.k[n], s.q[n]);
    read_k<kUnitBytes, n>(s.k[n], s.address_k);
  });
  v_add_u32(s.address_k, kBlockBytes);
  products_done(s.score[0]);
  float most = -kInf;
  unroll<16>([&]<int n>() { most = v_max_f32(most, s.score[0][n]); });
  most = row_max(most, lane);
  s.negative_reference = -most * s.scale;
  s.sum = 0;
  ordered::settle(s.negative_reference);
  ordered::settle(s.sum);
  s.step[0] = s.step[2] = kBlockBytes;
  s.step[1] = -(kStagesK - 1) * kBlockBytes;
  s.lds_v ^= kBlockBytes;
  // Block b loads K of b + 3 and V of b + 1.
  if (CLUSTERS > 0 && wave >= 4) ordered::s_barrier();
  for (int b = blocks; b > 0; --b) {
    s.unit<0>();
    s.unit<1>();
  }
  if (CLUSTERS > 0 && wave < 4) ordered::s_barrier();
  ordered::s_waitcnt<0, 0>();
  unroll<8>([&]<int n>() { multiply(s.o[n % 4], s.v[n / 4][n % 4], s.p[1][n / 4]); });
  products_done(s.o[0], s.o[1], s.o[2], s.o[3]);
  const float sum = row_sum(s.sum, lane);
  const int offset = row * a.o_row + 16 * group;
  store_o(s.o, v_rcp_f32(sum),
          raw_buffer((const Global<void>*)place.o, bytes_of(place.rows, a.o_row)), offset);
}
