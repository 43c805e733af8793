// Matrix instructions of 8-, 6- and 4-bit floats with scales, and what brings these, which stay
// where they are written, as in isa/ordered.h.
#pragma once
#include "isa/ordered.h"

namespace ordered {

// What cbsz and blgp select.
enum class MxFormat { kE4m3, kE5m2, kE2m3, kE3m2, kE2m1 };

// a[kD : kD + 15] += a * b^T, 32 x 32, of 64 elements of k, 32 a lane. The scales, 8 bits of
// exponent, are byte kByte of a register: lane l has that of row l % 32 and of its own 32 elements.
template <MxFormat kOf, int kByte, int kD, class Operand>
__device__ __forceinline__ void v_mfma_scale_f32_32x32x64_f8f6f4_into_acc(Operand a, Operand b,
                                                                          uint32_t scale_a,
                                                                          uint32_t scale_b) {
  asm volatile(
      "v_mfma_scale_f32_32x32x64_f8f6f4 a[%c4:%c5], %0, %1, a[%c4:%c5], %2, %3 "
      "op_sel:[%c6,%c6,0] op_sel_hi:[%c7,%c7,0] cbsz:%c8 blgp:%c8" ::"v"(a),
      "v"(b), "v"(scale_a), "v"(scale_b), "n"(kD), "n"(kD + 15), "n"(kByte % 2), "n"(kByte / 2),
      "n"(int(kOf)));
}

// In place, so that the register of a value stays the same where paths meet.
__device__ __forceinline__ void buffer_load_dwordx4_to(u32x4& d, uint32_t offset, u32x4 buffer) {
  asm volatile("buffer_load_dwordx4 %0, %1, %2, 0 offen" : "+v"(d) : "v"(offset), "s"(buffer));
}
template <int kOffset>
__device__ __forceinline__ void ds_read_b128_to(u32x4& d, uint32_t address) {
  asm volatile("ds_read_b128 %0, %1 offset:%2" : "+v"(d) : "v"(address), "n"(kOffset));
}
template <int kConstant>
__device__ __forceinline__ void v_add_u32_in_place(uint32_t& a) {
  asm volatile("v_add_u32 %0, %1, %0" : "+v"(a) : "n"(kConstant));
}
// Bytes of a pair of registers, as a register of the lane selects them: 0 to 3 of `lo`, 4 to 7 of
// `hi`, 12 is 0.
__device__ __forceinline__ void v_perm_b32_to(uint32_t& d, uint32_t hi, uint32_t lo,
                                              uint32_t selector) {
  asm volatile("v_perm_b32 %0, %1, %2, %3" : "+v"(d) : "v"(hi), "v"(lo), "v"(selector));
}

}  // namespace ordered
