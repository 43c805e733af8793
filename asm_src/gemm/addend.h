// What is added to a lane's results: on its way while sums of waves and of parts are added up.
// Nearer to the beginning it would take registers of the loop.
#pragma once
#include "gemm/place.h"

template <class S>
struct Addend {
  uint32_t bits[S::kOwned][4];  // 0 where there is none

  // In place of elements that do not exist the kernel's arguments are read, which nobody writes.
  __device__ __forceinline__ void load(const GemmArgs& args, const Place<S>& place, int end_n,
                                       int wave_k) {
    for (auto& four : bits)
      for (auto& one : four) one = 0;
    if (args.adds == kAddsNothing) return;
    const int row = args.m - place.rows, column = end_n - place.columns;
    const uint64_t first = args.addend + (row * args.addend_stride + column) * place.column_bytes;
    const auto nothing = (uint64_t)__builtin_amdgcn_kernarg_segment_ptr();
    unroll<S::kOwned>([&]<int o>() {
      const int f = S::fragment(o, wave_k), there = place.there(f);
      const uint64_t own =
          first + (f / S::kTilesN * S::kTile * args.addend_stride + f % S::kTilesN * place.each) *
                      place.column_bytes;
      uint64_t from[4];
      for (int i = 0; i < 4; ++i) from[i] = i < there ? own + i * place.column_bytes : nothing;
      if (place.out_type == kFloat32)
        unroll<4>([&]<int i>() {
          ordered::global_load_dword(bits[o][i], (const Global<float>*)from[i]);
        });
      else
        unroll<4>([&]<int i>() {
          ordered::global_load_ushort(bits[o][i], (const Global<uint16_t>*)from[i]);
        });
      for (const uint64_t one : from) ordered::keep(one);
      ordered::end_clause();
    });
  }
  __device__ __forceinline__ void settle() {
    ordered::s_waitcnt<0, ordered::kAnyLgkm>();
    for (auto& four : bits)
      for (auto& one : four) ordered::settle(one);
  }
  __device__ __forceinline__ f32x4 added(f32x4 x, float beta, int out_type, int o) const {
    f32x4 addend;
    for (int i = 0; i < 4; ++i)
      addend[i] = out_type == kFloat32    ? __builtin_bit_cast(float, bits[o][i])
                  : out_type == kBfloat16 ? float_of<Element::kBf16>(bits[o][i])
                                          : float_of<Element::kF16>(bits[o][i]);
    return __builtin_elementwise_fma(addend, f32x4(beta), x);
  }
};
