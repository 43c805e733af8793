// Operands of matrix instructions in accumulation registers by number, results in vector registers,
// where they are written, as in isa/ordered.h.
#pragma once
#include "isa/device.h"

namespace ordered {

// d (+)= a * b^T, 32 x 32, of 8-bit floats with four bits of exponent. With kFirst d starts at 0.
// 16 elements of k, two registers an operand.
template <bool kFirst, int kA, int kB>
__device__ __forceinline__ void v_mfma_f32_32x32x16_fp8_fp8_of_acc(f32x16& d) {
  if constexpr (kFirst)
    asm volatile("v_mfma_f32_32x32x16_fp8_fp8 %0, a[%c1:%c2], a[%c3:%c4], 0"
                 : "+v"(d)
                 : "n"(kA), "n"(kA + 1), "n"(kB), "n"(kB + 1));
  else
    asm volatile("v_mfma_f32_32x32x16_fp8_fp8 %0, a[%c1:%c2], a[%c3:%c4], %0"
                 : "+v"(d)
                 : "n"(kA), "n"(kA + 1), "n"(kB), "n"(kB + 1));
}

// 64 elements of k, eight registers an operand.
template <bool kFirst, int kA, int kB>
__device__ __forceinline__ void v_mfma_f32_32x32x64_f8f6f4_of_acc(f32x16& d) {
  if constexpr (kFirst)
    asm volatile("v_mfma_f32_32x32x64_f8f6f4 %0, a[%c1:%c2], a[%c3:%c4], 0"
                 : "+v"(d)
                 : "n"(kA), "n"(kA + 7), "n"(kB), "n"(kB + 7));
  else
    asm volatile("v_mfma_f32_32x32x64_f8f6f4 %0, a[%c1:%c2], a[%c3:%c4], %0"
                 : "+v"(d)
                 : "n"(kA), "n"(kA + 7), "n"(kB), "n"(kB + 7));
}

// To a[kD : kD + 3].
template <int kD, int kOffset>
__device__ __forceinline__ void ds_read_b128_acc(uint32_t address) {
  asm volatile("ds_read_b128 a[%c1:%c2], %0 offset:%c3" ::"v"(address), "n"(kD), "n"(kD + 3),
               "n"(kOffset));
}

// To a[kD] and those behind it, two or four, through a descriptor.
template <int kD, int kDwords>
__device__ __forceinline__ void buffer_load_acc(uint32_t offset, u32x4 buffer) {
  static_assert(kDwords == 2 || kDwords == 4);
  if constexpr (kDwords == 2)
    asm volatile("buffer_load_dwordx2 a[%c2:%c3], %0, %1, 0 offen" ::"v"(offset), "s"(buffer),
                 "n"(kD), "n"(kD + 1));
  else
    asm volatile("buffer_load_dwordx4 a[%c2:%c3], %0, %1, 0 offen" ::"v"(offset), "s"(buffer),
                 "n"(kD), "n"(kD + 3));
}

// x += a * b
__device__ __forceinline__ void v_fmac_f32(float& x, float a, float b) {
  asm volatile("v_fmac_f32 %0, %1, %2" : "+v"(x) : "v"(a), "v"(b));
}

// In place, so that the register of a value stays the same where paths meet.
__device__ __forceinline__ void v_mul_f32_to(float& d, float a, float b) {
  asm volatile("v_mul_f32 %0, %1, %2" : "+v"(d) : "v"(a), "v"(b));
}
template <int kRegister>
__device__ __forceinline__ void v_accvgpr_read_b32_to(float& d) {
  asm volatile("v_accvgpr_read_b32 %0, a%c1" : "+v"(d) : "n"(kRegister));
}
template <int kConstant>
__device__ __forceinline__ void v_add_u32_constant_to(uint32_t& a) {
  asm volatile("v_add_u32 %0, %1, %0" : "+v"(a) : "n"(kConstant));
}

}  // namespace ordered
