// Which row an item is of, without a division.
#pragma once
#include "isa/device.h"

// n / d for n below 2^31, with the factor and shift that the host finds for d.
__device__ __forceinline__ uint32_t quotient(uint32_t n, uint32_t factor, int shift) {
  return uint32_t(uint64_t(n + 1) * factor >> 32) >> shift;
}
