// What operands are made of, and the matrix instruction that takes them.
#pragma once
#include "isa/ordered_mfma_8bit.h"
#include "tile/accumulators.h"
#include "tile/mma.h"

enum class TileElement { kBf16, kF16, kE4m3, kE5m2 };

// Elements of A and of B: of one 16-bit type, or of any two of 8 bits.
template <TileElement kA_, TileElement kB_>
struct TileElements {
  static constexpr TileElement kA = kA_, kB = kB_;
  static constexpr bool kIs8Bit = kA == TileElement::kE4m3 || kA == TileElement::kE5m2;
  static_assert(kIs8Bit ? kB == TileElement::kE4m3 || kB == TileElement::kE5m2 : kA == kB);
  static constexpr int kBytes = kIs8Bit ? 1 : 2, kOf16Bytes = 16 / kBytes;
  // Of the results that leave in whole lines, and of a bias: 8 bits are for operands.
  static constexpr Element kResult = kA == TileElement::kF16 ? Element::kF16 : Element::kBf16;
  // Reads of 16 bytes that one matrix instruction takes, and instructions that one read is for.
  static constexpr bool kIsWide = kIs8Bit && Here::kTransposesReads;
  static constexpr int kReads = kIsWide ? 2 : 1, kOperands = Here::kTransposesReads ? 1 : 2;

  struct Operand {
    bf16x8 of[kReads];
  };

  // a[kD : kD + 15] += b * a^T; `nth` of the kOperands.
  template <int kD, int nth>
  static __device__ __forceinline__ void mma(const Operand& b, const Operand& a) {
    if constexpr (kIsWide)
      ordered::v_mfma_f32_32x32x64_f8f6f4_into_acc<kB == TileElement::kE5m2,
                                                   kA == TileElement::kE5m2, kD>(whole(b),
                                                                                 whole(a));
    else if constexpr (kIs8Bit)
      mma_8bit<kD>(half_of(b.of[0], nth), half_of(a.of[0], nth));
    else
      ordered::mma_into_acc<kResult, 32, kD>(operand_of<kOperands>(b.of[0], nth),
                                             operand_of<kOperands>(a.of[0], nth));
  }

 private:
  static __device__ __forceinline__ ordered::u32x8 whole(const Operand& x) {
    return __builtin_shufflevector(x.of[0], x.of[kReads - 1], 0, 1, 2, 3, 4, 5, 6, 7);
  }
  template <int kD>
  static __device__ __forceinline__ void mma_8bit(bf16x4 b, bf16x4 a) {
    if constexpr (kB == TileElement::kE4m3 && kA == TileElement::kE4m3)
      ordered::v_mfma_f32_32x32x16_fp8_fp8_into_acc<kD>(b, a);
    else if constexpr (kB == TileElement::kE4m3)
      ordered::v_mfma_f32_32x32x16_fp8_bf8_into_acc<kD>(b, a);
    else if constexpr (kA == TileElement::kE4m3)
      ordered::v_mfma_f32_32x32x16_bf8_fp8_into_acc<kD>(b, a);
    else
      ordered::v_mfma_f32_32x32x16_bf8_bf8_into_acc<kD>(b, a);
  }
};
