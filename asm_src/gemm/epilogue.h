// The epilogue: from the waves' sums to the result: over the waves of the workgroup through LDS,
// over the parts along k through memory, then alpha, bias, what is added, activation, its factors
// and rounding.
#pragma once
#include "gemm/activation.h"
#include "gemm/addend.h"
#include "gemm/place.h"
#include "gemm/splits.h"
#include "tile/reduce.h"

// The bias of the four rows of B of a lane's results, in the fragments that a wave finishes; 0
// where there is none.
template <class S>
struct Bias {
  uint32_t bits[S::kOwned][4];
  f32x4 values[S::kOwned];

  __device__ __forceinline__ void load(uint64_t base, int first_n, int n, Rows<S::kTile> rows,
                                       int wave_k, int lane) {
    const u32x4 buffer = uniform_descriptor(base, base == 0 ? 0 : 2 * (n + rows.up_offset));
    unroll<S::kOwned>([&]<int o>() {
      const int fragment = S::fragment(o, wave_k) % S::kTilesN;
      const int column = S::neighbours(lane);
      const int row = first_n + rows.column(fragment, column) + rows.further(column);
      const uint32_t offset = 2 * row;
      unroll<4>([&]<int i>() { ordered::buffer_load_ushort<2 * i>(bits[o][i], offset, buffer); });
      ordered::keep(offset);
      ordered::end_clause();
    });
  }
  __device__ __forceinline__ void load_late(const GemmArgs&, int, int, Rows<S::kTile>, int, int) {}
  __device__ __forceinline__ void wait(const GemmArgs&) {
    ordered::s_waitcnt<0, ordered::kAnyLgkm>();
    for (auto& four : bits)
      for (auto& one : four) ordered::settle(one);
    unroll<S::kOwned>([&]<int o>() {
      for (int i = 0; i < 4; ++i) values[o][i] = float_of<S::kElement>(bits[o][i]);
    });
  }
  // The oth of the fragments that the wave finishes.
  __device__ __forceinline__ f32x4 applied(f32x4 sum, float alpha, int o, int, int) const {
    return __builtin_elementwise_fma(sum, f32x4(alpha), values[o]);
  }
};

// Terms: `Bias`, or `Scales` of 8-bit operands.
template <class S, class Loop, class Terms>
struct Epilogue {
  using Sums = typename Splits<S>::Sums;

  const Loop& loop;  // whose sums of a wave are finished here
  const GemmArgs& args;
  const Splits<S>& splits;
  const Place<S>& place;
  Rows<S::kTile> rows;
  Local<u32x4>* lds;
  int lane, wave_m, wave_k, end_n;

  static __device__ __forceinline__ u32x4 bits_of(f32x4 x) { return __builtin_bit_cast(u32x4, x); }
  static __device__ __forceinline__ f32x4 floats_of(u32x4 x) {
    return __builtin_bit_cast(f32x4, x);
  }

  // The waves along k give each fragment to one of them, which adds it up in the order of the
  // waves.
  __device__ __forceinline__ void reduce_waves(Sums& sums) const {
    [[maybe_unused]] const auto at = [&](int f, int wave) __attribute__((always_inline)) {
      const int nth = wave - (wave > f % S::kWavesK);  // of the other waves
      return lds + ((wave_m * S::kFragments + f) * (S::kWavesK - 1) + nth) * kWaveLanes + lane;
    };
    if constexpr (S::kWavesK == 1) {
      unroll<S::kFragments>([&]<int f>() { sums[f] = loop.template fragment<f>(); });
    } else {
      for (auto& sum : sums) sum = f32x4{};
      unroll<S::kFragments>([&]<int f>() {
        const f32x4 own = loop.template fragment<f>();
        if (wave_k == f % S::kWavesK)
          sums[f / S::kWavesK] = own;
        else
          *at(f, wave_k) = bits_of(own);
      });
      s_barrier();  // the sums of the other waves are in LDS
      S::owned(wave_k, [&]<int o>(int f) {
        f32x4 part[S::kWavesK];
        for (int w = 0; w < S::kWavesK; ++w) part[w] = w == wave_k ? sums[o] : floats_of(*at(f, w));
        sums[o] = part[0];
        for (int w = 1; w < S::kWavesK; ++w) sums[o] += part[w];
      });
    }
    // The blocks on the diagonal: lanes 20 and 40 apart, 40 apart where there are two.
    for (auto& sum : sums) {
      if constexpr (S::kTile == 4) sum += from_lane(sum, lane ^ 20);
      if constexpr (S::kTile < kMatrix) sum += from_lane(sum, lane ^ 40);
    }
  }

  // The factors of a lane's results are 32 lanes further on, as rows 8 to 15 of a fragment are.
  __device__ __forceinline__ f32x4 factors(f32x4 x) const {
    return from_lane(x, lane ^ kWaveLanes / 2);
  }
  __device__ __forceinline__ f32x4 finished(f32x4 sum, const Terms& terms, int o, int f) const {
    return terms.applied(sum, args.alpha, o, f, lane);
  }
  __device__ __forceinline__ void operator()(Claim<S>& claim, const Terms& terms) const {
    if (__builtin_expect(place.special == 0, true))
      plain(terms);
    else
      any(claim, terms);
  }

 private:
  __device__ __forceinline__ void plain(const Terms& terms) const {
    Sums sums;
    reduce_waves(sums);
    S::owned(wave_k, [&]<int o>(int f) { place.store_plain(finished(sums[o], terms, o, f), f); });
  }
  __device__ __forceinline__ void any(Claim<S>& claim, const Terms& terms) const {
    Sums sums;
    const bool is_split = args.num_splits > 1;
    Addend<S> addend;
    addend.load(args, place, end_n, wave_k);
    if (is_split) splits.prepare(claim);
    reduce_waves(sums);
    if (is_split && !splits.reduce(sums)) return;
    addend.settle();
    S::owned(wave_k, [&]<int o>(int f) {
      f32x4 x = finished(sums[o], terms, o, f);
      if (args.adds == kAddsBefore) x = addend.added(x, args.beta, place.out_type, o);
      if (args.activation != kIdentity) {
        const f32x4 factor = rows.up_offset ? factors(x) : f32x4(1);
        for (int i = 0; i < 4; ++i) x[i] = activated(x[i], args.activation);
        x *= factor;
      }
      if (args.adds == kAddsBehind) x = addend.added(x, args.beta, place.out_type, o);
      place.store(x, f);
    });
  }
};
