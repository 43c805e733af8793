// Matrix instructions of 8-bit floats, which stay where they are written, as in isa/ordered.h:
// a[kD : kD + 15] += a * b^T, 32 x 32. "fp8" has four bits of exponent, "bf8" five.
#pragma once
#include "isa/device.h"

namespace ordered {

using u32x8 = uint32_t __attribute__((ext_vector_type(8)));

// 16 elements of k, eight a lane.
#define MFMA(of_a, of_b)                                                                     \
  template <int kD>                                                                          \
  __device__ __forceinline__ void v_mfma_f32_32x32x16_##of_a##_##of_b##_into_acc(bf16x4 a,   \
                                                                                 bf16x4 b) { \
    asm volatile("v_mfma_f32_32x32x16_" #of_a "_" #of_b                                      \
                 " a[%c2:%c3], %0, %1, a[%c2:%c3]" ::"v"(a),                                 \
                 "v"(b), "n"(kD), "n"(kD + 15));                                             \
  }
MFMA(fp8, fp8)
MFMA(fp8, bf8)
MFMA(bf8, fp8)
MFMA(bf8, bf8)
#undef MFMA

// 64 elements of k, 32 a lane; formats are 0 for fp8, 1 for bf8.
template <int kFormatA, int kFormatB, int kD>
__device__ __forceinline__ void v_mfma_f32_32x32x64_f8f6f4_into_acc(u32x8 a, u32x8 b) {
  asm volatile(
      "v_mfma_f32_32x32x64_f8f6f4 a[%c2:%c3], %0, %1, a[%c2:%c3] cbsz:%c4 blgp:%c5" ::"v"(a),
      "v"(b), "n"(kD), "n"(kD + 15), "n"(kFormatA), "n"(kFormatB));
}

}  // namespace ordered
