// From the waves' sums to the result: over the waves of the workgroup through LDS, over the parts
// along k through memory, then alpha, bias, activation and rounding.
#pragma once
#include "gemm/activation.h"
#include "gemm/stream.h"
#include "isa/wait.h"
#include "tile/bf16.h"
// clang-format off
#include "args/gemm.h"
// clang-format on

enum OutType { kFloat32, kBfloat16, kFloat16 };

// Arguments that only the end needs: loaded at the start, waited for at the end.
struct LateArgs {
  u32x8 first;
  u32x4 second;
  static constexpr int kFirst = __builtin_offsetof(GemmArgs, out);
  static_assert(kFirst == 56 && sizeof(GemmArgs) == kFirst + 48);

  uint64_t out, partials, counters, generation;
  int64_t out_stride;
  int out_type, activation;

  __device__ __forceinline__ void load() {
    const auto base = (uint64_t)__builtin_amdgcn_kernarg_segment_ptr();
    ordered::s_load_dwordx8<kFirst>(first, base);
    ordered::s_load_dwordx4<kFirst + 32>(second, base);
  }
  __device__ __forceinline__ void wait() {
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    ordered::settle_uniform(first);
    ordered::settle_uniform(second);
    const auto pair = [](uint32_t lo, uint32_t hi) { return uint64_t(hi) << 32 | lo; };
    out = pair(first[0], first[1]);
    out_stride = pair(first[2], first[3]);
    out_type = first[4];
    activation = first[5];
    partials = pair(first[6], first[7]);
    counters = pair(second[0], second[1]);
    generation = pair(second[2], second[3]);
  }
};

// The bias of the four n of a lane's results, in the fragments that a wave finishes; 0 where there
// is none.
template <class S>
struct Bias {
  uint32_t bits[S::kOwned][4];

  __device__ __forceinline__ void load(uint64_t base, int first_n, int n, int wave_k, int group) {
    const u32x4 buffer = Stream<S>::descriptor(base, base == 0 ? 0 : 2 * n);
    unroll<S::kOwned>([&]<int o>() {
      const int column = first_n + S::fragment(o, wave_k) % S::kTilesN * kTile + 4 * group;
      unroll<4>(
          [&]<int i>() { ordered::buffer_load_ushort(bits[o][i], 2 * (column + i), buffer); });
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
  using Sums = f32x4[S::kOwned];  // of the fragments that the wave finishes

  const Waves& stream;  // whose sums of a wave are finished here
  const LateArgs& args;
  int m, n, splits;
  float alpha;
  Local<u32x4>* lds;
  int first_m, first_n, tile, split;  // of the workgroup
  int lane, wave_m, wave_k;

  static __device__ __forceinline__ u32x4 bits_of(f32x4 x) { return __builtin_bit_cast(u32x4, x); }
  static __device__ __forceinline__ f32x4 floats_of(u32x4 x) {
    return __builtin_bit_cast(f32x4, x);
  }
  // body(o, fragment) for each fragment that the wave finishes; there may be fewer than waves.
  template <class Body>
  __device__ __forceinline__ void owned(Body&& body) const {
    for (int o = 0; o < S::kOwned; ++o) {
      const int f = S::fragment(o, wave_k);
      if (f < S::kFragments) body(o, f);
    }
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
    owned([&](int o, int f) {
      f32x4 part[S::kWavesK];
      for (int w = 0; w < S::kWavesK; ++w) part[w] = w == wave_k ? sums[o] : floats_of(*at(f, w));
      sums[o] = part[0];
      for (int w = 1; w < S::kWavesK; ++w) sums[o] += part[w];
    });
  }

  // Whether this workgroup is the last one of its tile to arrive; then acc holds the sums over all
  // parts, in their order.
  __device__ __forceinline__ bool reduce_splits(Sums& sums) const {
    constexpr int kWaveTile = S::kFragments * 1024, kSplit = kWaveTile * S::kWavesM;
    const uint64_t first =
        args.partials + uint64_t(tile) * splits * kSplit + wave_m * kWaveTile + lane * 16;
    owned([&](int o, int f) {
      ordered::global_store_dwordx4_sc1(first + uint64_t(split) * kSplit + f * 1024,
                                        bits_of(sums[o]));
    });
    ordered::s_waitcnt<0, ordered::kAnyLgkm>();  // written through before the workgroup is counted
    s_barrier();
    auto* arrived = (Local<int>*)lds;  // nobody reads sums any more
    if (Lane::in_workgroup() == 0) {
      const uint64_t counter = args.counters + uint64_t(tile) * 8;
      uint64_t before;
      // Raised first: what a launch that was aborted left behind is of an older generation.
      ordered::global_atomic_umax_x2(counter, args.generation << 16);
      ordered::global_atomic_add_x2_return(before, counter, 1);
      ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      ordered::settle(before);
      *arrived = int(before & 0xffff);
      if ((before & 0xffff) == uint64_t(splits - 1)) ordered::global_store_dwordx2_sc1(counter, 0);
    }
    s_barrier();
    if (__builtin_amdgcn_readfirstlane(*arrived) != splits - 1) return false;
    // All fragments of a few parts at a time: the wait is for memory.
    constexpr int kAtOnce = S::kOwned > 2 ? 2 : 8 / S::kOwned;
    for (int s = 0; s < splits; s += kAtOnce) {
      u32x4 part[kAtOnce][S::kOwned];
      for (int p = 0; p < kAtOnce; ++p) {
        const int from = s + p < splits ? s + p : splits - 1;
        owned([&](int o, int f) {
          ordered::global_load_dwordx4_sc1(part[p][o], first + uint64_t(from) * kSplit + f * 1024);
        });
      }
      ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      for (int p = 0; p < kAtOnce; ++p)
        owned([&](int o, int) {
          ordered::settle(part[p][o]);
          if (s + p == 0)
            sums[o] = floats_of(part[p][o]);
          else if (s + p < splits)
            sums[o] += floats_of(part[p][o]);
        });
    }
    return true;
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

  __device__ __forceinline__ void operator()(const Bias<S>& bias) const {
    Sums sums;
    reduce_waves(sums);
    if (splits > 1 && !reduce_splits(sums)) return;
    const int row = lane % kTile, group = lane / kTile;
    const int size = args.out_type == kFloat32 ? 4 : 2;
    const bool whole = first_n + S::kRowsN <= n &&
                       ((args.out | uint64_t(args.out_stride) * size) & (4 * size - 1)) == 0;
    owned([&](int o, int f) {
      f32x4 x = sums[o] * alpha + bias.values(o);
      if (__builtin_expect(args.activation != kIdentity, false))
        for (int i = 0; i < 4; ++i) x[i] = activated(x[i], args.activation);
      store(x, first_m + (wave_m * S::kTilesM + f / S::kTilesN) * kTile + row,
            first_n + f % S::kTilesN * kTile + 4 * group, whole);
    });
  }
};
