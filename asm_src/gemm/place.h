// Where a lane's results go. Found while the first rows are on their way, when nothing else is left
// to do: at the end every instruction would be waited for.
#pragma once
#include "gemm/activation.h"
#include "gemm/late_args.h"
#include "gemm/shape.h"
#include "tile/bf16.h"

template <class S>
struct Place {
  static constexpr OutType kOwn = S::kElement == Element::kBf16 ? kBfloat16 : kFloat16;

  uint64_t address;        // of the lane's first result
  int rows, columns;       // that there are from it on
  int64_t rows_bytes;      // from a fragment to the next one along m
  int each, column_bytes;  // columns of a fragment; bytes of a result
  int out_type;
  bool whole;  // all four neighbours of the tile exist, and lie on a boundary of their size
  int plain;   // not 0: whole, of the inputs' type, without an activation

  __device__ __forceinline__ Place(const LateArgs& args, int m, int n, Rows of_b, int first_m,
                                   int first_n, int wave_m, int row, int group) {
    out_type = args.out_type;
    column_bytes = out_type == kFloat32 ? 4 : 2;
    each = of_b.each();
    const int row_m = first_m + wave_m * S::kTilesM * kTile + row;
    const int column = first_n + of_b.column(0, 4 * group);
    address = args.out + (row_m * args.out_stride + column) * column_bytes;
    rows = m - row_m;
    columns = 4 * group < each ? n - column : 0;  // the others are factors
    rows_bytes = kTile * column_bytes * args.out_stride;
    whole = first_n + S::kTilesN * each <= n &&
            ((args.out | uint64_t(args.out_stride) * column_bytes) & (4 * column_bytes - 1)) == 0;
    plain =
        __builtin_amdgcn_readfirstlane(whole && out_type == kOwn && args.activation == kIdentity);
    ordered::settle(address);
    ordered::settle(rows);
    ordered::settle(columns);
    ordered::settle_uniform(plain);
  }

  // Four neighbours of fragment f.
  __device__ __forceinline__ void store_plain(f32x4 x, int f) const {
    const u32x2 bits = packed<kOwn>(x);
    if (there(f) > 0) *(Global<u32x2>*)at(f) = bits;
  }
  __device__ __forceinline__ void store(f32x4 x, int f) const {
    if (out_type == kFloat32)
      put<float>(x, f);
    else
      put<uint16_t>(out_type == kBfloat16 ? packed<kBfloat16>(x) : packed<kFloat16>(x), f);
  }

 private:
  template <OutType kType>
  static __device__ __forceinline__ u32x2 packed(f32x4 x) {
    if constexpr (kType == kBfloat16)
      return {pack_bf16(round_bf16(x[0]), round_bf16(x[1])),
              pack_bf16(round_bf16(x[2]), round_bf16(x[3]))};
    else
      return __builtin_bit_cast(u32x2, __builtin_convertvector(x, f16x4));
  }
  // Columns that there are from the lane's first one of a fragment on.
  __device__ __forceinline__ int there(int f) const {
    return f / S::kTilesN * kTile < rows ? columns - f % S::kTilesN * each : 0;
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
