// The loop over tiles of rows in the order of attn_bwd/step_order.h. dV, dK and K by columns have
// accumulation registers by number.
#pragma once
#include "attn_bwd/backward.h"
#include "attn_bwd/step_lds_direct.h"
#include "isa/ordered_gradients.h"
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
  static constexpr bool kDirect = S::kDirect, kLater = S::kLater;
  static constexpr int kSteps = S::steps(S::kHeadDim), kStepsV = S::steps(S::kHeadDimV);
  static constexpr int kDqTiles = S::kDqTiles, kPairs = S::kTiles / 2, kD = S::kHeadDim;
  static_assert(S::kHeadDim == S::kHeadDimV);
  static_assert(Order::is_valid(Order::kItems));

  // Accumulation registers.
  static constexpr int kDv = 0, kDk = kDv + 4 * kT * kStepsV, kK = kDk + 4 * kT * kSteps;
  static_assert(kK + 4 * kPairs * kDqTiles <= 256);
  static constexpr int of_dv(int t, int n) { return kDv + 4 * (t * kStepsV + n); }
  static constexpr int of_dk(int t, int n) { return kDk + 4 * (t * kSteps + n); }
  static constexpr int of_k(int p, int m) { return kK + 4 * (p * kDqTiles + m); }

  using Packed = uint32_t __attribute__((ext_vector_type(2 * kH)));

  // ---- State
  Walk patches, row_sums, dq_rows;  // two tiles ahead, one ahead, one behind
  bf16x8 ring[Order::kRing];
  f32x4 s[kT][kH], dp[kT][kH], dq[kH][kDqTiles], lse[kH], minus_delta[kH];
  Packed p_of[kT], ds_of[kT];
  u32x2 half_up[2];
  uint64_t half_a_unit;  // of bfloat16, of two numbers
  StepLds<S> in_lds;
  // Of a lane's rows of dQ; or of the row that is added next, which moves: by a row, between the
  // halves of a tile, and back to the first one. (Bytes that an instruction has in a scalar
  // register may count in the range check or not.)
  static constexpr int kDqOffsets = Order::kMovesDq ? 1 : 4 * kH;
  static constexpr int kDqMoves[] = {1, 5, -11};  // rows
  uint32_t sums_offset, dq_offset[kDqTiles][kDqOffsets], dq_move[3];
  float scale, scale_log2;
  int tile, masked;  // below 0 if a mask cuts it
  Turn awaited;      // of dQ of the tile before
  Passed passed;     // and of the one before that
  uint32_t polled = 0;
  int full_first, full_last;  // tiles all of whose rows see all keys
  StageMoves moves;

  __device__ __forceinline__ OrderedLoop(const AttnBwdArgs& args, int id, Local<char>* lds)
      : Base(args, id, lds) {
    work.keep(lds + S::kWork);
  }

  // ---- Pieces
  template <int kPart, bool kSplit = (Order::kSplit > 1)>
  static __device__ __forceinline__ auto part(bf16x8 x) {
    if constexpr (kSplit)
      return half_of(x, kPart);
    else
      return x;
  }
  // d = a * b^T + c
  template <class Operand>
  static __device__ __forceinline__ void mma_from(f32x4& d, Operand a, Operand b, f32x4 c) {
    if constexpr (kOf == Element::kBf16)
      ordered::v_mfma_f32_bf16_from(d, a, b, c);
    else
      ordered::v_mfma_f32_f16_from(d, a, b, c);
  }
  template <int w>
  __device__ __forceinline__ void matrix() {
    constexpr typename Order::Part kPart = Order::part_of_window(w);
    constexpr Product kProduct = kPart.product;
    constexpr int place = (w - kPart.window) / kPart.uses, use = (w - kPart.window) % kPart.uses;
    const bf16x8& operand = ring[(kPart.place + place) % Order::kRing];
    if constexpr (kProduct == Product::kS || kProduct == Product::kDp) {
      constexpr bool of_s = kProduct == Product::kS;
      constexpr int n = place / kH, h = place % kH, half = use / kT, t = use % kT;
      const auto a = part<half>(operand), b = part<half>(of_s ? k[t][n] : v[t][n]);
      auto& to = of_s ? s[t][h] : dp[t][h];
      if constexpr (n == 0 && half == 0 && of_s)
        ordered::mma_zero<kOf>(to, a, b);
      else if constexpr (n == 0 && half == 0)
        mma_from(to, a, b, minus_delta[h]);
      else
        ordered::mma<kOf>(to, a, b);
    } else if constexpr (kProduct == Product::kDq) {
      constexpr int p = place / kH, h = place % kH, half = use / kDqTiles, m = use % kDqTiles;
      const auto a = part<half>(operand);
      if constexpr (p == 0 && half == 0)
        ordered::mma_acc_zero<kOf, of_k(p, m) + 2 * half>(dq[h][m], a);
      else
        ordered::mma_acc<kOf, of_k(p, m) + 2 * half>(dq[h][m], a);
    } else {
      constexpr int half = use / kT, t = use % kT, n = place * kParts + half;
      constexpr int sum = kProduct == Product::kDv ? of_dv(t, n) : of_dk(t, n);
      const auto a = kProduct == Product::kDv ? p_of[t] : ds_of[t];
      const auto b = part<half, (kH == 1)>(operand);
      // Lanes are columns, which a lane has neighbours of; or keys, a lane's columns neighbours.
      if constexpr (kDirect)
        ordered::mma_into_acc<kOf, S::kTile, sum>(b, a);
      else
        ordered::mma_into_acc<kOf, S::kTile, sum>(a, b);
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
    const int first_row = tile * S::kRows, rows = work.rows - first_row;
    unroll<kT * kH>([&]<int n>() {
      constexpr int t = n / kH, h = n % kH;
      const int key = work.first_key + S::tile_of(wave, t) * S::kTile + c, row = 4 * g + 16 * h;
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
  __device__ __forceinline__ void round_one(const f32x4& of) {
    auto& x = half_up[kWhich];
    const float one = of[e];
    if constexpr (kOf == Element::kBf16) {
      const f32x2 pair = {of[e - 1], one};
      x = __builtin_bit_cast(
          u32x2, ordered::v_lshl_add_u64(__builtin_bit_cast(uint64_t, pair), half_a_unit));
    } else if constexpr (e % 2 == 0)
      x[0] = ordered::v_fma_mixlo_f16(one);
    else
      x[0] = ordered::v_fma_mixhi_f16(x[0], one);
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
      in_lds.template read<n>(ring[n % Order::kRing]);
    } else if constexpr (kDo == Do::kReadRest) {
      in_lds.template read_rest<n>(ring[n % Order::kRing]);
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
      in_lds.loaded();
    } else if constexpr (kDo == Do::kWriteRows || kDo == Do::kPermute || kDo == Do::kWriteColumns ||
                         kDo == Do::kWriteDs) {
      in_lds.template run<kDo, n>(ds_of);
    } else if constexpr (kDo == Do::kLoad) {
      in_lds.template load<n>(patches.buffer);
    } else if constexpr (kDo == Do::kLoadSums) {
      auto& to = (n < kH ? lse : minus_delta)[n % kH];
      ordered::buffer_load_dwordx4_f32<(n < kH ? 0 : 4 * S::kRows) + n % kH * 64>(to, sums_offset,
                                                                                  row_sums.buffer);
    } else if constexpr (kDo == Do::kWaitSums) {
      ordered::s_waitcnt<Order::behind_sums(n), ordered::kAnyLgkm>();
      if constexpr (n == 0)
        for (auto& one : lse) ordered::settle(one);
      if constexpr (!kLater || n == 1)
        for (auto& one : minus_delta) ordered::settle(one);
    } else if constexpr (kDo == Do::kScale) {
      const float x = s[t][h][e], y = lse[h][e];
      s[t][h][e] = ordered::v_fma_f32_minus(x, scale_log2, y);
    } else if constexpr (kDo == Do::kExp) {
      const float x = s[t][h][e];
      s[t][h][e] = ordered::v_exp_f32(x);
    } else if constexpr (kDo == Do::kMultiply) {
      const float x = dp[t][h][e], y = s[t][h][e];
      dp[t][h][e] = ordered::v_mul_f32_vector(x, y);
    } else if constexpr (kDo == Do::kMaskP || kDo == Do::kMaskDs) {
      // Compared again: what came of it the first time would have to be kept.
      if constexpr (kDo == Do::kMaskDs) ordered::settle_uniform(masked);
      if (__builtin_expect(masked < 0, false)) mask(kDo == Do::kMaskP ? s : dp);
    } else if constexpr (kDo == Do::kRoundP) {
      round_one<0, e>(s[t][h]);
    } else if constexpr (kDo == Do::kRoundDs) {
      round_one<1, e>(dp[t][h]);
    } else if constexpr (kDo == Do::kPackP || kDo == Do::kPackDs) {
      constexpr bool of_p = kDo == Do::kPackP;
      constexpr int tile = n / (2 * kH), half = n / 2 % kH, pair = n % 2;
      const auto& from = of_p ? s[tile][half] : dp[tile][half];
      const float lo = from[2 * pair], hi = from[2 * pair + 1];
      (of_p ? p_of : ds_of)[tile][2 * half + pair] = packed<of_p ? 0 : 1>(lo, hi);
    } else if constexpr (kDo == Do::kScaleDq) {
      const float x = dq[h % kH][t % kDqTiles][e];
      dq[h % kH][t % kDqTiles][e] = ordered::v_mul_f32_vector(x, scale);
      if constexpr (Order::kMovesDq)
        ordered::v_add_u32_to(dq_offset[t][0], dq_move[e > 0 ? 0 : h > 0 ? 1 : 2]);
    } else if constexpr (kDo == Do::kAddDq) {
      const float x = dq[h % kH][t % kDqTiles][e];
      ordered::buffer_atomic_add_f32<0>(dq_offset[t][Order::kMovesDq ? 0 : 4 * h + e],
                                        dq_rows.buffer, x);
    } else if constexpr (kDo == Do::kWaitWrites) {
      ordered::s_waitcnt<ordered::kAnyVm, Order::behind_writes()>();
    } else if constexpr (kDo == Do::kBarrier) {
      ordered::s_barrier();  // the next tile and dS are in LDS: attn_bwd/step_order.h
    } else if constexpr (kDo == Do::kTurn) {
      if constexpr (n == 0)
        back<kRowsOf>(patches);
      else if constexpr (n == 1)
        back<kSumsOf>(row_sums);
      else if constexpr (n == 2)
        back_dq();
      else if constexpr (n == 3)
        turn();
      else
        see();
    } else if constexpr (kDo == Do::kMoveStage) {
      in_lds.template move<n>(moves);
    } else {
      static_assert(n < 0);
    }
  }
  // By how much they move in the next step.
  __device__ __forceinline__ void turn() {
    moves = {moves.then, moves.last, moves.by, -moves.ds};
    in_lds.turn(moves);
    --tile;
    ordered::settle_uniform(tile);
    ordered::settle_uniform(moves.ds);
  }
  __device__ __forceinline__ void see() {
    masked = (tile - full_first) | (full_last - tile);  // as scalar instructions have it
    ordered::settle_uniform(masked);
  }

  template <int w>
  __device__ __forceinline__ void window() {
    matrix<w>();
    // Nothing else may have their registers right behind the matrix instructions that read them.
    if constexpr (w == Order::kSumsRead + 3)
      for (auto& one : minus_delta) ordered::settle(one);
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
      const bool of_q = StepLds<S>::has_q(wave);
      base = of_q ? again.q : again.dout;
      row_stride = (of_q ? again.q_stride_seq : again.dout_stride_seq) * 2;
      head_stride = (of_q ? again.q_stride_head : again.dout_stride_head) * 2;
      batch_stride = (of_q ? again.q_stride_batch : again.dout_stride_batch) * 2;
      row_bytes = (of_q ? again.head_dim : again.head_dim_v) * 2;
    }
    const int64_t row = walk.tile * S::kRows + (kOf == kSumsOf ? 0 : work.q_base);
    const bool is_there = walk.head < group && (!kLater || walk.tile < work.end);
    const int rows = kOf == kSumsOf ? S::kRows : min_of(work.rows - walk.tile * S::kRows, S::kRows);
    walk.tile_bytes = S::kRows * int(row_stride);
    walk.full_bytes = (S::kRows - 1) * int(row_stride) + row_bytes;
    walk.buffer =
        uniform_descriptor(base + work.batch * batch_stride + head * head_stride + row * row_stride,
                           is_there ? (rows - 1) * int(row_stride) + row_bytes : 0);
    if (!is_there) walk.full_bytes = 0;
  }
  // dQ, and whose turn it is there.
  __device__ __forceinline__ void back_dq() {
    back<kDqOf>(dq_rows);
    if constexpr (S::kTurns) {
      passed.keep(awaited);
      // The next one is of this tile, or where dQ is a step later of the one before: at the
      // beginning none.
      const int next = !kLater ? tile : tile + 1 < work.end ? tile + 1 : work.first;
      if (!kLater || awaited.counter != 0) awaited.set(work, awaited.counter - 16, next);
    }
  }
  // So many tiles on.
  __device__ __forceinline__ BackwardWork<S> work_again() const {
    return BackwardWork<S>::kept(lds + S::kWork);
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
      if (!kLater || walk.tile < work.end)
        awaited.set(of, Base::counter(again, of, {walk.head, walk.tile}), walk.tile);
  }
  template <Tensor kOf>
  static __device__ __forceinline__ void back(Walk& walk) {
    ordered::move_buffer_back<kOf>(walk.buffer, walk.tile_bytes, walk.full_bytes);
  }

  // ---- Before the loop
  __device__ __forceinline__ void begin() {
    scale = args.softmax_scale;
    park(scale);  // scalar registers are few
    full_first = work.full_first();
    full_last = full_first + work.full_count() - 1;
    scale_log2 = args.softmax_scale_log2;
    patches.head = row_sums.head = dq_rows.head = 0;
    patches.tile = row_sums.tile = work.end - 1;
    locate<kRowsOf>(patches, arguments(), work);
    locate<kSumsOf>(row_sums, arguments(), work);
    // The tile before the first one, or the one before that: none.
    dq_rows = {raw_descriptor(0, 0), 0, 0, 0, work.end + kLater};
    const int dq_row = 4 * int(args.dq_stride_seq);
    unroll<kDqTiles>([&]<int m>() {
      const int of = kD / S::kWaves * wave + S::kTile * m + c;
      for (int i = 0; i < kDqOffsets; ++i)
        dq_offset[m][i] = (row_of_dq(i) - (Order::kMovesDq ? kDqMoves[2] : 0)) * dq_row +
                          (of < args.head_dim ? 4 * of : int(kOutside));
    });
    if constexpr (Order::kMovesDq)
      for (int i = 0; i < 3; ++i) {
        dq_move[i] = kDqMoves[i] * dq_row;
        ordered::settle_uniform(dq_move[i]);
      }
    sums_offset = 16 * g;
    half_a_unit = 0x0000800000008000;
    ordered::settle_uniform(half_a_unit);
    // Three stages.
    moves = {S::kStageBytes, S::kStageBytes, -2 * S::kStageBytes, S::kDsBytes};
    in_lds.begin(uint32_t(lds), wave, lane, uint32_t(patches.tile_bytes) / S::kRows,
                 StepLds<S>::has_q(wave) ? args.head_dim : args.head_dim_v);
    in_lds.start(moves);
  }
  // Of dQ, the ith of a lane.
  __device__ __forceinline__ int row_of_dq(int i) const {
    if constexpr (kDirect)
      return StepLds<S>::first_row_of_dq() + i / 4 * 8 + i % 4;
    else
      return 4 * g + i;
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
    // Of the tile before the first one dS is 0: in LDS, or in registers and Q as well, so that
    // their product is 0.
    const int nth = wave * kWaveLanes + lane;
    constexpr int kZeroes = kLater ? (S::kStages - 1) * S::kStageBytes : S::kDs + S::kDsBytes;
    constexpr int kZeroBytes = S::kLaterSums ? S::kStageBytes : kLater ? S::kDo : S::kDsBytes;
    for (int at = nth * 8; at < kZeroBytes; at += S::kLanes * 8)
      ordered::ds_write_b64<0>((uint32_t)lds + kZeroes + at, u32x2{});
    if constexpr (kLater)
      for (auto& one : ds_of) one = {};
    if constexpr (S::kLaterSums)
      for (auto& tile : dp)
        for (auto& one : tile) one = {};
    if constexpr (S::kLaterSums)
      for (auto& one : p_of) one = {};
    run_all<Do::kLoad, Order::kLoads>();
    go<kRowsOf>(patches, 1, work_again());
    run_all<Do::kLoadSums, 2 * kH>();
    go<kSumsOf>(row_sums, 1, work_again());
    if constexpr (!kDirect) {
      ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      in_lds.loaded();
      run_all<Do::kWriteRows, Order::kRowWrites>();
      run_all<Do::kPermute, Order::kPermutes>();
      run_all<Do::kWriteColumns, 2>();
    }
    in_lds.next_tile(moves.by);
    run_all<Do::kLoad, Order::kLoads>();
    if constexpr (kDirect) in_lds.next_tile(moves.then);
    go<kRowsOf>(patches, 1, work_again());
    // Waits of a step count what the one before has left under way: here nothing.
    ordered::s_waitcnt<0, 0>();
    ordered::s_barrier();  // the first tile is in LDS
    unroll<Order::kRing>([&]<int n>() { read<n>(); });
    ordered::s_waitcnt<0, 0>();
  }
  // What is left of dQ: of the tile before the last one to memory, where that is a step later, and
  // of the last one.
  __device__ __forceinline__ void epilogue() {
    ordered::s_waitcnt<0, 0>();
    if constexpr (S::kTurns) passed.pass();
    if constexpr (kLater) {
      add_to_dq();
      go<kDqOf>(dq_rows, 1, work_again());
      if constexpr (S::kLaterSums)
        unroll<Order::kElements / 2>([&]<int n>() {
          if constexpr (!Order::kRoundsPairs) run<Do::kRoundDs, 2 * n>();
          run<Do::kRoundDs, 2 * n + 1>();
          run<Do::kPackDs, n>();
        });
      run_all<Do::kWriteDs, Order::kDsWrites>();
      product<Product::kDk>();
      if constexpr (S::kLaterSums) product<Product::kDv>();
      ordered::s_barrier();  // dS of the last tile is in LDS
    }
    unroll<Order::kMoveColumns>([&]<int n>() { in_lds.template move<n>(moves); });
    product<Product::kDq>();
    add_to_dq();
  }
  template <int n>
  __device__ __forceinline__ void read() {
    if constexpr (Order::has_read(n)) run<Do::kRead, n>();
    if constexpr (Order::is_in_two(n)) run<Do::kReadRest, n>();
  }
  // One after the other, of what is in LDS.
  template <Product kProduct>
  __device__ __forceinline__ void product() {
    constexpr typename Order::Part kPart = Order::part(kProduct);
    for (auto& one : ring) ordered::settle(one);
    unroll<kPart.reads>([&]<int n>() {
      constexpr int place = kPart.place + n, slot = place % Order::kRing;
      read<place>();
      ordered::s_waitcnt<ordered::kAnyVm, 0>();
      ordered::settle(ring[slot]);
      unroll<kPart.uses>([&]<int i>() { matrix<kPart.window + n * kPart.uses + i>(); });
    });
  }
  __device__ __forceinline__ void add_to_dq() {
    ordered::s_nop<10>();
    ordered::s_nop<10>();
    if constexpr (S::kTurns) {
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
      const uint64_t polled_of = awaited.counter;
      go<kDqOf>(dq_rows, straight, work_again());
      if (left == 0) break;
      if constexpr (S::kTurns) {  // which has few scalar registers left
        const bool again = kLater && awaited.counter != polled_of;
        if (again) awaited.load(polled);
        go<kRowsOf>(patches, straight, work_again());
        go<kSumsOf>(row_sums, straight, work_again());
        if (again) ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      } else {
        const BackwardWork<S> of = work_again();
        go<kRowsOf>(patches, straight, of);
        go<kSumsOf>(row_sums, straight, of);
      }
      if (tile < work.first) tile = work.end - 1;
      see();
      // Until one of them begins another head, or dQ the last tile, which may be a part of one.
      straight = min_of(
          min_of(min_of(tile, dq_rows.tile), min_of(patches.tile, row_sums.tile)) - work.first + 1,
          left);
      if (kLater && dq_rows.tile >= work.end) straight = 1;
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
      s_barrier();  // the work is in LDS
    }
    ordered::s_nop<10>();
    ordered::s_nop<10>();
    Base::store_both(
        arguments(), work_again(),
        [&]<int t, int n, int i>() { return v_accvgpr_read_b32<of_dk(t, n) + i>(); },
        [&]<int t, int n, int i>() { return v_accvgpr_read_b32<of_dv(t, n) + i>(); });
  }
};
