// Arguments of a kernel: the first come in SGPRs, the others, which only the end of a workgroup
// needs, are loaded at the start and waited for when its first rows are on their way.
#pragma once
#include "isa/ordered_memory.h"
// clang-format off
#include "args/gemm.h"
// clang-format on

enum OutType { kFloat32, kBfloat16, kFloat16 };

class LateArguments {
 public:
  __device__ __forceinline__ void load() {
    const auto base = (uint64_t)__builtin_amdgcn_kernarg_segment_ptr();
    ordered::s_load_dwordx8<kFirst>(first_, base);
    ordered::s_load_dwordx4<kFirst + sizeof(u32x8)>(second_, base);
  }
  // All arguments are there.
  __device__ __forceinline__ void wait(GemmArgs& args) {
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    ordered::settle_uniform(first_);
    ordered::settle_uniform(second_);
    Dwords dwords = __builtin_bit_cast(Dwords, args);
    for (int i = 0; i < kNumFirst; ++i) dwords.of[kFirst / 4 + i] = first_[i];
    for (int i = 0; i < kNumSecond; ++i) dwords.of[kFirst / 4 + kNumFirst + i] = second_[i];
    args = __builtin_bit_cast(GemmArgs, dwords);
  }

 private:
  struct Dwords {
    uint32_t of[sizeof(GemmArgs) / 4];
  };
  static constexpr int kFirst = __builtin_offsetof(GemmArgs, out);
  static constexpr int kNumFirst = 8, kNumSecond = 4;
  static_assert(sizeof(GemmArgs) == kFirst + 4 * (kNumFirst + kNumSecond));

  u32x8 first_;
  u32x4 second_;
};
