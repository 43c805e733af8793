// From the waves' sums to the result: over the waves of the workgroup through LDS, over the parts
// along k through memory, then alpha, bias, activation, its factors and rounding.
#pragma once
#include "gemm/activation.h"
#include "gemm/splits.h"
#include "tile/bf16.h"

// The bias of the four rows of B of a lane's results, in the fragments that a wave finishes; 0
// where there is none.
template <class S>
struct Bias {
  uint32_t bits[S::kOwned][4];

  __device__ __forceinline__ void load(uint64_t base, int first_n, int n, Rows rows, int wave_k,
                                       int group) {
    const u32x4 buffer = Stream<S>::descriptor(base, base == 0 ? 0 : 2 * (n + rows.up));
    unroll<S::kOwned>([&]<int o>() {
      const int fragment = S::fragment(o, wave_k) % S::kTilesN;
      const int row = first_n + rows.column(fragment, 4 * group) + rows.further(4 * group);
      unroll<4>([&]<int i>() { ordered::buffer_load_ushort(bits[o][i], 2 * (row + i), buffer); });
    });
  }
  __device__ __forceinline__ void wait() {
    ordered::s_waitcnt<0, ordered::kAnyLgkm>();
    for (auto& four : bits)
      for (auto& one : four) ordered::settle(one);
  }
  __device__ __forceinline__ f32x4 values(int o) const {
    f32x4 x;
    for (int i = 0; i < 4; ++i)
      x[i] = S::kElement == Element::kBf16
                 ? __builtin_bit_cast(float, bits[o][i] << 16)
                 : float(__builtin_bit_cast(_Float16, uint16_t(bits[o][i])));
    return x;
  }
};

template <class S, class Waves>
struct Finish {
  using Sums = typename Splits<S>::Sums;

  const Waves& stream;  // whose sums of a wave are finished here
  const LateArgs& args;
  const Splits<S>& splits;
  int m, n;
  Rows rows;
  Local<u32x4>* lds;
  int first_m, first_n;  // of the workgroup
  int lane, wave_m, wave_k;

  static __device__ __forceinline__ u32x4 bits_of(f32x4 x) { return __builtin_bit_cast(u32x4, x); }
  static __device__ __forceinline__ f32x4 floats_of(u32x4 x) {
    return __builtin_bit_cast(f32x4, x);
  }

  // The waves along k give each fragment to one of them, which adds it up in the order of the
  // waves.
  __device__ __forceinline__ void reduce_waves(Sums& sums) const {
    const auto at = [&](int f, int wave) {
      const int nth = wave - (wave > f % S::kWavesK);  // of the other waves
      return lds + ((wave_m * S::kFragments + f) * (S::kWavesK - 1) + nth) * kWaveLanes + lane;
    };
    for (auto& sum : sums) sum = f32x4{};
    unroll<S::kFragments>([&]<int f>() {
      const f32x4 own = stream.template fragment<f>();
      if (wave_k == f % S::kWavesK)
        sums[f / S::kWavesK] = own;
      else
        *at(f, wave_k) = bits_of(own);
    });
    s_barrier();
    S::owned(wave_k, [&](int o, int f) {
      f32x4 part[S::kWavesK];
      for (int w = 0; w < S::kWavesK; ++w) part[w] = w == wave_k ? sums[o] : floats_of(*at(f, w));
      sums[o] = part[0];
      for (int w = 1; w < S::kWavesK; ++w) sums[o] += part[w];
    });
  }

  // Four consecutive n of one row; `whole`: all exist and lie on a boundary of their size.
  template <class Element_>
  __device__ __forceinline__ void put(Element_ (&x)[4], int64_t at, int col_n, bool whole) const {
    using Four = Element_ __attribute__((ext_vector_type(4)));
    auto* to = (Global<Element_>*)args.out + at;
    if (whole)
      *(Global<Four>*)to = Four{x[0], x[1], x[2], x[3]};
    else
      for (int i = 0; i < 4; ++i)
        if (col_n + i < n) to[i] = x[i];
  }
  __device__ __forceinline__ void store(f32x4 x, int row_m, int col_n, bool whole) const {
    const int64_t at = int64_t(row_m) * args.out_stride + col_n;
    if (args.out_type == kFloat32) {
      float element[4] = {x[0], x[1], x[2], x[3]};
      if (row_m < m) put(element, at, col_n, whole);
    } else if (args.out_type == kBfloat16) {
      uint16_t element[4];
      for (int i = 0; i < 4; ++i) element[i] = round_bf16(x[i]) >> 16;
      if (row_m < m) put(element, at, col_n, whole);
    } else {
      uint16_t element[4];
      for (int i = 0; i < 4; ++i) element[i] = __builtin_bit_cast(uint16_t, _Float16(x[i]));
      if (row_m < m) put(element, at, col_n, whole);
    }
  }

  // The factors of a lane's results are 32 lanes further on, as rows 8 to 15 of a fragment are.
  __device__ __forceinline__ f32x4 factors(f32x4 x) const {
    f32x4 factor;
    for (int i = 0; i < 4; ++i) {
      const float one = x[i];  // a cast of x[i] itself would take the bits of x[0]
      factor[i] = __builtin_bit_cast(
          float,
          __builtin_amdgcn_ds_bpermute((lane ^ kWaveLanes / 2) * 4, __builtin_bit_cast(int, one)));
    }
    return factor;
  }

  __device__ __forceinline__ void operator()(Claim<S>& claim, const Bias<S>& bias) const {
    Sums sums;
    if (splits.splits > 1) splits.prepare(claim);
    reduce_waves(sums);
    if (splits.splits > 1 && !splits.reduce(sums)) return;
    const int row = lane % kTile, group = lane / kTile;
    const int size = args.out_type == kFloat32 ? 4 : 2;
    const bool whole = first_n + S::kTilesN * rows.each() <= n &&
                       ((args.out | uint64_t(args.out_stride) * size) & (4 * size - 1)) == 0;
    S::owned(wave_k, [&](int o, int f) {
      f32x4 x = sums[o] * args.alpha + bias.values(o);
      if (__builtin_expect(args.activation != kIdentity, false)) {
        const f32x4 factor = rows.up ? factors(x) : f32x4(1);
        for (int i = 0; i < 4; ++i) x[i] = activated(x[i], args.activation);
        x *= factor;
      }
      if (4 * group < rows.each())
        store(x, first_m + (wave_m * S::kTilesM + f / S::kTilesN) * kTile + row,
              first_n + rows.column(f % S::kTilesN, 4 * group), whole);
    });
  }
};
