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

// 1, 2 or 4 dwords at any address: HSA runs with unaligned access.
template <int kDwords>
using DwordsAnywhere = uint32_t __attribute__((ext_vector_type(kDwords), aligned(2)));

template <int kDwords>
__device__ __forceinline__ DwordsAnywhere<kDwords> global_load_anywhere(
    const Global<void>* address) {
  return *static_cast<const Global<DwordsAnywhere<kDwords>>*>(address);
}

template <int kDwords>
__device__ __forceinline__ void global_store_anywhere(Global<void>* address,
                                                      DwordsAnywhere<kDwords> value) {
  *static_cast<Global<DwordsAnywhere<kDwords>>*>(address) = value;
}
