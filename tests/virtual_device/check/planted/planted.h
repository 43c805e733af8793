// How defects are planted: kernels whose body is assembly, with one instruction too few, too many
// or wrong. -DREPAIRED compiles the twin without the defect.
//
// PLACE(kernel, "use") marks the instruction after it with the symbol use.kernel, which the code
// object exports; tests look the expected place of a finding up by it.
#pragma once
#include "isa/device.h"

#ifdef REPAIRED
#define DEFECT(text)
#define REPAIR(text) text "\n"
#else
#define DEFECT(text) text "\n"
#define REPAIR(text)
#endif

#define PLACE(kernel, role) ".globl " role "." #kernel "\n" role "." #kernel ":\n"
#define USE(kernel) PLACE(kernel, "use")
#define PRODUCER(kernel) PLACE(kernel, "producer")

// Between the compiler's code and the sequence under test: nothing pending, no hazard in flight.
#define CALM "s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)\ns_nop 15\ns_nop 15\n"

// Longer than what the other wave has to do, whatever the order in which waves take turns.
#define HOLD_BACK              \
  "s_movk_i32 s40, 64\n"       \
  "1: s_sub_u32 s40, s40, 1\n" \
  "s_cmp_lg_u32 s40, 0\n"      \
  "s_cbranch_scc1 1b\n"
#ifdef REPAIRED
#define BARRIER_IF_REPAIRED() asm volatile("s_waitcnt vmcnt(0) lgkmcnt(0)\ns_barrier" ::: "memory")
#else
#define BARRIER_IF_REPAIRED() asm volatile("" ::: "memory")
#endif

#define ONE_WAVE extern "C" __global__ WORKGROUP(64, 1) void
#define TWO_WAVES extern "C" __global__ WORKGROUP(128, 1) void

using Words = uint32_t*;

// Byte offset of the lane's dword, within a wave and within the grid.
__device__ __forceinline__ int lane_bytes() { return Lane::in_wave() * 4; }

// LDS address as DS instructions and M0 want it.
template <class T>
__device__ __forceinline__ uint32_t lds_address(T& variable) {
  return (uint32_t)(unsigned long)(Local<void>*)&variable;
}

// Words 0 to 3 of a raw buffer: base, stride 0, bytes, 32-bit data.
__device__ __forceinline__ u32x4 raw_descriptor(const void* base, uint32_t bytes) {
  const uint64_t address = (uint64_t)base;
  return u32x4{(uint32_t)address, (uint32_t)(address >> 32), bytes, 4 << 15};
}
