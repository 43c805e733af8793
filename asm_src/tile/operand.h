// Which lane holds what of the matrix instructions 16x16x16.
//
// Lane group g is the lanes 16 g .. 16 g + 15. In an operand of 16 rows, lane r of group g has row
// r, and of the contraction the elements 4 g .. 4 g + 3. In an accumulator it has column r, rows
// 4 g .. 4 g + 3. So the accumulator of S^T = K Q^T is, lane for lane, an operand of O^T = V^T P^T.
// The same holds of 32x32x8 with two groups of 32 lanes: rows 8 n + 4 g .. 8 n + 4 g + 3 of an
// accumulator are its registers 4 n .. 4 n + 3, and operands of the nth of four instructions.
// A load brings twice as much of a row as an instruction takes: the two halves are operands of
// two instructions. A sum may take its terms in any order if both operands agree.
#pragma once
#include "isa/device.h"

inline constexpr int kMatrix = 16;  // rows and columns of a matrix instruction
inline constexpr int kLaneGroups = kWaveLanes / kMatrix;

__device__ __forceinline__ int matrix_row() { return Lane::in_wave() % kMatrix; }
__device__ __forceinline__ int lane_group() { return Lane::in_wave() / kMatrix; }

// Half 0 or 1 of 16 bytes.
__device__ __forceinline__ bf16x4 half_of(bf16x8 x, int half) {
  return half ? __builtin_shufflevector(x, x, 2, 3) : __builtin_shufflevector(x, x, 0, 1);
}
// Operand `nth` of the kOperands that 16 bytes are.
template <int kOperands>
__device__ __forceinline__ auto operand_of(bf16x8 x, int nth) {
  if constexpr (kOperands == 2)
    return half_of(x, nth);
  else
    return x;
}
