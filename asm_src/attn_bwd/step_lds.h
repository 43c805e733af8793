// What a step of the ordered loop has in LDS: tiles of rows of Q and dO in three stages, and dS in
// two. Here rows are loaded to registers and stored twice, by rows and by columns, and dS is stored
// by rows, pieces of which lanes exchange. attn_bwd/step_lds_direct.h: loads that go straight to
// LDS, reads that transpose.
#pragma once
#include "attn_bwd/stage.h"
#include "attn_bwd/step_order.h"
#include "isa/ordered_lanes.h"

// By how much addresses move in a step: to the next stage, to that of a step later, of two steps
// later, and to the other dS.
struct StageMoves {
  int by, then, last, ds;
};

template <class S, bool kDirect = S::kDirect>
struct StepLds {
  using Order = StepOrder<S>;
  static constexpr int kT = S::kWaveTiles, kD = S::kHeadDim, kSteps = S::steps(S::kHeadDim);
  static constexpr int kPerBlock = kD / kWaveLanes;  // waves that have a patch of Q, or of dO
  static_assert(S::kHalves == 1 && S::kPatchWaves <= S::kWaves);

  u32x2 patch[4];
  u32x2 of_column[4], ds_rows[2];
  uint32_t exchange[4];
  uint32_t read_rows[2], read_columns, read_ds[2], write_rows[4], write_columns, write_ds[kT];
  uint32_t offset[4];
  uint32_t which_row;
  uint64_t lower_pairs, upper_pairs;  // of each four lanes
  bool idle;                          // no patch is this wave's
  int write_by;                       // to the stage that is written next, one ahead of reads

  static __device__ __forceinline__ bool has_q(int wave) { return wave < kPerBlock; }

  __device__ __forceinline__ void begin(uint32_t base, int wave, int lane, int row_bytes,
                                        int columns) {
    const int c = matrix_row(), g = lane_group();
    lower_pairs = 0x3333333333333333;
    upper_pairs = 0xcccccccccccccccc;
    if constexpr (!S::kTurns) {  // which has no scalar registers for them
      ordered::settle_uniform(lower_pairs);
      ordered::settle_uniform(upper_pairs);
    }
    which_row = lane & 1 ? 0x03020706 : 0x05040100;
    const bool of_q = has_q(wave);
    const int nth = (wave % kPerBlock) * kWaveLanes + lane, column = nth / 4 * 4, patch_g = nth % 4;
    const bool has_patch = column < columns && wave < S::kPatchWaves;
    for (int i = 0; i < 4; ++i)
      offset[i] = has_patch ? (4 * patch_g + i) * row_bytes + 2 * column : kOutside;
    for (int i = 0; i < 2; ++i) {
      const int chunk = (g ^ c % 4) + 4 * (i ^ c / 4 % 2);
      read_rows[i] = base + c * 2 * kD + chunk * 16;
      read_ds[i] = base + S::kDs + c * 2 * S::kKeys + chunk * 16;
    }
    read_columns = base + (S::kStages - 1) * S::kStageBytes + c * 64 + (g ^ c / 2 % 4) * 16;
    const uint32_t to = base + (wave >= S::kPatchWaves ? S::kIdle : of_q ? S::kQ : S::kDo);
    for (int i = 0; i < 4; ++i) {
      const int r = 4 * patch_g + i;
      write_rows[i] = to + r * 2 * kD + (column / 8 ^ r % 8) * 16 + column % 8 * 2;
    }
    const int of = column / kSteps, first_step = column % kSteps;
    write_columns =
        to + S::kQColumns - S::kQ + of * 64 + (patch_g ^ of / 2 % 4) * 16 + first_step / 2 * 1024;
    const int r = 4 * g + c % 4;
    unroll<kT>([&]<int t>() {
      const int tile = wave * kT + t;
      write_ds[t] = base + S::kDs + S::kDsBytes + r * 2 * S::kKeys +
                    ((tile / 2 * 4 + c / 4) ^ r % 8) * 16 + tile % 2 * 8;
    });
    idle = wave >= S::kPatchWaves;
  }
  // The next step's moves.
  __device__ __forceinline__ void turn(const StageMoves& moves) {
    write_by = idle ? 0 : moves.then;
  }
  __device__ __forceinline__ void start(const StageMoves& moves) { turn(moves); }
  // Before the loop: the tile behind the first one, `by` bytes on.
  __device__ __forceinline__ void next_tile(int by) {
    if (idle) return;
    for (auto& one : write_rows) one += by;
    write_columns += by;
  }

  // ---- Operands
  template <int n>
  __device__ __forceinline__ void read(bf16x8& to) const {
    constexpr typename Order::Part kPart = Order::part_of_place(n);
    constexpr int place = n - kPart.place;
    if constexpr (Order::is_row(n))
      ordered::ds_read_b128<(kPart.product == Product::kS ? S::kQ : S::kDo) + place / 2 * 128>(
          to, read_rows[place % 2]);
    else if constexpr (kPart.product == Product::kDq)
      ordered::ds_read_b128<place / 2 * 128>(to, read_ds[place % 2]);
    else
      ordered::ds_read_b128<(kPart.product == Product::kDv ? S::kDoColumns : S::kQColumns) +
                            place * 1024>(to, read_columns);
  }
  template <int n>
  void read_rest(bf16x8& to) const = delete;

  // ---- A tile of rows
  template <int n>
  __device__ __forceinline__ void load(u32x4 buffer) {
    ordered::buffer_load_dwordx2(patch[n], offset[n], buffer);
  }
  __device__ __forceinline__ void loaded() {
    for (auto& row : patch) ordered::settle(row);
  }
  template <Do kDo, int n, class Packed>
  __device__ __forceinline__ void run(const Packed (&ds_of)[kT]) {
    if constexpr (kDo == Do::kWriteRows) {
      ordered::ds_write_b64<0>(write_rows[n], patch[n]);
    } else if constexpr (kDo == Do::kPermute) {
      constexpr int column = n / 2, pair = n % 2;
      constexpr uint32_t kWhich = column % 2 ? kHighHalfOfBoth : kLowHalfOfBoth;
      of_column[column][pair] =
          ordered::v_perm_b32(patch[2 * pair + 1][column / 2], patch[2 * pair][column / 2], kWhich);
    } else if constexpr (kDo == Do::kWriteColumns) {
      const u32x2 lo = of_column[2 * n], hi = of_column[2 * n + 1];
      ordered::ds_write_b128<n * 1024>(write_columns, u32x4{lo[0], lo[1], hi[0], hi[1]});
    } else if constexpr (kDo == Do::kExchange) {
      constexpr int tile = n / Order::kOfExchange, op = n % Order::kOfExchange;
      constexpr int kOther = kQuad<1, 0, 3, 2>, kOtherPair = kQuad<2, 3, 0, 1>;
      auto& x = exchange;
      const uint32_t own[] = {ds_of[tile][0], ds_of[tile][1]};
      if constexpr (op < 2)
        x[op] = ordered::v_mov_b32_dpp<kOther>(own[op]);
      else if constexpr (op < 4)
        x[op] = ordered::v_perm_b32_lane(x[op - 2], own[op - 2], which_row);
      else if constexpr (op == 4)
        ds_rows[tile % 2][0] = ordered::v_cndmask_b32_dpp<kOtherPair>(x[3], x[2], lower_pairs);
      else
        ds_rows[tile % 2][1] = ordered::v_cndmask_b32_dpp<kOtherPair>(x[2], x[3], upper_pairs);
    } else {
      static_assert(kDo == Do::kWriteDs);
      ordered::ds_write_b64<0>(write_ds[n], ds_rows[n % 2]);
    }
  }
  // To the next stage, and to the other one of the two of dS: addresses of rows that are read when
  // all of this step have been, the others before this step uses them.
  template <int n>
  __device__ __forceinline__ void move(const StageMoves& moves) {
    if constexpr (n < 2)
      ordered::v_add_u32_to(read_ds[n], moves.ds);
    else if constexpr (n == 2)
      ordered::v_add_u32_to(read_columns, moves.last);
    else if constexpr (n < Order::kMoveWrites + 4)
      ordered::v_add_u32_to(write_rows[n - Order::kMoveWrites], write_by);
    else if constexpr (n < Order::kMoveWriteDs)
      ordered::v_add_u32_to(write_columns, write_by);
    else if constexpr (n < Order::kMoveRows)
      ordered::v_add_u32_to(write_ds[n - Order::kMoveWriteDs], -moves.ds);
    else
      ordered::v_add_u32_to(read_rows[n - Order::kMoveRows], moves.by);
  }
};
