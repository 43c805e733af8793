// Which wave of a SIMD goes first.
#pragma once
#include "isa/device.h"

template <int kPriority>
__device__ __forceinline__ void s_setprio() {
  asm volatile("s_setprio %0" ::"n"(kPriority));
}
