// Wide loads and matrix instructions of a stream through registers, ordered as in isa/ordered.h.
#pragma once
#include "isa/ordered.h"

using u32x8 = uint32_t __attribute__((ext_vector_type(8)));

namespace ordered {

// 16 bytes a lane from base + offset + uniform + kOffset; what lies beyond the descriptor's bytes
// reads as 0 and costs no memory access.
template <int kOffset>
__device__ __forceinline__ void buffer_load_dwordx4(u32x4& d, uint32_t offset, u32x4 buffer,
                                                    uint32_t uniform) {
  asm volatile("buffer_load_dwordx4 %0, %1, %2, %3 offen offset:%4"
               : "=v"(d)
               : "v"(offset), "s"(buffer), "s"(uniform), "n"(kOffset));
}

__device__ __forceinline__ void buffer_load_ushort(uint32_t& d, uint32_t offset, u32x4 buffer) {
  asm volatile("buffer_load_ushort %0, %1, %2, 0 offen" : "=v"(d) : "v"(offset), "s"(buffer));
}

__device__ __forceinline__ void global_load_ushort(uint32_t& d, const Global<uint16_t>* address) {
  asm volatile("global_load_ushort %0, %1, off" : "=v"(d) : "v"(address));
}

// ---- Scalar loads: 4 and 8 dwords from base + kOffset
template <int kOffset>
__device__ __forceinline__ void s_load_dwordx4(u32x4& d, uint64_t base) {
  asm volatile("s_load_dwordx4 %0, %1, %2" : "=s"(d) : "s"(base), "n"(kOffset));
}
template <int kOffset>
__device__ __forceinline__ void s_load_dwordx8(u32x8& d, uint64_t base) {
  asm volatile("s_load_dwordx8 %0, %1, %2" : "=s"(d) : "s"(base), "n"(kOffset));
}

// ---- Memory that other workgroups of the launch write or read: sc1 is agent scope.
__device__ __forceinline__ void global_store_dwordx4_sc1(uint64_t address, u32x4 x) {
  asm volatile("global_store_dwordx4 %0, %1, off sc1" ::"v"(address), "v"(x) : "memory");
}
__device__ __forceinline__ void global_load_dwordx4_sc1(u32x4& d, uint64_t address) {
  asm volatile("global_load_dwordx4 %0, %1, off sc1" : "=v"(d) : "v"(address) : "memory");
}
__device__ __forceinline__ void global_store_dwordx2_sc1(uint64_t address, uint64_t x) {
  asm volatile("global_store_dwordx2 %0, %1, off sc1" ::"v"(address), "v"(x) : "memory");
}
__device__ __forceinline__ void global_atomic_umax_x2(uint64_t address, uint64_t x) {
  asm volatile("global_atomic_umax_x2 %0, %1, off sc1" ::"v"(address), "v"(x) : "memory");
}
__device__ __forceinline__ void global_atomic_add_x2_return(uint64_t& old, uint64_t address,
                                                            uint64_t x) {
  asm volatile("global_atomic_add_x2 %0, %1, %2, off sc0 sc1"
               : "=v"(old)
               : "v"(address), "v"(x)
               : "memory");
}

__device__ __forceinline__ void global_load_dwordx2_sc1(uint64_t& d, uint64_t address) {
  asm volatile("global_load_dwordx2 %0, %1, off sc1" : "=v"(d) : "v"(address) : "memory");
}
__device__ __forceinline__ void global_atomic_add_f32(uint64_t address, float x) {
  asm volatile("global_atomic_add_f32 %0, %1, off sc1" ::"v"(address), "v"(x) : "memory");
}
__device__ __forceinline__ void global_atomic_swap_return(uint32_t& old, uint64_t address,
                                                          uint32_t x) {
  asm volatile("global_atomic_swap %0, %1, %2, off sc0 sc1"
               : "=v"(old)
               : "v"(address), "v"(x)
               : "memory");
}
// Writes the first half of `x` where memory holds the second; the first half becomes what it held.
__device__ __forceinline__ void buffer_atomic_cmpswap_x2_return(u32x4& x, uint32_t offset,
                                                                u32x4 buffer) {
  asm volatile("buffer_atomic_cmpswap_x2 %0, %1, %2, 0 offen sc0 sc1"
               : "+v"(x)
               : "v"(offset), "s"(buffer)
               : "memory");
}

}  // namespace ordered
