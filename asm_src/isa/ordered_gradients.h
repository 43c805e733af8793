// Instructions that stay where they are written, as in isa/ordered.h, of gradients of attention.
#pragma once
#include "isa/ordered.h"

namespace ordered {

// ---- Matrix: d = a * b^T + c
#define MFMA_FROM(shape, element, Operand)                                                    \
  __device__ __forceinline__ void v_mfma_f32_##element##_from(f32x4& d, Operand a, Operand b, \
                                                              f32x4 c) {                      \
    asm volatile("v_mfma_f32_" #shape "_" #element " %0, %1, %2, %3"                          \
                 : "=&v"(d)                                                                   \
                 : "v"(a), "v"(b), "v"(c));                                                   \
  }
MFMA_FROM(16x16x16, bf16, bf16x4)
MFMA_FROM(16x16x16, f16, bf16x4)
MFMA_FROM(16x16x32, bf16, bf16x8)
MFMA_FROM(16x16x32, f16, bf16x8)
#undef MFMA_FROM

// ---- Vector
// Two numbers, to each of which half of a unit of its upper 16 bits is added: in one instruction,
// since no number but a NaN carries into the next one.
__device__ __forceinline__ uint64_t v_lshl_add_u64(uint64_t a, uint64_t b) {
  uint64_t d;
  asm volatile("v_lshl_add_u64 %0, %1, 0, %2" : "=v"(d) : "v"(a), "s"(b));
  return d;
}

// ---- Scalar
// A buffer begins so many bytes earlier and has a size of its own, in place: of registers that it
// chooses the compiler copies all four.
#define MOVE_BUFFER_BACK(place, all, lo, hi, size)                                               \
  if constexpr (kPlace == place)                                                                 \
  asm volatile("s_sub_u32 " lo ", " lo ", %1\n\ts_subb_u32 " hi ", " hi ", 0\n\ts_mov_b32 " size \
               ", %2"                                                                            \
               : "+{" all "}"(buffer)                                                            \
               : "s"(by), "s"(bytes)                                                             \
               : "scc")
template <int kPlace>
__device__ __forceinline__ void move_buffer_back(u32x4& buffer, uint32_t by, uint32_t bytes) {
  static_assert(kPlace >= 0 && kPlace < 3);
  MOVE_BUFFER_BACK(0, "s[36:39]", "s36", "s37", "s38");
  MOVE_BUFFER_BACK(1, "s[40:43]", "s40", "s41", "s42");
  MOVE_BUFFER_BACK(2, "s[44:47]", "s44", "s45", "s46");
}
#undef MOVE_BUFFER_BACK

// ---- LDS
// The lower or the upper half of x.
template <int kOffset, int kHalf>
__device__ __forceinline__ void ds_write_b16(uint32_t address, uint32_t x) {
  if constexpr (kHalf == 0)
    asm volatile("ds_write_b16 %0, %1 offset:%2" ::"v"(address), "v"(x), "n"(kOffset));
  else
    asm volatile("ds_write_b16_d16_hi %0, %1 offset:%2" ::"v"(address), "v"(x), "n"(kOffset));
}
// Two at once; the second one so many of their size further on, of dwords the first one as well.
template <int kSecond>
__device__ __forceinline__ void ds_write2_b64(uint32_t address, u32x2 x, u32x2 y) {
  asm volatile("ds_write2_b64 %0, %1, %2 offset1:%3" ::"v"(address), "v"(x), "v"(y), "n"(kSecond));
}
template <int kFirst, int kSecond>
__device__ __forceinline__ void ds_write2_b32(uint32_t address, uint32_t x, uint32_t y) {
  asm volatile("ds_write2_b32 %0, %1, %2 offset0:%3 offset1:%4" ::"v"(address), "v"(x), "v"(y),
               "n"(kFirst), "n"(kSecond));
}

}  // namespace ordered
