// Eight waves of 32 rows of Q, or two workgroups of four: each wave has a stream of its own,
// scores of unit n + 1, then output of unit n - 1, softmax of unit n beside, a unit being 32 keys.
// WAVES of a workgroup, 8 or 4; PRIORITY, see below.
#include "parts.h"

#ifndef WAVES
#define WAVES 8
#endif
#ifndef PRIORITY
#define PRIORITY 0
#endif

inline constexpr int kWaves = WAVES, kLoads = 16 / kWaves;  // of a wave, of a block of K or V
inline constexpr int kStagesV = 2, kStagesK = 3, kBaseK = kStagesV * kBlockBytes;
inline constexpr int kUnitBytes = kBlockBytes / 2;

struct Stream {
  f32x16 o[4], score[2];
  bf16x8 q[8], k[8], v[2][4], p[2][2];
  float negative_reference, sum;
  uint32_t address_k[8], address_v;
  Source from_k, from_v;
  float scale;
  int lane;
  uint64_t exceeds;
  Softmax<16> softmax;
  uint32_t lds_k, lds_v;  // where the wave's next loads go
  int slot_read, slot_load, left_k, left_v;
  uint32_t step_k;

  template <int kUnit>
  __device__ __forceinline__ void unit() {
    auto& scores = score[kUnit];
    auto& next = score[1 - kUnit];
    ordered::s_waitcnt<ordered::kAnyVm, 15>();
    const auto matrix = [&]<int m>() {
      if constexpr (m < 8) {
        if constexpr (m == 0)
          multiply_zero(next, k[0], q[0]);
        else
          multiply(next, k[m], q[m]);
      } else {
        constexpr int step = (m - 8) / 4, tile = m % 4;
        multiply(o[tile], v[step][tile], p[1 - kUnit][step]);
      }
    };
    const auto vector = [&]<int r>() {
      softmax.template round<r>(
          scale, negative_reference, [&]<int n>() { return scores[n]; },
          [&]<int n>(uint32_t pair) { p[kUnit][n / 4][n % 4] = pair; });
    };
    const auto memory = [&]<int m>() {
      if constexpr (m < 8) {
        read_k<kUnit * kUnitBytes>(k[m], address_k[m]);
        if constexpr (m == 7) {
          if constexpr (kUnit == 0) {
            ordered::s_waitcnt<0, 8>();
            ordered::s_barrier();
          } else {
            ordered::s_waitcnt<ordered::kAnyVm, 8>();
            step_k = slot_read == kStagesK - 1 ? -(kStagesK - 1) * kBlockBytes : kBlockBytes;
          }
        }
      } else {
        constexpr int step = (m - 8) / 4, tile = m % 4;
        read_v<kUnit * kUnitBytes, step, tile, 0>(v[step][tile], address_v);
        read_v<kUnit * kUnitBytes, step, tile, 1>(v[step][tile], address_v);
        if constexpr (kUnit == 0 && m < 8 + kLoads) {
          from_k.load<(m - 8) * kWaves * kLoadBytes>(lds_k);
          from_k.further(4 * kWaves);
        }
        if constexpr (kUnit == 0 && m >= 8 + kLoads && m < 8 + 2 * kLoads) {
          from_v.load<(m - 8 - kLoads) * kWaves * kLoadBytes>(lds_v);
          from_v.further(4 * kWaves);
        }
        if constexpr (kUnit == 1) v_add_u32(address_k[m - 8], step_k);
      }
    };
    interleave<16, Softmax<16>::kRounds, 16>(matrix, vector, memory);
    if constexpr (kUnit == 1) ordered::v_xor_b32<kBlockBytes>(address_v);
    ordered::v_accumulate_f32(sum, softmax.sum);
    exceeds = ordered::v_cmp_nlt_f32(softmax.sum, kMostSum);
    if (__builtin_expect(exceeds != 0, 0)) renew<kUnit>();
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
    ordered::v_mov_b32(sum, (sum - softmax.sum) * by + unit_sum);
    ordered::v_mov_b32(negative_reference, -reference);
    unroll<4>([&]<int t>() { o[t] *= by; });
    unroll<4>([&]<int t>() { ordered::settle(o[t]); });
  }

  // Block b: its loads are those of K of b + 3 and of V of b + 1.
  __device__ __forceinline__ void block() {
    unit<0>();
    unit<1>();
  }
};

extern "C" __global__ void WORKGROUP(kWaves* kWaveLanes, 2) KERNEL(EightArgs a) {
  __shared__ u32x4 lds[(kStagesV + kStagesK) * kBlockBytes / sizeof(u32x4)];
  const auto base = (uint32_t)(Local<u32x4>*)lds;
  const Place place(a, kWaves * kTileRows);
  Stream s;
  s.lane = Lane::in_wave();
  const int wave = Lane::wave(), row = wave * kTileRows + s.lane % 32, group = s.lane / 32;
  const int blocks = a.keys / kBlock;
  s.scale = a.scale_log2;
  s.from_k = {place.k + int64_t(4 * wave) * a.kv_row, lane_offset_k(s.lane, 4 * wave, a.kv_row),
              a.kv_row};
  s.from_v = {place.v + int64_t(4 * wave) * a.kv_row, lane_offset_v(s.lane, a.kv_row), a.kv_row};
  // A block behind the last one is that once more.
  const auto load = [&](Source& from, uint32_t to, int block) {
    unroll<kLoads>([&]<int n>() {
      from.load<n * kWaves * kLoadBytes>(to);
      from.further(4 * kWaves);
    });
    if (block + 1 >= blocks) from.further(-kBlock);
  };
  const uint32_t wave_lds = base + wave * kLoadBytes;
  load(s.from_k, wave_lds + kBaseK, 0);
  const auto buffer_q = raw_descriptor(place.q, bytes_of(place.rows, a.q_row));
  load_q(s.q, buffer_q, row * a.q_row + 16 * group);
  load(s.from_v, wave_lds, 0);
  load(s.from_k, wave_lds + kBaseK + kBlockBytes, 1);
  load(s.from_k, wave_lds + kBaseK + 2 * kBlockBytes, 2);
  unroll<8>([&]<int n>() {
    s.address_k[n] = base + kBaseK + (lane_address_k(s.lane) ^ 32 * n);
    ordered::settle(s.address_k[n]);
  });
  s.address_v = base + lane_address_v(s.lane);
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
  unroll<8>([&]<int n>() { read_k<0>(s.k[n], s.address_k[n]); });
  ordered::s_waitcnt<ordered::kAnyVm, 0>();
  unroll<8>([&]<int n>() {
    if constexpr (n == 0)
      multiply_zero(s.score[0], s.k[0], s.q[0]);
    else
      multiply(s.score[0], s.k[n], s.q[n]);
    read_k<kUnitBytes>(s.k[n], s.address_k[n]);
  });
  unroll<8>([&]<int n>() { v_add_u32(s.address_k[n], kBlockBytes); });
  products_done(s.score[0]);
  float most = -kInf;
  unroll<16>([&]<int n>() { most = v_max_f32(most, s.score[0][n]); });
  most = row_max(most, s.lane);
  s.negative_reference = -most * s.scale;
  s.sum = 0;
  ordered::settle(s.negative_reference);
  ordered::settle(s.sum);
  s.slot_read = 1;
  s.slot_load = 0;
  int stage_v = 1;
  for (int b = 0; b < blocks; ++b) {
    s.lds_k = wave_lds + kBaseK + s.slot_load * kBlockBytes;
    s.lds_v = wave_lds + stage_v * kBlockBytes;
    s.block();
    if (b + 3 + 1 >= blocks) s.from_k.further(-kBlock);
    if (b + 1 + 1 >= blocks) s.from_v.further(-kBlock);
    s.slot_read = s.slot_read == kStagesK - 1 ? 0 : s.slot_read + 1;
    s.slot_load = s.slot_load == kStagesK - 1 ? 0 : s.slot_load + 1;
    stage_v ^= 1;
  }
  ordered::s_waitcnt<0, 0>();
  unroll<8>([&]<int n>() { multiply(s.o[n % 4], s.v[n / 4][n % 4], s.p[1][n / 4]); });
  products_done(s.o[0], s.o[1], s.o[2], s.o[3]);
  const float sum = row_sum(s.sum, s.lane);
  const int offset = row * a.o_row + 16 * group;
  store_o(s.o, v_rcp_f32(sum), raw_buffer((const Global<void>*)place.o, bytes_of(place.rows, a.o_row)),
          offset);
}
