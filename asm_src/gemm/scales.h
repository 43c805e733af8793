// What sums of 8-bit operands are multiplied by and what is added, each of a row of A or of B.
#pragma once
#include "gemm/arguments.h"
#include "gemm/shape.h"
#include "tile/reduce.h"

// Lane l has what is of the tile's lth row of B and of the wave's lth row of A, so that it takes
// four registers of the loop; at the end each lane asks those that have what is of its results.
template <class S>
struct Scales {
  static_assert(S::kTilesM * S::kTile <= kWaveLanes && S::kRowsN <= kWaveLanes);
  uint32_t bits_of_a, bits_of_b, wide, narrow;  // scales; the bias, as float32 or of 16 bits
  float of_a, of_b, bias;

  __device__ __forceinline__ void load(uint64_t, int, int, Rows<S::kTile>, int, int) {}
  // What is not there reads 0.
  __device__ __forceinline__ void load_late(const GemmArgs& args, int first_m, int first_n,
                                            Rows<S::kTile> rows, int wave_m, int lane) {
    const int column = lane % S::kTile;
    const uint32_t row_of_b = first_n + rows.column(lane / S::kTile, column) + rows.further(column);
    const uint32_t row_of_a = first_m + wave_m * S::kTilesM * S::kTile + lane;
    const int rows_of_b = args.n + args.up_offset;
    const bool is_wide = args.out_type == kFloat32;
    load_of_row(bits_of_a, args.scale_a, args.scale_a_step, row_of_a, args.m);
    load_of_row(bits_of_b, args.scale_b, args.scale_b_step, row_of_b, rows_of_b);
    load_of_row(wide, is_wide ? args.bias : 0, 1, row_of_b, rows_of_b);
    const uint64_t of_16_bits = is_wide ? 0 : args.bias;
    const u32x4 buffer = uniform_descriptor(of_16_bits, of_16_bits ? 2 * rows_of_b : 0);
    const uint32_t offset = 2 * row_of_b;
    ordered::buffer_load_ushort<0>(narrow, offset, buffer);
    ordered::keep(offset);
    ordered::end_clause();
  }
  __device__ __forceinline__ void wait(const GemmArgs& args) {
    ordered::s_waitcnt<0, ordered::kAnyLgkm>();
    ordered::settle(bits_of_a);
    ordered::settle(bits_of_b);
    ordered::settle(wide);
    ordered::settle(narrow);
    of_a = args.scale_a ? usual(bits_of_a) : 1;
    of_b = args.alpha * (args.scale_b ? usual(bits_of_b) : 1);
    bias = args.out_type == kFloat32    ? usual(wide)
           : args.out_type == kBfloat16 ? float_of<Element::kBf16>(narrow)
                                        : float_of<Element::kF16>(narrow);
  }
  // Of the lane's four neighbours of fragment f.
  __device__ __forceinline__ f32x4 applied(f32x4 sum, float, int, int f, int lane) const {
    f32x4 scale, added;
    const int column = f % S::kTilesN * S::kTile + S::neighbours(lane);
    for (int i = 0; i < 4; ++i) {
      scale[i] = from_lane(of_b, column + i);
      added[i] = from_lane(bias, column + i);
    }
    const float of_row = from_lane(of_a, f / S::kTilesN * S::kTile + lane % S::kTile);
    return __builtin_elementwise_fma(sum * scale, f32x4(of_row), added);
  }

 private:
  static __device__ __forceinline__ void load_of_row(uint32_t& d, uint64_t base, int step,
                                                     uint32_t row, int rows) {
    const u32x4 buffer = uniform_descriptor(base, base ? 4 * (step * (rows - 1) + 1) : 0);
    const uint32_t offset = 4 * step * row;
    ordered::buffer_load_dword<0>(d, offset, buffer);
    ordered::keep(offset);
    ordered::end_clause();
  }
  // NaN of any payload as one that rounding does not wrap.
  static __device__ __forceinline__ float usual(uint32_t bits) {
    const float x = __builtin_bit_cast(float, bits);
    return x == x ? x : __builtin_nanf("");
  }
};
