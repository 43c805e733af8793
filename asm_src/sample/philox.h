// Philox4x32-10 (Salmon et al., 2011): four random words of a counter and a key.
#pragma once
#include "isa/device.h"

__device__ __forceinline__ u32x4 philox(u32x4 counter, u32x2 key) {
  constexpr uint32_t kMultiplier0 = 0xd2511f53, kMultiplier1 = 0xcd9e8d57;
  constexpr uint32_t kWeyl0 = 0x9e3779b9, kWeyl1 = 0xbb67ae85;
#pragma clang loop unroll(full)
  for (int round = 0; round < 10; ++round) {
    const uint64_t x = uint64_t(kMultiplier0) * counter[0], y = uint64_t(kMultiplier1) * counter[2];
    counter = u32x4{uint32_t(y >> 32) ^ counter[1] ^ key[0], uint32_t(y),
                    uint32_t(x >> 32) ^ counter[3] ^ key[1], uint32_t(x)};
    key += u32x2{kWeyl0, kWeyl1};
  }
  return counter;
}
