// Where a lane's results go. Found while the first rows are on their way, when nothing else is left
// to do: at the end every instruction would be waited for.
#pragma once
#include "arch/target.h"
#include "gemm/activation.h"
#include "gemm/arguments.h"
#include "gemm/shape.h"
#include "tile/round.h"

template <class S>
struct Place {
  static constexpr OutType kOwn = S::kElement == Element::kBf16 ? kBfloat16 : kFloat16;

  uint64_t address;        // of the lane's first result
  int rows, columns;       // that there are from it on
  int64_t rows_bytes;      // from a fragment to the next one along m
  int each, column_bytes;  // columns of a fragment; bytes of a result
  int out_type;
  bool whole;  // all four neighbours of the tile exist, and lie on a boundary of their size
  // 0: whole, of the inputs' type, without an activation or what is added, in one part.
  uint32_t special;

  __device__ __forceinline__ Place(const GemmArgs& args, int end_n, Rows<S::kTile> of_b,
                                   int first_m, int first_n, int wave_m, int lane) {
    out_type = args.out_type;
    column_bytes = out_type == kFloat32 ? 4 : 2;
    each = of_b.each();
    const int neighbours = S::neighbours(lane);
    const int row_m = first_m + wave_m * S::kTilesM * S::kTile + lane % S::kTile;
    const int column = first_n + of_b.column(0, neighbours);
    address = args.out + (row_m * args.out_stride + column) * column_bytes;
    rows = S::has_results(lane) ? args.m - row_m : 0;
    columns = neighbours < each ? end_n - column : 0;  // the others are factors
    rows_bytes = S::kTile * column_bytes * args.out_stride;
    // Without branches, which cost more than all of this.
    const uint32_t bytes = uint32_t(args.out) | uint32_t(args.out_stride) * column_bytes;
    const uint32_t rest = ((end_n - first_n) & 3) | (bytes & (4 * column_bytes - 1));
    whole = rest == 0;
    const uint32_t types = uint8_t(args.out_type) | uint8_t(args.activation) << 8;
    special = rest | (types ^ kOwn) | (args.num_splits - 1) | args.adds;
    ordered::settle(address);
    ordered::settle(rows);
    ordered::settle(columns);
    ordered::settle_uniform(special);
  }

  // Four neighbours of fragment f.
  __device__ __forceinline__ void store_plain(f32x4 x, int f) const {
    bf16x4 bits;
    if constexpr (Here::kConvertsPairs)
      bits = converted<S::kElement>(x);
    else  // NaN come from NaN of the inputs' type or from arithmetic: their payloads do not wrap
      bits = round_numbers<S::kElement, Rounding::kNearestEven>(x);
    if (there(f) > 0) *(Global<bf16x4>*)at(f) = bits;
  }
  __device__ __forceinline__ void store(f32x4 x, int f) const {
    if (out_type == kFloat32)
      put<float>(x, f);
    else
      put<uint16_t>(out_type == kBfloat16 ? rounded<Element::kBf16>(x) : rounded<Element::kF16>(x),
                    f);
  }
  // Columns that there are from the lane's first one of a fragment on.
  __device__ __forceinline__ int there(int f) const {
    return f / S::kTilesN * S::kTile < rows ? columns - f % S::kTilesN * each : 0;
  }

 private:
  template <Element kTo>
  static __device__ __forceinline__ bf16x4 converted(f32x4 x) {
    return {convert_pair<kTo>(x[0], x[1]), convert_pair<kTo>(x[2], x[3])};
  }
  template <Element kTo>
  static __device__ __forceinline__ bf16x4 rounded(f32x4 x) {
    if constexpr (Here::kConvertsPairs)
      return converted<kTo>(x);
    else
      return round_pairs<kTo, Rounding::kNearestEven>(x);
  }
  __device__ __forceinline__ uint64_t at(int f) const {
    return address + (f / S::kTilesN * rows_bytes + f % S::kTilesN * each * column_bytes);
  }
  template <class Element_, class Bits>
  __device__ __forceinline__ void put(Bits bits, int f) const {
    using Four = Element_ __attribute__((ext_vector_type(4)));
    const Four x = __builtin_bit_cast(Four, bits);
    auto* to = (Global<Element_>*)at(f);
    if (whole) {
      if (there(f) > 0) *(Global<Four>*)to = x;
    } else {
      for (int i = 0; i < 4; ++i)
        if (i < there(f)) to[i] = x[i];
    }
  }
};
