// The main loop of attention forward: one wave's registers and the units of attn/schedule.h.
#pragma once
#include "attn/schedule.h"
#include "attn/work.h"
#include "isa/acc.h"
#include "isa/ordered.h"
#include "isa/unroll.h"
#include "isa/valu.h"

inline constexpr uint32_t kHighHalves = 0x07060302, kLowHalves = 0x05040100;

__device__ __forceinline__ Quad half_of(Octet x, int half) {
  return half ? __builtin_shufflevector(x, x, 2, 3) : __builtin_shufflevector(x, x, 0, 1);
}
__device__ __forceinline__ f32x2 pair_of(f32x4 x, int half) {
  return half ? __builtin_shufflevector(x, x, 2, 3) : __builtin_shufflevector(x, x, 0, 1);
}
__device__ __forceinline__ uint32_t bits(float x) { return __builtin_bit_cast(uint32_t, x); }

template <int kElements>
struct Staged {
  using Row = u32x2;
};
template <>
struct Staged<2> {
  using Row = uint32_t;
};
__device__ __forceinline__ uint32_t dword_of(u32x2 x, int i) { return x[i]; }
__device__ __forceinline__ uint32_t dword_of(uint32_t x, int) { return x; }

template <class S>
struct Pipeline {
  using Plan = Schedule<S>;
  static constexpr int kN = S::kTilesQ, kStepsD = S::kStepsD, kTilesD = S::kTilesD;
  static constexpr bool kBf16 = S::kElement == Element::kBf16;
  static constexpr bool kHalves = S::kProduct == Element::kF16;  // P and V are

  // ---- Registers that live across units; O and some of Q are in the accumulation registers
  Octet q[kN == S::kTilesQAcc ? 1 : kN - S::kTilesQAcc][S::kReadsK];
  Octet k[2][S::kReadsK];  // [half of the keys]
  Octet v[2][S::kReadsV];
  f32x4 score[2][2];  // [unit % 2][half]: lane l has keys 4 * (l / 16) + 0..3 of row l % 16
  Quad p[2][2];       // probabilities, likewise
  // S::kTop - what is called the reference of a row's scores, log2 units, of two tiles: P is
  // relative to a reference that is less by S::kTop, and so are all sums.
  f32x2 negative_ref[kN / 2];
  f32x2 sum[kN];          // of a lane's share of the keys, even and odd
  f32x2 rounded_sum[kN];  // of the rounded ones, if S::kSumsRounded; if S::kConverts one, scaled
  f32x2 unit_sum, unit_rounded_sum;
  typename Staged<S::kWidthV>::Row staged[4];  // V on its way: 4 keys x kWidthV elements
  f32x2 unpacked[4];
  f32x2 scale_v;            // twice, if S::kConverts; here since SGPRs are scarcer
  uint32_t scale_v_halves;  // the same as fp16, twice
  f32x2 cap_rate;           // twice, if S::kCapped
  u32x4 transposed[S::kWidthV / 2];
  float greatest;  // |V| of all of them, if S::kConverts

  // ---- Uniform
  f32x2 scale;      // of the scores, log2 units, twice; of capped ones, see capped()
  f32x2 two_to_16;  // twice
  float limit;      // of a lane's sum over a unit: beyond it the reference is renewed
  uint32_t high_halves;
  u32x4 buffer_k, buffer_v;                  // of the block of keys to be loaded
  static constexpr uint32_t kRaw = 4 << 15;  // word 3 of a descriptor: 32-bit data
  uint64_t base_k, base_v, step_k, step_v;   // addresses of that block; bytes from one to the next
  int rows_left, rows;                       // of the tensor from that block on; of the block
  int bytes_k, bytes_v, stride_k, stride_v;  // of the block; of a row
  int gap_k, gap_v;                          // bytes from the end of a row to the next one
  uint32_t m0;

  // ---- Addresses
  uint32_t read_k[2], read_v, write_v;  // LDS, bytes
  uint32_t write_greatest;
  uint32_t load_k[S::kLoadsK], load_v[4];  // memory, bytes from the block's start

  // ---- Mask, for Masked units: this block's keys count from 4 * lane group
  int mask_from, mask_to;  // of the wave's first tile; a tile is 16 rows further down
  int mask_keys;

  template <int kTileQ, int kOp, int kUnit>
  __device__ __forceinline__ void score_op() {
    add_product<kTileQ, kOp>(score[kUnit][kOp % 2]);
  }
  template <int kTileQ, int kOp>
  __device__ __forceinline__ void add_product(f32x4& d) {
    constexpr int half = kOp % 2, step = kOp / 2, octet = step / 2;
    const Quad keys = half_of(k[half][octet], step % 2);
    if constexpr (kTileQ < S::kTilesQAcc) {
      constexpr int rows = S::template kAccQuery<kTileQ, octet> + 2 * (step % 2);
      if constexpr (kBf16 && step == 0) ordered::v_mfma_f32_16x16x16_bf16_acc_zero<rows>(d, keys);
      if constexpr (kBf16 && step != 0) ordered::v_mfma_f32_16x16x16_bf16_acc<rows>(d, keys);
      if constexpr (!kBf16 && step == 0) ordered::v_mfma_f32_16x16x16_f16_acc_zero<rows>(d, keys);
      if constexpr (!kBf16 && step != 0) ordered::v_mfma_f32_16x16x16_f16_acc<rows>(d, keys);
    } else {
      const Quad rows = half_of(q[kTileQ - S::kTilesQAcc][octet], step % 2);
      if constexpr (kBf16 && step == 0) ordered::v_mfma_f32_16x16x16_bf16_zero(d, keys, rows);
      if constexpr (kBf16 && step != 0) ordered::v_mfma_f32_16x16x16_bf16(d, keys, rows);
      if constexpr (!kBf16 && step == 0) ordered::v_mfma_f32_16x16x16_f16_zero(d, keys, rows);
      if constexpr (!kBf16 && step != 0) ordered::v_mfma_f32_16x16x16_f16(d, keys, rows);
    }
  }

  template <int kTileQ, int kOp, int kUnit>
  __device__ __forceinline__ void output_op() {
    constexpr int half = kOp / kTilesD, tile = kOp % kTilesD;
    constexpr int d = S::template kAccOutput<kTileQ, tile>;
    const Quad values = half_of(v[half][tile / 2], tile % 2);
    if constexpr (kHalves)
      ordered::v_mfma_f32_16x16x16_f16_into_acc<d>(values, p[kUnit][half]);
    else
      ordered::v_mfma_f32_16x16x16_bf16_into_acc<d>(values, p[kUnit][half]);
  }

  // ---- Pieces of the loads of K and V, also used by the prologue
  template <int kN_>
  __device__ __forceinline__ void load_v_part() {
    if constexpr (S::kWidthV == 4)
      ordered::buffer_load_dwordx2(staged[kN_], load_v[kN_], buffer_v);
    else
      ordered::buffer_load_dword(staged[kN_], load_v[kN_], buffer_v);
  }
  template <int kN_>
  __device__ __forceinline__ void address_k_part() {
    ordered::s_mov_m0(m0 + kN_ * kWaves * 256);
  }
  template <int kN_>
  __device__ __forceinline__ void load_k_part() {
    ordered::buffer_load_dword_lds(load_k[kN_], buffer_k);
  }
  // A step of value_steps().
  template <Op kOp, int n>
  __device__ __forceinline__ void value_step() {
    constexpr int r = n % 4, element = n / 2, pair = n % 2;
    if constexpr (kOp == Op::kUnpackLow)
      unpacked[r][0] = ordered::v_lshlrev_b32<16>(dword_of(staged[r], n / 4));
    if constexpr (kOp == Op::kUnpackHigh)
      unpacked[r][1] = ordered::v_and_b32(0xffff0000, dword_of(staged[r], n / 4));
    if constexpr (kOp == Op::kGreatest)
      greatest = ordered::v_max3_abs_f32(greatest, unpacked[r][0], unpacked[r][1]);
    if constexpr (kOp == Op::kScaleV)
      unpacked[r] = ordered::v_pk_mul_f32_half<0>(unpacked[r], scale_v);
    if constexpr (kOp == Op::kTranspose) {
      uint32_t to;
      if constexpr (S::kConverts)
        to = ordered::v_cvt_pkrtz_f16_f32(unpacked[2 * pair][element % 2],
                                          unpacked[2 * pair + 1][element % 2]);
      else
        to = ordered::v_perm_b32(dword_of(staged[2 * pair + 1], element / 2),
                                 dword_of(staged[2 * pair], element / 2),
                                 element % 2 ? kHighHalves : kLowHalves);
      transposed[element / 2][element % 2 * 2 + pair] = to;
    }
  }
  template <int kN_>
  __device__ __forceinline__ void write_v_part() {
    if constexpr (kN_ < S::kWidthV / 2)
      ordered::ds_write_b128<kN_ * 256>(write_v, transposed[kN_]);
    else
      ordered::ds_write_b32(write_greatest, greatest);
  }
  template <int kN_>
  __device__ __forceinline__ void read_k_part() {  // octet kN_ / 2, half kN_ % 2
    constexpr int octet = kN_ / 2, half = kN_ % 2;
    ordered::ds_read_b128<octet / 2 * 128 + half * kTile * S::kRowBytesK>(k[half][octet],
                                                                          read_k[octet % 2]);
  }
  template <int kN_>
  __device__ __forceinline__ void read_v_part() {  // of half kN_ / kReadsV
    constexpr int half = kN_ / S::kReadsV, octet = kN_ % S::kReadsV;
    ordered::ds_read_b128<octet * 256 + half * 4 * S::kGroupV>(v[half][octet], read_v);
  }

  struct Keys {
    int from, to;
    __device__ __forceinline__ bool has(int key) const { return key < to && key >= from; }
  };

  // ---- Vector steps of the unit of tile kTileQ
  struct Scratch {
    f32x2 x[4];  // pairs: scaled scores, then probabilities
    f32x2 h[4];
    uint32_t r[8];
    f32x2 quads[2], rounded_quads[2];
    float total;  // of the unit; the greatest, if S::kExact
    uint64_t outgrown;
    Keys seen;  // if Masked
  };
  template <int kTileQ, Op kOp, int n, bool kMasked>
  __device__ __forceinline__ void vector_step(Scratch& w) {
    constexpr int unit = kTileQ % 2, before = (kTileQ + kN - 1) % kN;
    if constexpr (kOp == Op::kSum && n == 0)
      sum[before] = ordered::v_pk_add_f32(sum[before], unit_sum);
    if constexpr (kOp == Op::kSum && n == 1)
      rounded_sum[before] = ordered::v_pk_add_f32(rounded_sum[before], unit_rounded_sum);
    if constexpr (kOp == Op::kSumHalves) sum_halves<before, n>();
    if constexpr (kOp == Op::kCapRate)
      w.x[n] = ordered::v_pk_mul_f32_half<0>(pair_of(score[unit][n / 2], n % 2), cap_rate);
    if constexpr (kOp == Op::kCapExp) w.x[n / 2][n % 2] = ordered::v_exp_f32(w.x[n / 2][n % 2]);
    if constexpr (kOp == Op::kCapAdd) w.x[n / 2][n % 2] = ordered::v_add_f32_1(w.x[n / 2][n % 2]);
    if constexpr (kOp == Op::kCapRcp) w.x[n / 2][n % 2] = ordered::v_rcp_f32(w.x[n / 2][n % 2]);
    if constexpr (kOp == Op::kScale) {
      if constexpr (!S::kCapped) w.x[n] = pair_of(score[unit][n / 2], n % 2);
      if constexpr (kMasked && n == 0) w.seen = seen<kTileQ>();
      w.x[n] = ordered::v_pk_fma_f32_half<kTileQ % 2>(w.x[n], scale, negative_ref[kTileQ / 2]);
      if constexpr (kMasked)
        for (int i = 0; i < 2; ++i)
          if (!w.seen.has(n / 2 * kTile + n % 2 * 2 + i)) w.x[n][i] = -kInf;
    }
    if constexpr (kOp == Op::kMax)
      w.total = ordered::v_max3_f32(w.x[n][0], w.x[n][1], n == 0 ? w.x[n][1] : w.total);
    if constexpr (kOp == Op::kExp) w.x[n / 2][n % 2] = ordered::v_exp_f32(w.x[n / 2][n % 2]);
    if constexpr (kOp == Op::kConvert) convert<n / 2, n % 2>(w);
    if constexpr (kOp == Op::kPack) p[unit][n / 2][n % 2] = pack<n>(w);
    if constexpr (kOp == Op::kAddPairs)
      w.quads[n] = ordered::v_pk_add_f32(w.x[2 * n], w.x[2 * n + 1]);
    if constexpr (kOp == Op::kAddRounded && n < 2)
      w.rounded_quads[n] = ordered::v_pk_add_f32(w.h[2 * n], w.h[2 * n + 1]);
    if constexpr (kOp == Op::kAddRounded && n == 2)
      unit_rounded_sum = ordered::v_pk_add_f32(w.rounded_quads[0], w.rounded_quads[1]);
    if constexpr (kOp == Op::kAddQuads) unit_sum = ordered::v_pk_add_f32(w.quads[0], w.quads[1]);
    if constexpr (kOp == Op::kAddHalves) w.total = ordered::v_add_f32(unit_sum[0], unit_sum[1]);
    if constexpr (kOp == Op::kCompare) w.outgrown = ordered::v_cmp_nlt_f32(w.total, limit);
    if constexpr (is_of_value(kOp)) value_step<kOp, n>();
  }
  template <int kTileQ, int n>
  __device__ __forceinline__ void sum_halves() {
    rounded_sum[kTileQ][0] = ordered::v_dot2_f32_f16(p[kTileQ % 2][n / 2][n % 2], scale_v_halves,
                                                     rounded_sum[kTileQ][0]);
  }
  // To a bf16. Nearest, ties to even: 65535 p rounds at the last place of a bf16, and
  // 65536 p - fl(65535 p) is exact. Ties away from zero are no cheaper, and make no difference to
  // sums of thousands: only O itself is rounded so.
  template <int kPair, int kPart>
  __device__ __forceinline__ void convert(Scratch& w) {
    if constexpr (kHalves)
      w.r[2 * kPair + kPart] = ordered::v_cvt_f16_f32(w.x[kPair][kPart]);
    else if constexpr (S::kRoundingP == Rounding::kTowardZero)
      w.h[kPair][kPart] = ordered::v_and_b32(0xffff0000, bits_of(w.x[kPair], kPart));
    else
      w.h[kPair] = ordered::v_pk_fms_f32(w.x[kPair], two_to_16, kPart ? w.h[kPair] : w.x[kPair]);
  }
  template <int kPair>
  __device__ __forceinline__ uint32_t pack(const Scratch& w) {
    if constexpr (!kHalves)
      return ordered::v_perm_b32(bits_of(w.h[kPair], 1), bits_of(w.h[kPair], 0), high_halves);
    if constexpr (S::kRoundingP == Rounding::kTowardZero)
      return ordered::v_cvt_pkrtz_f16_f32(w.x[kPair][0], w.x[kPair][1]);
    return ordered::v_pack_b32_f16(w.r[2 * kPair], w.r[2 * kPair + 1]);
  }
  // __builtin_bit_cast of a vector's element takes the first one; it has to be a value.
  static __device__ __forceinline__ uint32_t bits_of(f32x2 x, int i) {
    const float element = x[i];
    return bits(element);
  }

  // The keys that the lane's row of a tile sees. Settled, or the compiler keeps a constant for each
  // tile and key in a register, and all of them in the start of every workgroup.
  template <int kTileQ>
  __device__ __forceinline__ Keys seen() const {
    Keys keys{mask_from + kTileQ * kTile, least(mask_keys, mask_to + kTileQ * kTile)};
    ordered::settle(keys.from);
    ordered::settle(keys.to);
    return keys;
  }

  // ---- A unit: softmax of tile kTileQ, scores of the next, output of the one before
  template <int kTileQ, bool kMasked>
  __device__ __forceinline__ void unit() {
    constexpr int after = (kTileQ + 1) % kN, before = (kTileQ + kN - 1) % kN;
    constexpr int now = kTileQ % 2, other = 1 - now;
    constexpr auto plan = Plan::place(kTileQ);
    Scratch w;
    unroll<Plan::kWindows>([&]<int kW>() {
      constexpr int op = Plan::op(kW);
      if constexpr (Plan::is_score(kW)) {
        if constexpr (kTileQ == Plan::kWaitK && Plan::starts_octet_k(kW))
          ordered::s_waitcnt<ordered::kAnyVm, 2 * S::kReadsK - 2 - op / 2>();
        score_op<after, op, other>();
      } else {
        if constexpr (kTileQ == Plan::kWaitV && Plan::starts_octet_v(kW))
          ordered::s_waitcnt<ordered::kAnyVm, 2 * S::kReadsV - 1 - op / 2>();
        output_op<before, op, other>();
        if constexpr (kTileQ == Plan::kReadV && Plan::ends_octet_v(kW)) read_v_part<op / 2>();
      }
      if constexpr (kTileQ == Plan::kReadK && Plan::read_k(kW) >= 0)
        read_k_part<Plan::read_k(kW)>();
      if constexpr (kTileQ == Plan::kLoad) load_step<Plan::load_op(kW)>();
      if constexpr (kTileQ == Plan::kTakeV && kW == Plan::kWindowWaitStaged)
        ordered::s_waitcnt<S::kLoadsK, ordered::kAnyLgkm>();
      if constexpr (kTileQ == Plan::kWriteV) {
        static_assert(plan.has_values_before(Plan::kWindowWriteV));
        if constexpr (Plan::write_v(kW) >= 0) write_v_part<Plan::write_v(kW)>();
        prepare_step<Plan::prepare_op(kW)>();
        if constexpr (kW == Plan::kWindows - 2) {
          ordered::s_waitcnt<0, 0>();  // what this wave loads and writes is in LDS
          ordered::s_barrier();
        }
      }
      unroll<plan.steps.count>([&]<int kStep>() {
        if constexpr (plan.window[kStep] == kW)
          vector_step<kTileQ, plan.steps.step[kStep].op, plan.steps.step[kStep].n, kMasked>(w);
      });
    });
    reserve_acc();
    if (__builtin_expect(w.outgrown != 0, 0)) renew<kTileQ, kMasked>();
  }

  template <int kLoadOp>
  __device__ __forceinline__ void load_step() {
    if constexpr (kLoadOp >= 0 && kLoadOp < 4) load_v_part<kLoadOp>();
    if constexpr (Plan::kLoadsMeet) {
      if constexpr (kLoadOp > 4) load_k_part<kLoadOp - 5>();
      if constexpr (kLoadOp >= 4 && kLoadOp - 4 < S::kLoadsK) address_k_part<kLoadOp - 4>();
    } else {
      constexpr int part = (kLoadOp - 4) / 2;
      if constexpr (kLoadOp >= 4 && kLoadOp % 2 == 0) address_k_part<part>();
      if constexpr (kLoadOp >= 4 && kLoadOp % 2 == 1) load_k_part<part>();
    }
  }

  // Descriptors of the block of keys after the last one loaded: bytes behind its last row read as
  // 0.
  template <int kOp>
  __device__ __forceinline__ void prepare_step() {
    if constexpr (kOp == 0) ordered::s_add_u64(base_k, step_k);
    if constexpr (kOp == 1) ordered::s_add_u64(base_v, step_v);
    if constexpr (kOp == 2) rows_left = ordered::s_sub_i32(rows_left, kKeys);
    if constexpr (kOp == 3) rows = ordered::s_max_i32(rows_left, 0);
    if constexpr (kOp == 4) rows = ordered::s_min_i32(rows, kKeys);
    if constexpr (kOp == 5) bytes_k = ordered::s_mul_i32(rows, stride_k);
    if constexpr (kOp == 6) bytes_k = ordered::s_sub_i32(bytes_k, gap_k);
    if constexpr (kOp == 7) bytes_k = ordered::s_max_i32(bytes_k, 0);
    if constexpr (kOp == 8) bytes_v = ordered::s_mul_i32(rows, stride_v);
    if constexpr (kOp == 9) bytes_v = ordered::s_sub_i32(bytes_v, gap_v);
    if constexpr (kOp == 10) {
      bytes_v = ordered::s_max_i32(bytes_v, 0);
      describe();
    }
  }
  __device__ __forceinline__ void describe() {
    buffer_k = descriptor(base_k, bytes_k);
    buffer_v = descriptor(base_v, bytes_v);
  }
  static __device__ __forceinline__ u32x4 descriptor(uint64_t base, int bytes) {
    return u32x4{uint32_t(base), uint32_t(base >> 32), uint32_t(bytes), kRaw};
  }

  // Of four scores y = 1 / (1 + 2^(rate * score)). A cap c makes it c tanh(score / c) = c - 2 c y
  // in log2 units; what follows computes with -2 c y, which is less by c: that is added where a
  // reference leaves the kernel.
  __device__ __forceinline__ f32x4 capped(f32x4 x) const {
    f32x2 y[2];
    for (int i = 0; i < 2; ++i) y[i] = ordered::v_pk_mul_f32_half<0>(pair_of(x, i), cap_rate);
    for (int i = 0; i < 4; ++i) y[i / 2][i % 2] = ordered::v_exp_f32(y[i / 2][i % 2]);
    for (int i = 0; i < 4; ++i) y[i / 2][i % 2] = ordered::v_add_f32_1(y[i / 2][i % 2]);
    for (int i = 0; i < 4; ++i) y[i / 2][i % 2] = ordered::v_rcp_f32(y[i / 2][i % 2]);
    return __builtin_shufflevector(y[0], y[1], 0, 1, 2, 3);
  }

  // ---- The rare case: a row's reference is too small (or there is none yet, or a NaN). Exact
  // online softmax of the unit with the row's true maximum.
  template <int kTileQ, bool kMasked>
  __device__ __forceinline__ void renew() {
    constexpr int unit = kTileQ % 2;
    float x[8], greatest = -kInf;
    Keys keys{};
    if constexpr (kMasked) keys = seen<kTileQ>();
    for (int i = 0; i < 8; ++i) {
      x[i] = score[unit][i / 4][i % 4];
      if constexpr (S::kCapped) x[i] = ::v_rcp_f32(1 + ::v_exp_f32(x[i] * cap_rate[0]));
      x[i] *= scale[0];
      if (kMasked && !keys.has(i / 4 * kTile + i % 4)) x[i] = -kInf;
      greatest = v_max_f32(greatest, x[i]);
    }
    greatest = row_max(greatest) - S::kTop;
    const float old = -negative_ref[kTileQ / 2][kTileQ % 2], fresh = v_max_f32(old, greatest);
    const float ref = fresh == -kInf ? 0 : fresh;  // no key yet: probabilities 0, and come again
    negative_ref[kTileQ / 2][kTileQ % 2] = -fresh;
    const float rescale = ::v_exp_f32(old - ref);
    float probability[8];
    for (int i = 0; i < 8; ++i) probability[i] = ::v_exp_f32(x[i] - ref);
    unit_sum = f32x2{0, 0};
    for (int i = 0; i < 8; ++i) unit_sum[i % 2] += probability[i];
    unit_rounded_sum = f32x2{0, 0};
    for (int i = 0; i < 4; ++i) {
      const uint32_t pair =
          round_pair<S::kProduct, kNearest>(probability[2 * i], probability[2 * i + 1]);
      p[unit][i / 2][i % 2] = pair;
      unit_rounded_sum += f32x2{__builtin_bit_cast(float, pair << 16),
                                __builtin_bit_cast(float, pair & 0xffff0000)};
    }
    sum[kTileQ] *= rescale;
    rounded_sum[kTileQ] *= rescale;
    unroll<4 * kTilesD>([&]<int kRegister>() {
      constexpr int r = S::template kAccOutput<kTileQ, 0> + kRegister;
      v_accvgpr_write_b32<r>(bits(v_accvgpr_read_b32<r>() * rescale));
    });
  }

  // Over the four lanes of a row.
  static __device__ __forceinline__ float row_max(float x) {
    x = v_max_f32(x, from_lane(Lane::in_wave() ^ 16, x));
    return v_max_f32(x, from_lane(Lane::in_wave() ^ 32, x));
  }
  static __device__ __forceinline__ float from_lane(int lane, float x) {
    return __builtin_bit_cast(float,
                              __builtin_amdgcn_ds_bpermute(4 * lane, __builtin_bit_cast(int, x)));
  }

  // Two numbers to 16 bits.
  static constexpr Rounding kNearest = S::kRoundingP == Rounding::kTowardZero
                                           ? Rounding::kTowardZero
                                           : Rounding::kNearestEven;  // of probabilities
  template <Element kTo, Rounding kHow>
  static __device__ __forceinline__ uint32_t round_pair(float lo, float hi) {
    if constexpr (kTo == Element::kF16) {
      if constexpr (kHow == Rounding::kTowardZero)
        return __builtin_bit_cast(uint32_t, __builtin_amdgcn_cvt_pkrtz(lo, hi));
      const _Float16 a = _Float16(lo), b = _Float16(hi);
      return uint32_t(__builtin_bit_cast(uint16_t, a)) | uint32_t(__builtin_bit_cast(uint16_t, b))
                                                             << 16;
    }
    uint32_t a = bits(lo), b = bits(hi);
    if constexpr (kHow == Rounding::kNearestEven) {
      a += 0x7fff + (a >> 16 & 1);
      b += 0x7fff + (b >> 16 & 1);
    }
    if constexpr (kHow == Rounding::kNearestAway) {
      a += 0x8000;
      b += 0x8000;
    }
    return ::v_perm_b32<kHighHalves>(b, a);
  }
};
