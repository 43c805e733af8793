// What operands are made of, and the matrix instruction of 16 rows that takes them.
#pragma once
#include "isa/mfma_8bit.h"
#include "isa/ordered_dwords.h"
#include "tile/accumulators.h"

// Of both operands one type of 16 bits, which results and the bias may have, too.
template <Element kOf>
struct Words {
  static constexpr Element kResult = kOf;
  static constexpr int kBytes = 2, kOperands = 8 / Here::kOperandElements;  // of a load
  using Stored = uint16_t;
  using Packed = bf16x8;  // eight elements

  static __device__ __forceinline__ void load(uint32_t& d, const Global<Stored>* from) {
    ordered::global_load_ushort(d, from);
  }
  // a[kD : kD + 3] += b * a^T
  template <int kD, class Operand>
  static __device__ __forceinline__ void mma_into_acc(Operand b, Operand a) {
    ordered::mma_into_acc<kOf, kMatrix, kD>(b, a);
  }
  // b * a^T + c
  static __device__ __forceinline__ f32x4 mma(Packed b, Packed a, f32x4 c) {
    return ::mma<kOf>(b, a, c);
  }
};

enum class ByteElement { kE4m3, kE5m2 };

// Of A and of B any two types of 8 bits; results have 16 or 32.
template <ByteElement kA, ByteElement kB>
struct Bytes {
  static constexpr Element kResult = Element::kBf16;
  static constexpr int kBytes = 1, kOperands = 2;
  using Stored = uint8_t;
  using Packed = bf16x4;

  static __device__ __forceinline__ void load(uint32_t& d, const Global<Stored>* from) {
    ordered::global_load_ubyte(d, from);
  }
  template <int kD>
  static __device__ __forceinline__ void mma_into_acc(bf16x4 b, bf16x4 a) {
    if constexpr (kB == ByteElement::kE4m3 && kA == ByteElement::kE4m3)
      ordered::v_mfma_f32_16x16x32_fp8_fp8_into_acc<kD>(b, a);
    else if constexpr (kB == ByteElement::kE4m3)
      ordered::v_mfma_f32_16x16x32_fp8_bf8_into_acc<kD>(b, a);
    else if constexpr (kA == ByteElement::kE4m3)
      ordered::v_mfma_f32_16x16x32_bf8_fp8_into_acc<kD>(b, a);
    else
      ordered::v_mfma_f32_16x16x32_bf8_bf8_into_acc<kD>(b, a);
  }
  static __device__ __forceinline__ f32x4 mma(Packed b, Packed a, f32x4 c) {
    if constexpr (kB == ByteElement::kE4m3 && kA == ByteElement::kE4m3)
      return v_mfma_f32_16x16x32_fp8_fp8(b, a, c);
    else if constexpr (kB == ByteElement::kE4m3)
      return v_mfma_f32_16x16x32_fp8_bf8(b, a, c);
    else if constexpr (kA == ByteElement::kE4m3)
      return v_mfma_f32_16x16x32_bf8_fp8(b, a, c);
    else
      return v_mfma_f32_16x16x32_bf8_bf8(b, a, c);
  }
};
