// Accumulation registers by number. A kernel that needs all 256 of them cannot leave them to the
// register allocator, which keeps spare ones for copies and spills when there are none: it names
// them, and tells the compiler with reserve_acc() that they are taken.
#pragma once
#include "isa/device.h"

#define ACC_TEN(tens) \
  tens "0", tens "1", tens "2", tens "3", tens "4", tens "5", tens "6", tens "7", tens "8", tens "9"

// Nothing of the compiler's lives in an AGPR across this point.
__device__ __forceinline__ void reserve_acc() {
  asm volatile("" ::
                   : "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", ACC_TEN("a1"),
                     ACC_TEN("a2"), ACC_TEN("a3"), ACC_TEN("a4"), ACC_TEN("a5"), ACC_TEN("a6"),
                     ACC_TEN("a7"), ACC_TEN("a8"), ACC_TEN("a9"), ACC_TEN("a10"), ACC_TEN("a11"),
                     ACC_TEN("a12"), ACC_TEN("a13"), ACC_TEN("a14"), ACC_TEN("a15"), ACC_TEN("a16"),
                     ACC_TEN("a17"), ACC_TEN("a18"), ACC_TEN("a19"), ACC_TEN("a20"), ACC_TEN("a21"),
                     ACC_TEN("a22"), ACC_TEN("a23"), ACC_TEN("a24"), "a250", "a251", "a252", "a253",
                     "a254", "a255");
}

// The same of the first 96 only.
__device__ __forceinline__ void reserve_96_acc() {
  asm volatile("" ::
                   : "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", ACC_TEN("a1"),
                     ACC_TEN("a2"), ACC_TEN("a3"), ACC_TEN("a4"), ACC_TEN("a5"), ACC_TEN("a6"),
                     ACC_TEN("a7"), ACC_TEN("a8"), "a90", "a91", "a92", "a93", "a94", "a95");
}

template <int kRegister>
__device__ __forceinline__ float v_accvgpr_read_b32() {
  float x;
  asm volatile("v_accvgpr_read_b32 %0, a%c1" : "=v"(x) : "n"(kRegister));
  return x;
}

template <int kRegister>
__device__ __forceinline__ void v_accvgpr_write_b32(uint32_t x) {
  asm volatile("v_accvgpr_write_b32 a%c0, %1" ::"n"(kRegister), "v"(x));
}

template <int kRegister>
__device__ __forceinline__ void v_accvgpr_zero_b32() {
  asm volatile("v_accvgpr_write_b32 a%c0, 0" ::"n"(kRegister));
}

// The same for a kernel that names the registers from 0 to `last` (a literal number) only: the code
// object asks for as many. That the compiler uses none of them is what the build checks.
#define RESERVE_ACC_TO(last) RESERVE_ACC_LITERAL(last)
#define RESERVE_ACC_LITERAL(last) asm volatile("" ::: "a" #last)
