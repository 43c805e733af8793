// What is the same in all lanes of a wave, and which registers hold it.
#pragma once
#include "isa/device.h"

// The compiler knows that it is the same in all lanes.
__device__ __forceinline__ int uniform(int x) { return __builtin_amdgcn_readfirstlane(x); }

// What is not needed for a while waits in a vector register; `uniform` has it back.
template <class... T>
__device__ __forceinline__ void park(T&... x) {
  const auto one = [](auto& each) { asm volatile("" : "+v"(each)); };
  (one(x), ...);
}

// Loaded, if nothing else asks for it; all at once.
__device__ __forceinline__ void wanted(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e,
                                       uint32_t f, uint32_t g) {
  asm volatile("" ::"s"(a), "s"(b), "s"(c), "s"(d), "s"(e), "s"(f), "s"(g));
}

// Loaded, if nothing else asks for it; not waited for before what is under way with it.
__device__ __forceinline__ void touched(uint32_t x) { asm volatile("" ::"v"(x)); }

// The same address, of which the compiler does not know what has been loaded from it before.
__device__ __forceinline__ uint64_t anew(uint64_t address) {
  asm volatile("" : "+s"(address));
  return address;
}
