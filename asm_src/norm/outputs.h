// The arguments that no SGPR holds at the start: loaded there, and waited for when a row is there.
#pragma once
#include "isa/ordered_memory.h"
#include "norm/columns.h"
// clang-format off
#include "args/rms_norm.h"
// clang-format on

class Outputs {
 public:
  __device__ __forceinline__ void load() {
    ordered::s_load_dwordx8<kFirst>(dwords_, (uint64_t)__builtin_amdgcn_kernarg_segment_ptr());
  }
  __device__ __forceinline__ void wait() { ordered::s_waitcnt_loaded(dwords_); }
  template <class R>
  __device__ __forceinline__ R out(uint32_t row) const {
    return R(at(0), int64_t(at(2)), row);
  }
  template <class R>
  __device__ __forceinline__ R sum(uint32_t row) const {
    return R(at(1), int64_t(at(3)), row);
  }

 private:
  static constexpr int kFirst = __builtin_offsetof(RmsNormArgs, out);
  static_assert(kFirst == 56 && sizeof(RmsNormArgs) == kFirst + sizeof(u32x8));
  __device__ __forceinline__ uint64_t at(int i) const {
    return dwords_[2 * i] | uint64_t(dwords_[2 * i + 1]) << 32;
  }
  u32x8 dwords_;
};
