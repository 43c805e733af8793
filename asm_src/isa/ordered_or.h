// A bit operation that stays where it is written, as in isa/ordered.h.
#pragma once
#include "isa/device.h"

namespace ordered {

__device__ __forceinline__ void v_or_b32_to(uint32_t& a, uint32_t b) {
  asm volatile("v_or_b32 %0, %1, %0" : "+v"(a) : "v"(b));
}

}  // namespace ordered
