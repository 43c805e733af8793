// A tile of rows in LDS, by rows and by columns, and where its operands lie.
#pragma once
#include "attn_bwd/shape.h"
#include "isa/buffer_update.h"
#include "isa/buffer_x2.h"
#include "isa/ds.h"
#include "isa/mfma_x32.h"
#include "tile/buffer.h"
#include "tile/mma.h"
#include "tile/round.h"

// Four columns of a lane: of rows 4 g to 4 g + 3, and of those 16 further on if there are two
// halves. Loaded once and stored both ways.
template <class S>
struct Patch {
  u32x2 row[S::kHalves][4];

  // The nth of the patches of a tile, from a buffer that begins with its first row.
  __device__ __forceinline__ void load(BufferResource from, int n, int stride_bytes, int columns) {
    const int column = n / 4 * 4;
    const int first = 4 * (n % 4) * stride_bytes + 2 * column;
    for (int h = 0; h < S::kHalves; ++h)
      for (int i = 0; i < 4; ++i)
        row[h][i] = buffer_load_dwordx2(
            from, column < columns ? first + (S::kTile * h + i) * stride_bytes : int(kOutside));
  }
  template <int kColumns>
  __device__ __forceinline__ void store_rows(Local<char>* to, int n) const {
    const int g = n % 4, column = n / 4 * 4;
    for (int h = 0; h < S::kHalves; ++h)
      for (int i = 0; i < 4; ++i) {
        const int r = 4 * g + i, chunk = column / 8 ^ r % 8;
        *(Local<u32x2>*)(to + (S::kTile * h + r) * 2 * kColumns + chunk * 16 + column % 8 * 2) =
            row[h][i];
      }
  }
  template <int kColumns>
  __device__ __forceinline__ void store_columns(Local<char>* to, int n) const {
    constexpr int kSteps = S::steps(kColumns);
    const int g = n % 4, column = n / 4 * 4, c = column / kSteps, step = column % kSteps;
    const int at = c * 64 + (g ^ c / 2 % 4) * 16;
    u32x2 of_column[4][S::kHalves];
    for (int h = 0; h < S::kHalves; ++h)
      for (int pair = 0; pair < 2; ++pair) {
        const uint32_t a = row[h][0][pair], b = row[h][1][pair], c2 = row[h][2][pair],
                       d = row[h][3][pair];
        of_column[2 * pair][h] = {v_perm_b32<kLowHalfOfBoth>(b, a),
                                  v_perm_b32<kLowHalfOfBoth>(d, c2)};
        of_column[2 * pair + 1][h] = {v_perm_b32<kHighHalfOfBoth>(b, a),
                                      v_perm_b32<kHighHalfOfBoth>(d, c2)};
      }
    for (int j = 0; j < 2 * S::kHalves; ++j) {
      u32x2 low, high;
      if constexpr (S::kHalves == 1) {
        low = of_column[2 * j][0];
        high = of_column[2 * j + 1][0];
      } else {
        low = of_column[j][0];
        high = of_column[j][S::kHalves - 1];
      }
      const int chunk = step * S::kHalves / 2 + j;
      ds_write_b128((Local<u32x4>*)(to + chunk * 1024 + at),
                    u32x4{low[0], low[1], high[0], high[1]});
    }
  }
};

// Operands of 8 columns of a row: rows c of a tile.
template <int kColumns>
__device__ __forceinline__ bf16x8 read_rows(const Local<char>* from, int chunk) {
  const int c = matrix_row();
  return ds_read_b128((const Local<u32x4>*)(from + c * 2 * kColumns + (chunk ^ c % 8) * 16));
}

// 16 bytes of what lies by columns.
__device__ __forceinline__ bf16x8 read_columns(const Local<char>* from, int chunk) {
  const int c = matrix_row(), g = lane_group();
  return ds_read_b128((const Local<u32x4>*)(from + chunk * 1024 + c * 64 + (g ^ c / 2 % 4) * 16));
}

// a * b^T + c over 16 bytes of either.
template <Element kOf>
__device__ __forceinline__ f32x4 mma_chunk(bf16x8 a, bf16x8 b, f32x4 c) {
  if constexpr (Here::kOperandElements == 4)
    return mma<kOf>(a, b, c);
  else if constexpr (kOf == Element::kBf16)
    return v_mfma_f32_16x16x32_bf16(a, b, c);
  else
    return v_mfma_f32_16x16x32_f16(a, b, c);
}
