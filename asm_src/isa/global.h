// Global memory instructions, 64-bit addresses, one a wrapper. The compiler places the waits.
#pragma once
#include "isa/device.h"

__device__ __forceinline__ u32x2 global_load_dwordx2(const Global<void>* address) {
  return *static_cast<const Global<u32x2>*>(address);
}

__device__ __forceinline__ u32x4 global_load_dwordx4(const Global<void>* address) {
  return *static_cast<const Global<u32x4>*>(address);
}

__device__ __forceinline__ void global_store_dword(Global<void>* address, float value) {
  *static_cast<Global<float>*>(address) = value;
}

__device__ __forceinline__ void global_store_dwordx4(Global<void>* address, u32x4 value) {
  *static_cast<Global<u32x4>*>(address) = value;
}

// The same at any address: HSA runs with unaligned access.
using u32x4_anywhere = uint32_t __attribute__((ext_vector_type(4), aligned(2)));

__device__ __forceinline__ u32x4 global_load_dwordx4_anywhere(const Global<void>* address) {
  return *static_cast<const Global<u32x4_anywhere>*>(address);
}

__device__ __forceinline__ void global_store_dwordx4_anywhere(Global<void>* address, u32x4 value) {
  *static_cast<Global<u32x4_anywhere>*>(address) = value;
}
