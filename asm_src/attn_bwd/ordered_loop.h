// The loop over tiles of rows in the order of attn_bwd/step_order.h. dV, dK and K by columns have
// accumulation registers by number.
#pragma once
#include "attn_bwd/backward.h"
#include "attn_bwd/step_order.h"
#include "isa/ordered_lanes.h"
#include "tile/accumulators.h"

// A tensor by tiles of rows: the last tile first, of one head after the other.
struct Walk {
  u32x4 buffer;                     // of the tile, which ends with its rows
  uint32_t tile_bytes, full_bytes;  // from a tile to the next; up to the end of a full one
  int head, tile;
};

template <class S>
struct OrderedLoop : Backward<S> {
  using Base = Backward<S>;
  using Order = StepOrder<S>;
  using Base::arguments, Base::args, Base::work, Base::wave, Base::lane, Base::c, Base::g,
      Base::group, Base::k, Base::v, Base::lds, Base::k_columns;
  static constexpr Element kOf = S::kElement;
  static constexpr int kH = S::kHalves, kT = S::kWaveTiles, kParts = 2 / kH;
  static constexpr int kSteps = S::steps(S::kHeadDim), kStepsV = S::steps(S::kHeadDimV);
  static constexpr int kDqTiles = S::kDqTiles, kPairs = S::kTiles / 2, kD = S::kHeadDim;
  static_assert(S::kHeadDim == S::kHeadDimV && S::kPatchWaves <= S::kWaves);

  static_assert(Order::is_valid(Order::kItems));

  // Accumulation registers.
  static constexpr int kDv = 0, kDk = kDv + 4 * kT * kStepsV, kK = kDk + 4 * kT * kSteps;
  static_assert(kK + 4 * kPairs * kDqTiles <= 256);
  static constexpr int of_dv(int t, int n) { return kDv + 4 * (t * kStepsV + n); }
  static constexpr int of_dk(int t, int n) { return kDk + 4 * (t * kSteps + n); }
  static constexpr int of_k(int p, int m) { return kK + 4 * (p * kDqTiles + m); }

  using Packed = uint32_t __attribute__((ext_vector_type(2 * kH)));

  // ---- State
  int kept_id;                      // in a vector register: what follows from it takes scalar ones
  Walk patches, row_sums, dq_rows;  // two tiles ahead, one ahead, one behind
  bf16x8 ring[Order::kRing];
  f32x4 s[kT][kH], dp[kT][kH], dq[kH][kDqTiles], lse[kH], delta[kH];
  Packed p_of[kT], ds_of[kT];
  u32x2 patch[kH][4];
  u32x2 of_column[4][kH], ds_rows[2];
  uint32_t half_up[2][2], exchange[4];
  uint32_t read_rows[2], read_columns, read_ds[2], write_rows[4], write_columns, write_ds[kT];
  uint32_t patch_offset[4 * kH], sums_offset, dq_offset[kDqTiles][4 * kH];
  uint32_t which_row;
  uint64_t lower_pairs, upper_pairs;  // of each four lanes
  float scale, scale_log2;
  int tile, masked;
  Turn awaited;   // of dQ of the tile before
  Passed passed;  // and of the one before that
  uint32_t polled;
  int full_first, full_count;  // tiles all of whose rows see all keys
  int first_row;
  int read_by, read_then, read_last, write_by, read_ds_by;
  bool idle;  // no patch is this wave's

  __device__ __forceinline__ OrderedLoop(const AttnBwdArgs& args, int id, Local<char>* lds)
      : Base(args, id, lds), kept_id(id) {
    park(kept_id);
  }

  // ---- Pieces
  template <int kPart, bool kSplit = (Order::kSplit > 1)>
  static __device__ __forceinline__ auto part(bf16x8 x) {
    if constexpr (kSplit)
      return half_of(x, kPart);
    else
      return x;
  }
  template <int w>
  __device__ __forceinline__ void matrix() {
    if constexpr (w < Order::kDq) {
      constexpr bool of_s = w < Order::kDp;
      constexpr int idx = of_s ? w : w - Order::kDp;
      constexpr int place = idx / Order::kUsesOfRow, rest = idx % Order::kUsesOfRow;
      constexpr int n = place / kH, h = place % kH, half = rest / kT, t = rest % kT;
      const auto a = part<half>(ring[(of_s ? place : Order::kReadDo + place) % Order::kRing]);
      const auto b = part<half>(of_s ? k[t][n] : v[t][n]);
      auto& to = of_s ? s[t][h] : dp[t][h];
      if constexpr (n == 0 && half == 0)
        ordered::mma_zero<kOf>(to, a, b);
      else
        ordered::mma<kOf>(to, a, b);
    } else if constexpr (w < Order::kDv) {
      constexpr int idx = w - Order::kDq;
      constexpr int place = idx / Order::kUsesOfDs, rest = idx % Order::kUsesOfDs;
      constexpr int p = place / kH, h = place % kH, half = rest / kDqTiles, m = rest % kDqTiles;
      const auto a = part<half>(ring[(Order::kReadDs + place) % Order::kRing]);
      if constexpr (p == 0 && half == 0)
        ordered::mma_acc_zero<kOf, of_k(p, m) + 2 * half>(dq[h][m], a);
      else
        ordered::mma_acc<kOf, of_k(p, m) + 2 * half>(dq[h][m], a);
    } else {
      constexpr bool of_dv_now = w < Order::kDk;
      constexpr int idx = w - (of_dv_now ? Order::kDv : Order::kDk);
      constexpr int place = idx / Order::kUsesOfColumns, rest = idx % Order::kUsesOfColumns;
      constexpr int half = rest / kT, t = rest % kT, n = place * kParts + half;
      constexpr int first = of_dv_now ? Order::kReadDoColumns : Order::kReadQColumns;
      const auto b = part<half, (kH == 1)>(ring[(first + place) % Order::kRing]);
      if constexpr (of_dv_now)
        ordered::mma_into_acc<kOf, S::kTile, of_dv(t, n)>(p_of[t], b);
      else
        ordered::mma_into_acc<kOf, S::kTile, of_dk(t, n)>(ds_of[t], b);
    }
  }
  template <int n>
  __device__ __forceinline__ void read() {
    auto& to = ring[n % Order::kRing];
    if constexpr (n < Order::kReadDs) {
      constexpr bool of_q = n < Order::kReadDo;
      constexpr int place = of_q ? n : n - Order::kReadDo, chunk = place / kH, h = place % kH;
      ordered::ds_read_b128<(of_q ? S::kQ : S::kDo) + h * 32 * kD + chunk / 2 * 128>(
          to, read_rows[chunk % 2]);
    } else if constexpr (n < Order::kReadDs + Order::kReadsDs) {
      constexpr int place = n - Order::kReadDs, p = place / kH, h = place % kH;
      ordered::ds_read_b128<h * 32 * S::kKeys + p / 2 * 128>(to, read_ds[p % 2]);
    } else {
      constexpr bool of_do = n < Order::kReadQColumns;
      constexpr int chunk = n - (of_do ? Order::kReadDoColumns : Order::kReadQColumns);
      ordered::ds_read_b128<(of_do ? S::kDoColumns : S::kQColumns) + chunk * 1024>(to,
                                                                                   read_columns);
    }
  }
  // An element in these lanes, 0 in others.
  static __device__ __forceinline__ void keep(f32x4& of, int e, uint64_t lanes) {
    float x = of[e];
    ordered::v_cndmask_b32_0_or(x, lanes);
    of[e] = x;
  }
  // 0 where a row does not see a key. All rows of a tile but a sequence's last one are there.
  __device__ __forceinline__ void mask(f32x4 (&of)[kT][kH]) const {
    const uint32_t span = uint32_t(work.most_distance) - uint32_t(work.least_distance);
    const int rows = work.rows - first_row;
    unroll<kT * kH>([&]<int n>() {
      constexpr int t = n / kH, h = n % kH;
      const int key = work.first_key + (wave * kT + t) * S::kTile + c, row = 4 * g + 16 * h;
      // From the first key that the row sees; beyond all of them where there is no key.
      const int distance = key < work.keys ? key - first_row - row - work.least_distance : -1;
      unroll<4>([&]<int e>() {
        keep(of[t][h], e, __builtin_amdgcn_ballot_w64(uint32_t(distance - e) <= span));
      });
    });
    if (__builtin_expect(rows >= S::kRows, true)) return;
    unroll<kH>([&]<int h>() {
      unroll<4>([&]<int e>() {
        const uint64_t there = __builtin_amdgcn_ballot_w64(4 * g + 16 * h + e < rows);
        for (int t = 0; t < kT; ++t) keep(of[t][h], e, there);
      });
    });
  }
  // Two to 16 bits, in two steps.
  template <int kWhich, int e>
  __device__ __forceinline__ void round_one(float x) {
    if constexpr (kOf == Element::kBf16)
      half_up[kWhich][e] = ordered::v_add_u32<0x8000>(bits(x));
    else if constexpr (e == 0)
      half_up[kWhich][0] = ordered::v_fma_mixlo_f16(x);
    else
      half_up[kWhich][0] = ordered::v_fma_mixhi_f16(half_up[kWhich][0], x);
  }
  template <int kWhich>
  __device__ __forceinline__ uint32_t packed(float lo, float hi) {
    if constexpr (Here::kConvertsPairs)
      return convert_pair<kOf>(lo, hi);
    else if constexpr (kOf == Element::kBf16)
      return ordered::v_perm_b32(half_up[kWhich][1], half_up[kWhich][0], kHighHalfOfBoth);
    else
      return half_up[kWhich][0];
  }

  template <Do kDo, int n>
  __device__ __forceinline__ void run() {
    constexpr int t = n / (4 * kH), h = n / 4 % kH, e = n % 4;  // of an element
    if constexpr (kDo == Do::kRead) {
      read<n>();
    } else if constexpr (kDo == Do::kWaitAdds) {
      ordered::s_waitcnt<Order::behind_adds(), ordered::kAnyLgkm>();
    } else if constexpr (kDo == Do::kPass) {
      passed.pass();
    } else if constexpr (kDo == Do::kPoll) {
      awaited.load(polled);
    } else if constexpr (kDo == Do::kAwait) {
      ordered::s_waitcnt<Order::behind_poll(), ordered::kAnyLgkm>();
      awaited.wait(polled);
    } else if constexpr (kDo == Do::kWaitRead) {
      ordered::s_waitcnt<ordered::kAnyVm, Order::behind_read(n)>();
      ordered::settle(ring[n % Order::kRing]);
    } else if constexpr (kDo == Do::kWaitLoads) {
      ordered::s_waitcnt<Order::behind_loads(), ordered::kAnyLgkm>();
      for (auto& half : patch)
        for (auto& row : half) ordered::settle(row);
    } else if constexpr (kDo == Do::kWriteRows) {
      ordered::ds_write_b64<S::kTile * 2 * kD*(n / 4)>(write_rows[n % 4], patch[n / 4][n % 4]);
    } else if constexpr (kDo == Do::kPermute) {
      constexpr int column = n % 8 / 2, pair = n % 2, half = n / 8;
      constexpr uint32_t kWhich = column % 2 ? kHighHalfOfBoth : kLowHalfOfBoth;
      of_column[column][half][pair] = ordered::v_perm_b32(
          patch[half][2 * pair + 1][column / 2], patch[half][2 * pair][column / 2], kWhich);
    } else if constexpr (kDo == Do::kWriteColumns) {
      const u32x2 lo = of_column[kH == 1 ? 2 * n : n][0];
      const u32x2 hi = kH == 1 ? of_column[(2 * n + 1) % 4][0] : of_column[n % 4][kH - 1];
      ordered::ds_write_b128<n * 1024>(write_columns, u32x4{lo[0], lo[1], hi[0], hi[1]});
    } else if constexpr (kDo == Do::kLoad) {
      ordered::buffer_load_dwordx2(patch[n / 4][n % 4], patch_offset[n], patches.buffer);
    } else if constexpr (kDo == Do::kLoadSums) {
      auto& to = (n < kH ? lse : delta)[n % kH];
      ordered::buffer_load_dwordx4_f32<(n < kH ? 0 : 4 * S::kRows) + n % kH * 64>(to, sums_offset,
                                                                                  row_sums.buffer);
    } else if constexpr (kDo == Do::kWaitSums) {
      ordered::s_waitcnt<Order::behind_sums(), ordered::kAnyLgkm>();
      for (auto& one : lse) ordered::settle(one);
      for (auto& one : delta) ordered::settle(one);
    } else if constexpr (kDo == Do::kScale) {
      const float x = s[t][h][e], y = lse[h][e];
      s[t][h][e] = ordered::v_fma_f32_minus(x, scale_log2, y);
    } else if constexpr (kDo == Do::kExp) {
      const float x = s[t][h][e];
      s[t][h][e] = ordered::v_exp_f32(x);
    } else if constexpr (kDo == Do::kSubtract) {
      const float x = dp[t][h][e], y = delta[h][e];
      dp[t][h][e] = ordered::v_sub_f32(x, y);
    } else if constexpr (kDo == Do::kMultiply) {
      const float x = dp[t][h][e], y = s[t][h][e];
      dp[t][h][e] = ordered::v_mul_f32_vector(x, y);
    } else if constexpr (kDo == Do::kMaskP || kDo == Do::kMaskDs) {
      if (__builtin_expect(masked != 0, false)) mask(kDo == Do::kMaskP ? s : dp);
    } else if constexpr (kDo == Do::kRoundP) {
      const float x = s[t][h][e];
      round_one<0, n % 2>(x);
    } else if constexpr (kDo == Do::kRoundDs) {
      const float x = dp[t][h][e];
      round_one<1, n % 2>(x);
    } else if constexpr (kDo == Do::kPackP || kDo == Do::kPackDs) {
      constexpr bool of_p = kDo == Do::kPackP;
      constexpr int tile = n / (2 * kH), half = n / 2 % kH, pair = n % 2;
      const auto& from = of_p ? s[tile][half] : dp[tile][half];
      const float lo = from[2 * pair], hi = from[2 * pair + 1];
      (of_p ? p_of : ds_of)[tile][2 * half + pair] = packed<of_p ? 0 : 1>(lo, hi);
    } else if constexpr (kDo == Do::kExchange) {
      constexpr int nth = n / Order::kOfExchange, op = n % Order::kOfExchange;
      constexpr int tile = nth / kH, half = nth % kH;
      constexpr int kOther = kQuad<1, 0, 3, 2>, kOtherPair = kQuad<2, 3, 0, 1>;
      auto& x = exchange;
      const uint32_t own[] = {ds_of[tile][2 * half], ds_of[tile][2 * half + 1]};
      if constexpr (op < 2)
        x[op] = ordered::v_mov_b32_dpp<kOther>(own[op]);
      else if constexpr (op < 4)
        x[op] = ordered::v_perm_b32_lane(x[op - 2], own[op - 2], which_row);
      else if constexpr (op == 4)
        ds_rows[nth % 2][0] = ordered::v_cndmask_b32_dpp<kOtherPair>(x[3], x[2], lower_pairs);
      else
        ds_rows[nth % 2][1] = ordered::v_cndmask_b32_dpp<kOtherPair>(x[2], x[3], upper_pairs);
    } else if constexpr (kDo == Do::kWriteDs) {
      constexpr int tile = n / kH, half = n % kH;
      ordered::ds_write_b64<half * 32 * S::kKeys>(write_ds[tile], ds_rows[n % 2]);
    } else if constexpr (kDo == Do::kScaleDq) {
      const float x = dq[h % kH][t % kDqTiles][e];
      dq[h % kH][t % kDqTiles][e] = ordered::v_mul_f32_vector(x, scale);
    } else if constexpr (kDo == Do::kAddDq) {
      const float x = dq[h % kH][t % kDqTiles][e];
      ordered::buffer_atomic_add_f32<0>(dq_offset[t][4 * h + e], dq_rows.buffer, x);
    } else if constexpr (kDo == Do::kWaitWrites) {
      ordered::s_waitcnt<ordered::kAnyVm, Order::behind_writes()>();
    } else if constexpr (kDo == Do::kBarrier) {
      ordered::s_barrier();
    } else if constexpr (kDo == Do::kTurn) {
      if constexpr (n == 0)
        back(patches);
      else if constexpr (n == 1)
        back(row_sums);
      else if constexpr (n == 2)
        back_dq();
      else if constexpr (n == 3)
        turn();
      else
        see();
    } else if constexpr (kDo == Do::kMoveStage) {
      move<n>();
    } else {
      static_assert(n < 0);
    }
  }
  // To the next stage, and to the other one of the two of dS: addresses of rows that are read when
  // all of this step have been, the others before this step uses them.
  template <int n>
  __device__ __forceinline__ void move() {
    if constexpr (n < 2)
      ordered::v_add_u32_to(read_ds[n], read_ds_by);
    else if constexpr (n == 2)
      ordered::v_add_u32_to(read_columns, read_last);
    else if constexpr (n < Order::kMoveWrites + 4)
      ordered::v_add_u32_to(write_rows[n - Order::kMoveWrites], write_by);
    else if constexpr (n < Order::kMoveWriteDs)
      ordered::v_add_u32_to(write_columns, write_by);
    else if constexpr (n < Order::kMoveRows)
      ordered::v_add_u32_to(write_ds[n - Order::kMoveWriteDs], -read_ds_by);
    else
      ordered::v_add_u32_to(read_rows[n - Order::kMoveRows], read_by);
  }
  // By how much they move in the next step.
  __device__ __forceinline__ void turn() {
    const int third = read_by;
    read_by = read_then;
    read_then = read_last;
    read_last = third;
    write_by = idle ? 0 : read_then;
    read_ds_by = -read_ds_by;
    --tile;
    ordered::settle_uniform(tile);
    ordered::settle_uniform(read_ds_by);
  }
  __device__ __forceinline__ void see() {
    const int nth = tile - full_first;
    masked = (nth | (full_count - 1 - nth)) >> 31;  // as scalar instructions have it
    ordered::settle_uniform(masked);
    first_row = tile * S::kRows;
  }

  template <int w>
  __device__ __forceinline__ void window() {
    matrix<w>();
    constexpr int from = Order::first_of_window(w), to = Order::first_of_window(w + 1);
    unroll_from<from, to>([&]<int i>() {
      constexpr Item item = Order::kItems.at[i];
      run<item.what, item.n>();
    });
  }
  __device__ __forceinline__ void step() {
    reserve_acc();
    unroll<Order::kWindows>([&]<int w>() { window<w>(); });
    reserve_acc();
  }

  // ---- Tiles of rows
  enum Tensor { kRowsOf, kSumsOf, kDqOf };
  template <Tensor kOf>
  __device__ __forceinline__ void locate(Walk& walk, Constant<AttnBwdArgs>& again,
                                         const BackwardWork<S>& work) const {
    const int group = work.heads_q, head = work.head_q + walk.head;
    uint64_t base;
    int64_t batch_stride, head_stride, row_stride;
    int row_bytes;
    if constexpr (kOf == kSumsOf) {
      base = again.rows;
      row_stride = row_bytes = 8;
      head_stride = int64_t(again.row_tiles) * 8 * S::kRows;
      batch_stride = head_stride * again.num_heads_q;
    } else if constexpr (kOf == kDqOf) {
      base = again.dq;
      row_stride = again.dq_stride_seq * 4;
      head_stride = again.dq_stride_head * 4;
      batch_stride = again.dq_stride_batch * 4;
      row_bytes = again.head_dim * 4;
    } else {
      const bool of_q = wave < kD / kWaveLanes;
      base = of_q ? again.q : again.dout;
      row_stride = (of_q ? again.q_stride_seq : again.dout_stride_seq) * 2;
      head_stride = (of_q ? again.q_stride_head : again.dout_stride_head) * 2;
      batch_stride = (of_q ? again.q_stride_batch : again.dout_stride_batch) * 2;
      row_bytes = (of_q ? again.head_dim : again.head_dim_v) * 2;
    }
    const int64_t row = walk.tile * S::kRows + (kOf == kSumsOf ? 0 : work.q_base);
    const int rows = kOf == kSumsOf ? S::kRows : min_of(work.rows - walk.tile * S::kRows, S::kRows);
    walk.tile_bytes = S::kRows * int(row_stride);
    walk.full_bytes = (S::kRows - 1) * int(row_stride) + row_bytes;
    walk.buffer =
        uniform_descriptor(base + work.batch * batch_stride + head * head_stride + row * row_stride,
                           walk.head < group ? (rows - 1) * int(row_stride) + row_bytes : 0);
    if (walk.head >= group) walk.full_bytes = 0;
  }
  // dQ, and whose turn it is there.
  __device__ __forceinline__ void back_dq() {
    back(dq_rows);
    if constexpr (S::kTurns) {
      passed.keep(awaited);
      awaited.set(work, awaited.counter - 16, tile);
    }
  }
  // So many tiles on.
  __device__ __forceinline__ BackwardWork<S> work_again() const {
    return BackwardWork<S>(arguments(), uniform(kept_id));
  }
  template <Tensor kOf>
  __device__ __forceinline__ void go(Walk& walk, int tiles, const BackwardWork<S>& of) {
    auto& again = arguments();
    walk.tile -= tiles;
    while (walk.tile < work.first) {
      walk.tile += work.end - work.first;
      ++walk.head;
    }
    locate<kOf>(walk, again, of);
    if constexpr (S::kTurns && kOf == kDqOf)
      awaited.set(of, Base::counter(again, of, {walk.head, walk.tile}), walk.tile);
  }
  static __device__ __forceinline__ void back(Walk& walk) {
    const uint64_t at = (uint64_t(walk.buffer[1]) << 32 | walk.buffer[0]) - walk.tile_bytes;
    walk.buffer = raw_descriptor(at, walk.full_bytes);
    ordered::settle_uniform(walk.buffer);
  }

  // ---- Before the loop
  __device__ __forceinline__ void begin() {
    scale = args.softmax_scale;
    park(scale);  // scalar registers are few
    full_first = work.full_first();
    full_count = work.full_count();
    scale_log2 = args.softmax_scale_log2;
    lower_pairs = 0x3333333333333333;
    upper_pairs = 0xcccccccccccccccc;
    if constexpr (!S::kTurns) {  // which has no scalar registers for them
      ordered::settle_uniform(lower_pairs);
      ordered::settle_uniform(upper_pairs);
    }
    which_row = lane & 1 ? 0x03020706 : 0x05040100;
    patches.head = row_sums.head = dq_rows.head = 0;
    patches.tile = row_sums.tile = work.end - 1;
    locate<kRowsOf>(patches, arguments(), work);
    locate<kSumsOf>(row_sums, arguments(), work);
    dq_rows = {raw_descriptor(0, 0), 0, 0, 0, work.end};  // the tile before the first: none
    const bool of_q = wave < kD / kWaveLanes;
    const int columns = of_q ? args.head_dim : args.head_dim_v;
    const int nth = (wave % (kD / kWaveLanes)) * kWaveLanes + lane, column = nth / 4 * 4;
    const int patch_row = uint32_t(patches.tile_bytes) / S::kRows;
    const bool has_patch = column < columns && wave < S::kPatchWaves;
    const int dq_row = 4 * int(args.dq_stride_seq);
    for (int i = 0; i < 4 * kH; ++i) {
      const int row = S::kTile * (i / 4) + i % 4;
      patch_offset[i] = has_patch ? (4 * (nth % 4) + row) * patch_row + 2 * column : kOutside;
      unroll<kDqTiles>([&]<int m>() {
        const int of = kD / S::kWaves * wave + S::kTile * m + c;
        dq_offset[m][i] = of < args.head_dim ? (4 * g + row) * dq_row + 4 * of : kOutside;
      });
    }
    sums_offset = 16 * g;
    // LDS
    const auto base = (uint32_t)lds;
    for (int i = 0; i < 2; ++i) {
      const int chunk = (g ^ c % 4) + 4 * (i ^ c / 4 % 2);
      read_rows[i] = base + c * 2 * kD + chunk * 16;
      read_ds[i] = base + S::kDs + c * 2 * S::kKeys + chunk * 16;
    }
    read_columns = base + (S::kStages - 1) * S::kStageBytes + c * 64 + (g ^ c / 2 % 4) * 16;
    const int patch_g = nth % 4;
    const uint32_t to = base + (wave >= S::kPatchWaves ? S::kIdle : of_q ? S::kQ : S::kDo);
    for (int i = 0; i < 4; ++i) {
      const int r = 4 * patch_g + i;
      write_rows[i] = to + r * 2 * kD + (column / 8 ^ r % 8) * 16 + column % 8 * 2;
    }
    const int of = column / kSteps, first_step = column % kSteps;
    write_columns = to + S::kQColumns - S::kQ + of * 64 + (patch_g ^ of / 2 % 4) * 16 +
                    first_step * kH / 2 * 1024;
    const int r = 4 * g + c % 4;
    unroll<kT>([&]<int t>() {
      const int tile = wave * kT + t;
      write_ds[t] = base + S::kDs + S::kDsBytes + r * 2 * S::kKeys +
                    ((tile / 2 * 4 + c / 4) ^ r % 8) * 16 + tile % 2 * 8;
    });
    // Three stages: writes are one ahead of reads.
    read_by = read_then = S::kStageBytes;
    read_last = -2 * S::kStageBytes;
    idle = wave >= S::kPatchWaves;
    write_by = idle ? 0 : read_then;
    read_ds_by = S::kDsBytes;
  }
  template <Do kDo, int kCount>
  __device__ __forceinline__ void run_all() {
    unroll<kCount>([&]<int n>() { run<kDo, n>(); });
  }
  // The first tile is in LDS, of dS zeroes, and the next tile on its way.
  __device__ __forceinline__ void prologue() {
    begin();
    Base::load_keys();
    reserve_acc();
    // They have come: the compiler would wait for them in the loop again and again.
    unroll<kT>([&]<int t>() {
      for (auto& one : k[t]) ordered::settle(one);
      for (auto& one : v[t]) ordered::settle(one);
    });
    unroll<kPairs>([&]<int p>() {
      unroll<kDqTiles>([&]<int m>() {
        unroll<4>([&]<int i>() { v_accvgpr_write_b32<of_k(p, m) + i>(k_columns[p][m][i]); });
      });
    });
    unroll<kK>([&]<int r>() { v_accvgpr_zero_b32<r>(); });
    const int nth = wave * kWaveLanes + lane;
    for (int at = nth * 8; at < S::kDsBytes; at += S::kLanes * 8)
      ordered::ds_write_b64<0>((uint32_t)lds + S::kDs + S::kDsBytes + at, u32x2{});
    run_all<Do::kLoad, Order::kLoads>();
    go<kRowsOf>(patches, 1, work_again());
    run_all<Do::kLoadSums, 2 * kH>();
    go<kSumsOf>(row_sums, 1, work_again());
    ordered::s_waitcnt<0, ordered::kAnyLgkm>();
    for (auto& half : patch)
      for (auto& row : half) ordered::settle(row);
    run_all<Do::kWriteRows, Order::kLoads>();
    run_all<Do::kPermute, 8 * kH>();
    run_all<Do::kWriteColumns, 2 * kH>();
    for (auto& one : write_rows) one += write_by;
    write_columns += write_by;
    run_all<Do::kLoad, Order::kLoads>();
    go<kRowsOf>(patches, 1, work_again());
    // Waits of a step count what the one before has left under way: here nothing.
    ordered::s_waitcnt<0, 0>();
    ordered::s_barrier();
    run_all<Do::kRead, Order::kRing>();
    ordered::s_waitcnt<0, 0>();
  }
  // dQ of the last tile.
  __device__ __forceinline__ void epilogue() {
    ordered::s_waitcnt<0, 0>();
    move<0>();
    move<1>();
    for (auto& one : ring) ordered::settle(one);
    unroll<Order::kReadsDs>([&]<int n>() {
      read<Order::kReadDs + n>();
      ordered::s_waitcnt<ordered::kAnyVm, 0>();
      ordered::settle(ring[(Order::kReadDs + n) % Order::kRing]);
      unroll<Order::kUsesOfDs>([&]<int i>() { matrix<Order::kDq + n * Order::kUsesOfDs + i>(); });
    });
    ordered::s_nop<10>();
    ordered::s_nop<10>();
    if constexpr (S::kTurns) {
      passed.pass();
      awaited.load(polled);
      ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      awaited.wait(polled);
    }
    unroll<4 * kH * kDqTiles>([&]<int n>() {
      run<Do::kScaleDq, n>();
      run<Do::kAddDq, n>();
    });
    if constexpr (S::kTurns) {
      ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      awaited.pass();
    }
  }
  __device__ __forceinline__ void main_loop() {
    prologue();
    tile = work.end - 1;
    see();
    int left = group * (work.end - work.first), straight = 1;
    for (;;) {
      int steps = straight;
      do {
        step();
      } while (--steps > 0);
      left -= straight;
      go<kDqOf>(dq_rows, straight, work_again());
      if (left == 0) break;
      if constexpr (S::kTurns) {  // which has few scalar registers left
        go<kRowsOf>(patches, straight, work_again());
        go<kSumsOf>(row_sums, straight, work_again());
      } else {
        const BackwardWork<S> of = work_again();
        go<kRowsOf>(patches, straight, of);
        go<kSumsOf>(row_sums, straight, of);
      }
      if (tile < work.first) tile = work.end - 1;
      see();
      // Until one of them begins another head.
      straight = min_of(
          min_of(min_of(tile, dq_rows.tile), min_of(patches.tile, row_sums.tile)) - work.first + 1,
          left);
    }
    epilogue();
  }
  __device__ __forceinline__ void operator()() {
    if (work.first_key >= work.keys) return;
    reserve_acc();
    if (work.first < work.end) {
      main_loop();
    } else {
      unroll<kK>([&]<int r>() { v_accvgpr_zero_b32<r>(); });
    }
    ordered::s_nop<10>();
    ordered::s_nop<10>();
    Base::store_both(
        arguments(), work_again(),
        [&]<int t, int n, int i>() { return v_accvgpr_read_b32<of_dk(t, n) + i>(); },
        [&]<int t, int n, int i>() { return v_accvgpr_read_b32<of_dv(t, n) + i>(); });
  }
};
