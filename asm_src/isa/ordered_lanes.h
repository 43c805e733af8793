// Vector and memory instructions that stay where they are written, as in isa/ordered.h, of kernels
// that exchange what lanes next to each other have.
#pragma once
#include "isa/ordered_memory.h"

namespace ordered {

// x of another lane: isa/dpp.h. Two wait states behind what wrote x.
template <int kWhich>
__device__ __forceinline__ uint32_t v_mov_b32_dpp(uint32_t x) {
  uint32_t d;
  if constexpr (kWhich == 0xb1)
    asm volatile("v_mov_b32_dpp %0, %1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf"
                 : "=v"(d)
                 : "v"(x));
  else if constexpr (kWhich == 0x4e)
    asm volatile("v_mov_b32_dpp %0, %1 quad_perm:[2,3,0,1] row_mask:0xf bank_mask:0xf"
                 : "=v"(d)
                 : "v"(x));
  else
    static_assert(kWhich < 0);
  return d;
}

// The bytes that a register of the lane selects: isa/valu.h.
__device__ __forceinline__ uint32_t v_perm_b32_lane(uint32_t hi, uint32_t lo, uint32_t selector) {
  uint32_t d;
  asm volatile("v_perm_b32 %0, %1, %2, %3" : "=v"(d) : "v"(hi), "v"(lo), "v"(selector));
  return d;
}

// b in these lanes, a of the other pair of four in others. Two wait states behind what wrote a.
// The lanes are in VCC, which the compiler must not use between.
template <int kWhich>
__device__ __forceinline__ uint32_t v_cndmask_b32_dpp(uint32_t a, uint32_t b, uint64_t lanes) {
  static_assert(kWhich == 0x4e);
  uint32_t d;
  asm volatile(
      "s_mov_b64 vcc, %3\n\t"
      "v_cndmask_b32_dpp %0, %1, %2, vcc quad_perm:[2,3,0,1] row_mask:0xf bank_mask:0xf"
      : "=v"(d)
      : "v"(a), "v"(b), "s"(lanes)
      : "vcc");
  return d;
}

// x becomes 0 but in these lanes.
__device__ __forceinline__ void v_cndmask_b32_0_or(float& x, uint64_t lanes) {
  asm volatile("v_cndmask_b32 %0, 0, %0, %1" : "+v"(x) : "s"(lanes));
}

// x * scale - y
__device__ __forceinline__ float v_fma_f32_minus(float x, float scale, float y) {
  float d;
  asm volatile("v_fma_f32 %0, %1, %2, -%3" : "=v"(d) : "v"(x), "s"(scale), "v"(y));
  return d;
}

__device__ __forceinline__ float v_sub_f32(float a, float b) {
  float d;
  asm volatile("v_sub_f32 %0, %1, %2" : "=v"(d) : "v"(a), "v"(b));
  return d;
}

__device__ __forceinline__ float v_mul_f32_vector(float a, float b) {
  float d;
  asm volatile("v_mul_f32 %0, %1, %2" : "=v"(d) : "v"(a), "v"(b));
  return d;
}

__device__ __forceinline__ void v_add_u32_to(uint32_t& a, uint32_t uniform) {
  asm volatile("v_add_u32 %0, %1, %0" : "+v"(a) : "s"(uniform));
}

template <int kOffset>
__device__ __forceinline__ void ds_write_b64(uint32_t address, u32x2 value) {
  asm volatile("ds_write_b64 %0, %1 offset:%2" ::"v"(address), "v"(value), "n"(kOffset));
}

template <int kOffset>
__device__ __forceinline__ void buffer_load_dwordx4_f32(f32x4& d, uint32_t offset, u32x4 buffer) {
  asm volatile("buffer_load_dwordx4 %0, %1, %2, 0 offen offset:%3"
               : "=&v"(d)
               : "v"(offset), "s"(buffer), "n"(kOffset));
}

// A dword of memory that workgroups of a launch exchange, by all lanes alike.
__device__ __forceinline__ void global_load_dword_sc1(uint32_t& d, uint64_t address) {
  asm volatile("global_load_dword %0, %1, %2 sc1" : "=&v"(d) : "v"(0), "s"(address) : "memory");
}
__device__ __forceinline__ void global_store_dword_sc1(uint64_t address, uint32_t x) {
  asm volatile("global_store_dword %0, %1, %2 sc1" ::"v"(0), "v"(x), "s"(address) : "memory");
}

__device__ __forceinline__ void global_store_dword_sc1_lane(uint64_t address, uint32_t x) {
  asm volatile("global_store_dword %0, %1, off sc1" ::"v"(address), "v"(x) : "memory");
}

// Adds at agent scope; nothing comes back. `x` is in use until two wait states behind it.
template <int kOffset>
__device__ __forceinline__ void buffer_atomic_add_f32(uint32_t offset, u32x4 buffer, float x) {
  asm volatile("buffer_atomic_add_f32 %0, %1, %2, 0 offen offset:%3" ::"v"(x), "v"(offset),
               "s"(buffer), "n"(kOffset)
               : "memory");
}

}  // namespace ordered
