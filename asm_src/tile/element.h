// The 16-bit element types of operands, and ways to round to them.
#pragma once
#include "isa/device.h"

enum class Element { kBf16, kF16 };
enum class Rounding { kNearestEven, kNearestAway, kTowardZero };

// The number whose bits are the low half of `bits`; of a bfloat16 nothing else may be set.
template <Element kFrom>
__device__ __forceinline__ float float_of(uint32_t bits) {
  if constexpr (kFrom == Element::kBf16)
    return __builtin_bit_cast(float, bits << 16);
  else
    return float(__builtin_bit_cast(_Float16, uint16_t(bits)));
}
