// What isa/ordered.h does without an instruction, with one: behind matrix instructions that the
// compiler places. It keeps their distances, but takes an empty statement for an instruction.
#pragma once
#include "isa/ordered_memory.h"

namespace ordered {

// What is computed so far is in registers here.
template <class T, class U>
__device__ __forceinline__ void settle_by_nop(T& x, U& y) {
  asm volatile("s_nop 0" : "+v"(x), "+v"(y));
}

// It is in use up to here.
template <class T>
__device__ __forceinline__ void keep_by_nop(T x) {
  asm volatile("s_nop 0" ::"v"(x));
}

// Of scalar loads: what they brought is there.
template <class T>
__device__ __forceinline__ void s_waitcnt_loaded(T& x) {
  asm volatile("s_waitcnt lgkmcnt(0)" : "+s"(x));
}

}  // namespace ordered
