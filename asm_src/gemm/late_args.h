// Arguments that only the end of a workgroup needs: loaded at the start, waited for when its first
// rows are on their way.
#pragma once
#include "isa/ordered.h"
#include "isa/stream.h"
// clang-format off
#include "args/gemm.h"
// clang-format on

enum OutType { kFloat32, kBfloat16, kFloat16 };

struct LateArgs {
  u32x8 first;
  u32x4 second;
  static constexpr int kFirst = __builtin_offsetof(GemmArgs, out);
  static_assert(kFirst == 56 && sizeof(GemmArgs) == kFirst + 48);

  uint64_t out, partials, counters, generation;
  int64_t out_stride;
  float alpha;
  uint32_t types;  // of the output and of the activation, as they lie in memory
  int out_type, activation;
  bool adding;

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
    alpha = __builtin_bit_cast(float, uint32_t(first[4]));
    types = first[5] & 0xffff;
    out_type = types & 0xff;
    activation = types >> 8;
    adding = first[5] >> 16 != 0;
    partials = pair(first[6], first[7]);
    counters = pair(second[0], second[1]);
    generation = pair(second[2], second[3]);
  }
};
