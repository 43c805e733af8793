// What operands with scales of 32 elements of k are made of (OCP MX), and the matrix instruction
// that takes them.
#pragma once
#include "isa/ordered_mx.h"
#include "tile/mma.h"

// Everything but the matrix instruction counts bytes instead of elements.
template <ordered::MxFormat kOf>
struct MxElements {
  using Format = ordered::MxFormat;
  static constexpr Format kFormat = kOf;
  static constexpr bool kIs8Bit = true;  // in bytes, and in what results are
  static constexpr int kBits = kOf <= Format::kE5m2 ? 8 : kOf == Format::kE2m1 ? 4 : 6;
  static constexpr int kBytes = 1, kOf16Bytes = 16;
  static constexpr Element kResult = Element::kBf16;
  // Of 64 clk.
  static constexpr bool kIsWide = kBits == 8;
  static constexpr int kReads = kIsWide ? 2 : 1, kOperands = 1;

  struct Operand {
    bf16x8 of[kReads];
  };

  // a[kD : kD + 15] += b * a^T, with the scales in byte kByte.
  template <int kD, int kByte>
  static __device__ __forceinline__ void mma(const Operand& b, const Operand& a, uint32_t scale_b,
                                             uint32_t scale_a) {
    ordered::v_mfma_scale_f32_32x32x64_f8f6f4_into_acc<kOf, kByte, kD>(whole(b), whole(a), scale_b,
                                                                       scale_a);
  }

 private:
  static __device__ __forceinline__ auto whole(const Operand& x) {
    if constexpr (kIsWide)
      return __builtin_shufflevector(x.of[0], x.of[kReads - 1], 0, 1, 2, 3, 4, 5, 6, 7);
    else
      return x.of[0];
  }
};
