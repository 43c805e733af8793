// Arguments of a kernel: the first come in SGPRs, the others, which only the end of a workgroup
// needs, are loaded at the start and waited for when its first rows are on their way.
#pragma once
#include "isa/ordered_dwords.h"
// clang-format off
#if defined(ANY_ALIGNMENT)
#include "args/gemm_any.h"
using GemmArgs = GemmAnyArgs;
inline constexpr int kEndOfLate = __builtin_offsetof(GemmArgs, a_batch);
#elif defined(NORMS_ROWS)
#include "args/gemm_rms.h"
using GemmArgs = GemmRmsArgs;
inline constexpr int kEndOfLate = sizeof(GemmArgs);
#elif defined(HAS_SCALES)
#include "args/gemm_8bit.h"
using GemmArgs = Gemm8BitArgs;
inline constexpr int kEndOfLate = sizeof(GemmArgs);
#else
#include "args/gemm.h"
inline constexpr int kEndOfLate = sizeof(GemmArgs);
#endif
// clang-format on

enum OutType { kFloat32, kBfloat16, kFloat16 };
// Where beta * addend comes in.
enum Adds { kAddsNothing, kAddsBefore, kAddsBehind };

class LateArguments {
 public:
  __device__ __forceinline__ void load() {
    const auto base = (uint64_t)__builtin_amdgcn_kernarg_segment_ptr();
    ordered::s_load_dwordx8<kFirst>(first_, base);
    ordered::s_load_dwordx8<kFirst + sizeof(u32x8)>(second_, base);
    load(third_, base);
  }
  // All arguments are there.
  __device__ __forceinline__ void wait(GemmArgs& args) {
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    ordered::settle_uniform(first_);
    ordered::settle_uniform(second_);
    ordered::settle_uniform(third_);
    Dwords dwords = __builtin_bit_cast(Dwords, args);
    for (int i = 0; i < kNumEach; ++i) dwords.of[kFirst / 4 + i] = first_[i];
    for (int i = 0; i < kNumEach; ++i) dwords.of[kFirst / 4 + kNumEach + i] = second_[i];
    for (int i = 0; i < kNumLast; ++i) dwords.of[kFirst / 4 + 2 * kNumEach + i] = third_[i];
    args = __builtin_bit_cast(GemmArgs, dwords);
  }

 private:
  using Last = uint32_t
      __attribute__((ext_vector_type((kEndOfLate - __builtin_offsetof(GemmArgs, out)) / 4 - 16)));
  struct Dwords {
    uint32_t of[sizeof(GemmArgs) / 4];
  };
  static constexpr int kFirst = __builtin_offsetof(GemmArgs, out);
  static constexpr int kNumEach = 8, kNumLast = sizeof(Last) / 4;
  static_assert(kEndOfLate == kFirst + 4 * (2 * kNumEach + kNumLast));

  static __device__ __forceinline__ void load(u32x2& d, uint64_t base) {
    ordered::s_load_dwordx2<kFirst + 2 * sizeof(u32x8)>(d, base);
  }
  static __device__ __forceinline__ void load(u32x4& d, uint64_t base) {
    ordered::s_load_dwordx4<kFirst + 2 * sizeof(u32x8)>(d, base);
  }
  static __device__ __forceinline__ void load(u32x8& d, uint64_t base) {
    ordered::s_load_dwordx8<kFirst + 2 * sizeof(u32x8)>(d, base);
  }

  u32x8 first_, second_;
  Last third_;
};
