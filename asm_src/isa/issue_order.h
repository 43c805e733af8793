// Orders what the compiler issues, without an instruction of their own.
#pragma once
#include "isa/device.h"

// Loads above are issued before those below, and so are there before them.
__device__ __forceinline__ void order_loads() { asm volatile("" ::: "memory"); }

// What no SGPR holds at the start is waited for here, behind the loads above: cold, it takes as
// long as they do.
template <class... T>
__device__ __forceinline__ void wait_for(T&... x) {
  const auto one = [](auto& each) { asm volatile("" : "+s"(each)::"memory"); };
  (one(x), ...);
}
