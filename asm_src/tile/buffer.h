// Raw buffer descriptors: memory as bytes from a base on, of which those beyond a number read as 0
// and are not written.
//
// How an access is held against that number is told in two ways: with the scalar offset of the
// instruction counted, or not; and subtracting it from the number wraps. So that all agree, a
// scalar offset that is not 0 goes with kAllBytes only, and a lane that shall have nothing asks at
// kOutside. Checked mode reports what depends on it (`ambiguous_range`).
#pragma once
#include "isa/device.h"

inline constexpr uint32_t kRawWord3 = 4 << 15;           // 32-bit data, as raw loads want it
inline constexpr uint32_t kAllBytes = (1u << 31) - 1;    // a number that bounds nothing
inline constexpr uint32_t kOutside = 1u << 31;           // an offset beyond every number of bytes
inline constexpr uint32_t kMaxUniformOffset = 1u << 30;  // for the sums of offsets not to wrap

// Of an address and a number that are the same in all lanes, and known to be by the compiler.
__device__ __forceinline__ u32x4 raw_descriptor(uint64_t base, uint32_t bytes) {
  return u32x4{uint32_t(base), uint32_t(base >> 32), bytes, kRawWord3};
}

// The same where the compiler does not know: moved to SGPRs.
__device__ __forceinline__ u32x4 uniform_descriptor(uint64_t base, uint32_t bytes) {
  return u32x4{uint32_t(__builtin_amdgcn_readfirstlane(base)),
               uint32_t(__builtin_amdgcn_readfirstlane(base >> 32)) & 0xffff,
               uint32_t(__builtin_amdgcn_readfirstlane(bytes)), kRawWord3};
}
