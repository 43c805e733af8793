// attn_bwd/step_lds.h where loads go straight to LDS and reads of LDS transpose: a tile of rows is
// there once, and dS by keys, as the lanes have it.
#pragma once
#include "attn_bwd/step_lds.h"

// A block of a load, 1 KB, has its rows by 16 columns: of those, groups of four rows follow each
// other, 32 bytes a row. Its reads collide in no bank: rows, a lane 16 bytes of one; columns, four
// lanes 32 bytes of a row, of which they get a column of four rows each.
//
// dS has 64 bytes a key: of each four rows, and of those 16 further on, 16 bytes. Of rows 8 m to
// 8 m + 7, and of those 16 further on, there is half of that, which is a tile of dQ.
template <class S>
struct StepLds<S, true> {
  using Order = StepOrder<S>;
  static constexpr int kT = S::kWaveTiles, kGroups = S::kBlockGroups;
  static constexpr int kColumns = 128 * kGroups;  // bytes from 16 columns to the next ones
  static constexpr int kHalf = S::kTile / S::kBlockRows * S::kPitch;  // to rows 16 further on
  static_assert(S::kHalves == 2);

  uint32_t read_rows, read_columns, read_ds[2], write_ds;
  uint32_t offset[Order::kLoads];
  uint32_t to;  // where the wave's loads go

  static __device__ __forceinline__ bool has_q(int wave) { return wave < S::kWaves / 2; }
  static constexpr uint32_t group(int nth) {  // of four rows
    return nth / kGroups * S::kPitch + nth % kGroups * 128;
  }

  __device__ __forceinline__ void begin(uint32_t base, int wave, int lane, int row_bytes,
                                        int columns) {
    const int c = matrix_row(), g = lane_group();
    const int first = wave % (S::kWaves / 2) * Order::kLoads;  // block
    const int in = lane % (8 * kGroups), row = in / 2,
              column = lane / (8 * kGroups) * 16 + lane % 2 * 8;
    for (int n = 0; n < Order::kLoads; ++n)
      offset[n] = column < columns ? ((first + n) * S::kBlockRows + row) * row_bytes + 2 * column
                                   : kOutside;
    to = uniform(base + (has_q(wave) ? S::kQ : S::kDo) + first * S::kPitch);
    read_rows = base + group(c / 4) + g / 2 * kColumns + c % 4 * 32 + g % 2 * 16;
    read_columns = base + (S::kStages - 1) * S::kStageBytes + group(g) + c / 4 * 32 + c % 4 * 8;
    // Keys 4 g + c / 4, four rows each; a key's 16 bytes are where bits 1 and 2 of it say.
    for (int m = 0; m < 2; ++m)
      read_ds[m] = base + S::kDs + (4 * g + c / 4) * 64 + (m ^ g % 2) * 32 +
                   (c % 4 / 2 ^ c / 8) * 16 + c % 2 * 8;
    write_ds = base + S::kDs + S::kDsBytes + (S::tile_of(wave, 0) * S::kTile + c) * 64 +
               (g / 2 ^ c / 4 % 2) * 32 + (g % 2 ^ c / 2 % 2) * 16;
  }
  // The first rows of dQ of a lane: those of tile m and number i are 8 m + i further on.
  static __device__ __forceinline__ int first_row_of_dq() {
    return lane_group() % 2 * 16 + lane_group() / 2 * 4;
  }

  // ---- Operands
  template <int n, bool kRest>
  __device__ __forceinline__ void read_transposed(bf16x8& operand) const {
    u32x2 x;
    constexpr typename Order::Part kPart = Order::part_of_place(n);
    constexpr int place = n - kPart.place;
    if constexpr (kPart.product == Product::kDq) {
      constexpr int p = place / 2, m = place % 2;
      x = ordered::ds_read_b64_tr_b16<p * 2048 + kRest * 1024>(read_ds[m]);
    } else {
      constexpr int tensor = kPart.product == Product::kDv ? S::kDo : S::kQ;
      x = ordered::ds_read_b64_tr_b16<tensor + place * kColumns + kRest * kHalf>(read_columns);
    }
    operand[2 * kRest] = x[0];
    operand[2 * kRest + 1] = x[1];
  }
  template <int n>
  __device__ __forceinline__ void read(bf16x8& operand) const {
    constexpr typename Order::Part kPart = Order::part_of_place(n);
    if constexpr (Order::is_row(n)) {
      constexpr int tensor = kPart.product == Product::kS ? S::kQ : S::kDo;
      constexpr int chunk = (n - kPart.place) / 2, h = (n - kPart.place) % 2;
      ordered::ds_read_b128<tensor + h * kHalf + chunk * 2 * kColumns>(operand, read_rows);
    } else {
      read_transposed<n, false>(operand);
    }
  }
  template <int n>
  __device__ __forceinline__ void read_rest(bf16x8& operand) const {
    read_transposed<n, true>(operand);
  }

  // ---- A tile of rows
  template <int n>
  __device__ __forceinline__ void load(u32x4 buffer) {
    ordered::s_add_m0<n * S::kPitch>(to);
    ordered::s_nop<1>();
    ordered::buffer_load_dwordx4_lds(offset[n], buffer);
  }
  __device__ __forceinline__ void loaded() {}

  template <Do kDo, int n, class Packed>
  __device__ __forceinline__ void run(const Packed (&ds_of)[kT]) {
    static_assert(kDo == Do::kWriteDs);
    ordered::ds_write_b128<S::tile_of(0, n) * S::kTile * 64>(write_ds, ds_of[n]);
  }
  template <int n>
  __device__ __forceinline__ void move(const StageMoves& moves) {
    if constexpr (n < Order::kMoveColumns)
      ordered::v_add_u32_to(read_ds[n], moves.ds);
    else if constexpr (n == Order::kMoveColumns)
      ordered::v_add_u32_to(read_columns, moves.last);
    else if constexpr (n < Order::kMoveRows)
      ordered::v_add_u32_to(write_ds, -moves.ds);
    else
      ordered::v_add_u32_to(read_rows, moves.by);
  }
  __device__ __forceinline__ void start(const StageMoves&) {}
  // Before the loop: the next tile, `by` bytes on.
  __device__ __forceinline__ void next_tile(int by) { to += by; }
  // From the stage two ahead of reads to the next one; `moves` are of the next step.
  __device__ __forceinline__ void turn(const StageMoves& moves) {
    to += moves.then;
    ordered::settle_uniform(to);
  }
};
