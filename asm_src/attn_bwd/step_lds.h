// What a step of the ordered loop has in LDS: tiles of rows of Q and dO in three stages, and dS in
// two. Here rows are loaded to registers and stored twice, by rows and by columns, and dS is stored
// by rows, two bytes at a time. attn_bwd/step_lds_direct.h: loads that go straight to LDS, reads
// that transpose.
#pragma once
#include "attn_bwd/stage.h"
#include "attn_bwd/step_order.h"
#include "isa/ordered_gradients.h"
#include "isa/ordered_lanes.h"

// By how much addresses move in a step: to the next stage, to that of a step later, of two steps
// later, and to the other dS.
struct StageMoves {
  int by, then, last, ds;
};

// By rows there are 32 columns, of 16 rows 64 bytes each, and then the next ones; by columns 16
// bytes are four rows of two columns, 64 all rows. All reads and writes of a kind follow from one
// or two addresses.
template <class S, bool kDirect = S::kDirect>
struct StepLds {
  using Order = StepOrder<S>;
  static constexpr int kT = S::kWaveTiles, kD = S::kHeadDim, kSteps = S::steps(S::kHeadDim);
  // Of a lane so many rows by four columns; half of the waves have Q, the others dO.
  static constexpr int kTensorWaves = S::kWaves / 2;
  static constexpr int kPatchRows = Order::kLoads, kRowPairs = kPatchRows / 2;
  static constexpr int kColumnBytes = kSteps / 2 * 512;  // of 8 lanes' columns
  static_assert(S::kHalves == 1);

  u32x2 patch[kPatchRows];
  uint32_t of_column[4][kRowPairs];
  uint32_t read_rows, read_columns, read_ds, write_rows[kRowPairs], write_columns, write_ds;
  uint32_t offset[kPatchRows];
  int write_by;  // to the stage that is written next, one ahead of reads

  static __device__ __forceinline__ bool has_q(int wave) { return wave < kTensorWaves; }

  __device__ __forceinline__ void begin(uint32_t base, int wave, int lane, int row_bytes,
                                        int columns) {
    const int c = matrix_row(), g = lane_group();
    constexpr int kGroups = S::kRows / kPatchRows;
    const int nth = wave % kTensorWaves * kWaveLanes + lane, column = nth / kGroups * 4;
    const int row = nth % kGroups * kPatchRows;
    for (int i = 0; i < kPatchRows; ++i)
      offset[i] = column < columns ? (row + i) * row_bytes + 2 * column : kOutside;
    read_rows = base + c * 64 + (g ^ c / 2 % 4) * 16;
    read_ds = base + S::kDs + c * S::kDsPitch + c / 4 * S::kDsGap + g * 16;
    read_columns = base + (S::kStages - 1) * S::kStageBytes + c / 8 * kColumnBytes + c % 8 * 64 +
                   (g ^ c / 2 % 4) * 16;
    const uint32_t to = base + (has_q(wave) ? S::kQ : S::kDo);
    for (int i = 0; i < kRowPairs; ++i) {
      const int r = row + 2 * i;
      write_rows[i] =
          to + column / 32 * 1024 + r * 64 + (column % 32 / 8 ^ r / 2 % 4) * 16 + column % 8 * 2;
    }
    const int of = column / kSteps, first_step = column % kSteps;
    write_columns = to + S::kQColumns - S::kQ + of / 8 * kColumnBytes + of % 8 * 64 +
                    first_step / 2 * 512 + (row / 4 ^ of / 2 % 4) * 16 + row % 4 * 2;
    write_ds = base + S::kDs + S::kDsBytes + 4 * g * S::kDsPitch + g * S::kDsGap + wave / 2 * 64 +
               c / 4 * 16 + wave % 2 * 8 + c % 4 * 2;
    static_assert(S::tile_of(2, 0) == 2 && S::tile_of(0, 1) == 4);
  }
  // The next step's moves.
  __device__ __forceinline__ void turn(const StageMoves& moves) { write_by = moves.then; }
  __device__ __forceinline__ void start(const StageMoves& moves) { turn(moves); }
  // Before the loop: the tile behind the first one, `by` bytes on.
  __device__ __forceinline__ void next_tile(int by) {
    for (auto& one : write_rows) one += by;
    write_columns += by;
  }

  // ---- Operands
  template <int n>
  __device__ __forceinline__ void read(bf16x8& to) const {
    constexpr typename Order::Part kPart = Order::part_of_place(n);
    constexpr int place = n - kPart.place;
    if constexpr (Order::is_row(n))
      ordered::ds_read_b128<(kPart.product == Product::kS ? S::kQ : S::kDo) + place * 1024>(
          to, read_rows);
    else if constexpr (kPart.product == Product::kDq)
      ordered::ds_read_b128<place * 64>(to, read_ds);
    else
      ordered::ds_read_b128<(kPart.product == Product::kDv ? S::kDoColumns : S::kQColumns) +
                            place * 512>(to, read_columns);
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
      ordered::ds_write2_b64<8>(write_rows[n], patch[2 * n], patch[2 * n + 1]);
    } else if constexpr (kDo == Do::kPermute) {
      constexpr int column = n / kRowPairs, pair = n % kRowPairs;
      constexpr uint32_t kWhich = column % 2 ? kHighHalfOfBoth : kLowHalfOfBoth;
      of_column[column][pair] =
          ordered::v_perm_b32(patch[2 * pair + 1][column / 2], patch[2 * pair][column / 2], kWhich);
    } else if constexpr (kDo == Do::kWriteColumns) {
      const auto &lo = of_column[2 * n], &hi = of_column[2 * n + 1];
      if constexpr (kRowPairs == 2)
        ordered::ds_write_b128<n * 512>(write_columns, u32x4{lo[0], lo[1], hi[0], hi[1]});
      else
        ordered::ds_write2_b32<n * 128, n * 128 + 2>(write_columns, lo[0], hi[0]);
    } else {
      static_assert(kDo == Do::kWriteDs);
      constexpr int tile = n / 4, row = n % 4;
      constexpr int kTo = row * S::kDsPitch + tile * 128;
      const uint32_t of = ds_of[tile][row / 2];
      ordered::ds_write_b16<kTo, row % 2>(write_ds, of);
    }
  }
  // To the next stage, and to the other one of the two of dS: addresses of rows that are read when
  // all of this step have been, the others before this step uses them.
  template <int n>
  __device__ __forceinline__ void move(const StageMoves& moves) {
    if constexpr (n < Order::kMoveColumns)
      ordered::v_add_u32_to(read_ds, moves.ds);
    else if constexpr (n < Order::kMoveWrites)
      ordered::v_add_u32_to(read_columns, moves.last);
    else if constexpr (n < Order::kMoveWrites + kRowPairs)
      ordered::v_add_u32_to(write_rows[n - Order::kMoveWrites], write_by);
    else if constexpr (n < Order::kMoveWriteDs)
      ordered::v_add_u32_to(write_columns, write_by);
    else if constexpr (n < Order::kMoveRows)
      ordered::v_add_u32_to(write_ds, -moves.ds);
    else
      ordered::v_add_u32_to(read_rows, moves.by);
  }
};
