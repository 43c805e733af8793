// The 16-bit element types of operands.
#pragma once
#include "isa/device.h"
#include "tile/types.h"

// The number whose bits are the low half of `bits`; of a bfloat16 nothing else may be set.
template <Element kFrom>
__device__ __forceinline__ float float_of(uint32_t bits) {
  if constexpr (kFrom == Element::kBf16)
    return __builtin_bit_cast(float, bits << 16);
  else
    return float(__builtin_bit_cast(_Float16, uint16_t(bits)));
}
