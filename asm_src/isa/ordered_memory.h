// Memory instructions that stay where they are written, as in isa/ordered.h: wide loads of a main
// loop, and what workgroups of a launch exchange.
//
// A load's result never lies in the registers that it reads: where page faults are retried (XNACK)
// the instructions of a clause, that is with nothing between, may be issued again. That no other
// one of the clause writes them is the caller's; `end_clause` is something between.
#pragma once
#include "isa/ordered.h"

using u32x8 = uint32_t __attribute__((ext_vector_type(8)));

namespace ordered {

__device__ __forceinline__ void end_clause() { s_nop<1>(); }

// These registers are in use up to here.
template <class... T>
__device__ __forceinline__ void keep(T... x) {
  const auto one = [](auto each) { asm volatile("" ::"v"(each)); };
  (one(x), ...);
}

// 16 bytes a lane from base + offset + kOffset; what lies beyond the descriptor's bytes reads as 0
// and costs no memory access.
template <int kOffset>
__device__ __forceinline__ void buffer_load_dwordx4(bf16x8& d, uint32_t offset, u32x4 buffer) {
  asm volatile("buffer_load_dwordx4 %0, %1, %2, 0 offen offset:%3"
               : "=&v"(d)
               : "v"(offset), "s"(buffer), "n"(kOffset));
}

template <int kOffset>
__device__ __forceinline__ void buffer_load_ushort(uint32_t& d, uint32_t offset, u32x4 buffer) {
  asm volatile("buffer_load_ushort %0, %1, %2, 0 offen offset:%3"
               : "=&v"(d)
               : "v"(offset), "s"(buffer), "n"(kOffset));
}

__device__ __forceinline__ void global_load_ushort(uint32_t& d, const Global<uint16_t>* address) {
  asm volatile("global_load_ushort %0, %1, off" : "=&v"(d) : "v"(address));
}

// ---- Scalar loads: 4 and 8 dwords from base + kOffset
template <int kOffset>
__device__ __forceinline__ void s_load_dwordx4(u32x4& d, uint64_t base) {
  asm volatile("s_load_dwordx4 %0, %1, %2" : "=&s"(d) : "s"(base), "n"(kOffset));
}
template <int kOffset>
__device__ __forceinline__ void s_load_dwordx8(u32x8& d, uint64_t base) {
  asm volatile("s_load_dwordx8 %0, %1, %2" : "=&s"(d) : "s"(base), "n"(kOffset));
}

// ---- Memory that workgroups of a launch exchange, at agent scope, as LLVM 22 has it for gfx942.
// Loads and stores with sc1 are of that scope, atomics without it: sc0 asks for the old value, and
// with sc1 they would be of system scope. A release is buffer_wbl2 sc1 and a wait in front of the
// store or atomic, an acquire a wait and buffer_inv sc1 behind the load or atomic.
// Addresses: base + offset + kOffset, `base` the same in all lanes.
template <int kOffset = 0>
__device__ __forceinline__ void global_store_dwordx4_sc1(uint64_t base, uint32_t offset, u32x4 x) {
  asm volatile("global_store_dwordx4 %0, %1, %2 offset:%3 sc1" ::"v"(offset), "v"(x), "s"(base),
               "n"(kOffset)
               : "memory");
}
template <int kOffset = 0>
__device__ __forceinline__ void global_load_dwordx4_sc1(u32x4& d, uint64_t base, uint32_t offset) {
  asm volatile("global_load_dwordx4 %0, %1, %2 offset:%3 sc1"
               : "=&v"(d)
               : "v"(offset), "s"(base), "n"(kOffset)
               : "memory");
}
__device__ __forceinline__ void global_store_dwordx2_sc1(uint64_t base, uint32_t offset,
                                                         uint64_t x) {
  asm volatile("global_store_dwordx2 %0, %1, %2 sc1" ::"v"(offset), "v"(x), "s"(base) : "memory");
}
__device__ __forceinline__ void global_load_dwordx2_sc1(uint64_t& d, uint64_t base,
                                                        uint32_t offset) {
  asm volatile("global_load_dwordx2 %0, %1, %2 sc1" : "=&v"(d) : "v"(offset), "s"(base) : "memory");
}
__device__ __forceinline__ void global_atomic_umax_x2(uint64_t base, uint32_t offset, uint64_t x) {
  asm volatile("global_atomic_umax_x2 %0, %1, %2" ::"v"(offset), "v"(x), "s"(base) : "memory");
}
__device__ __forceinline__ void global_atomic_add_x2_return(uint64_t& old, uint64_t base,
                                                            uint32_t offset, uint64_t x) {
  asm volatile("global_atomic_add_x2 %0, %1, %2, %3 sc0"
               : "=&v"(old)
               : "v"(offset), "v"(x), "s"(base)
               : "memory");
}
template <int kOffset>
__device__ __forceinline__ void global_atomic_add_f32(uint64_t base, uint32_t offset, float x) {
  asm volatile("global_atomic_add_f32 %0, %1, %2 offset:%3" ::"v"(offset), "v"(x), "s"(base),
               "n"(kOffset)
               : "memory");
}
template <int kOffset>
__device__ __forceinline__ void global_atomic_swap_return(uint32_t& old, uint64_t base,
                                                          uint32_t offset, uint32_t x) {
  asm volatile("global_atomic_swap %0, %1, %2, %3 offset:%4 sc0"
               : "=&v"(old)
               : "v"(offset), "v"(x), "s"(base), "n"(kOffset)
               : "memory");
}
// Writes the first half of `x` where memory holds the second; the first half becomes what it held.
// Its result does lie in what it reads: nothing of its clause may be next to it.
__device__ __forceinline__ void buffer_atomic_cmpswap_x2_return(u32x4& x, uint32_t offset,
                                                                u32x4 buffer) {
  asm volatile("buffer_atomic_cmpswap_x2 %0, %1, %2, 0 offen sc0"
               : "+v"(x)
               : "v"(offset), "s"(buffer)
               : "memory");
}
__device__ __forceinline__ void buffer_wbl2_sc1() { asm volatile("buffer_wbl2 sc1" ::: "memory"); }
__device__ __forceinline__ void buffer_inv_sc1() { asm volatile("buffer_inv sc1" ::: "memory"); }

}  // namespace ordered
