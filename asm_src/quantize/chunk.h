// Columns of a row next to each other, in the registers of a lane as in memory: 16 bytes, or one.
#pragma once
#include "isa/global.h"
#include "isa/valu.h"

enum class Wide { kBf16, kF16, kF32 };

template <Wide kOf>
inline constexpr int kBytesOf = kOf == Wide::kF32 ? 4 : 2;

// 8-bit elements begin at any byte: HSA runs with unaligned access.
template <class T>
__device__ __forceinline__ void store_at_any_byte(Global<uint8_t>* to, T bits) {
  struct Packed {
    T bits;
  } __attribute__((packed));
  ((Global<Packed>*)to)->bits = bits;
}

template <Wide kOf, int kWidth>
struct WideChunk {
  static constexpr int kBytes = kBytesOf<kOf>;  // of a column
  static constexpr int kDwords = kWidth * kBytes < 4 ? 1 : kWidth * kBytes / 4;
  static_assert(kWidth == 1 || kWidth * kBytes == 16);
  DwordsAnywhere<kDwords> bits;

  static __device__ __forceinline__ WideChunk load(const Global<uint8_t>* from) {
    if constexpr (kWidth * kBytes == 2) return {*(const Global<uint16_t>*)from};
    return {global_load_anywhere<kDwords>(from)};
  }
  // In float32.
  __device__ __forceinline__ float operator[](int i) const {
    if constexpr (kOf == Wide::kF32) return __builtin_bit_cast(float, uint32_t(bits[i]));
    const uint32_t pair = bits[i / 2];
    if constexpr (kOf == Wide::kBf16)
      return __builtin_bit_cast(float, i % 2 ? pair & 0xffff0000 : pair << 16);
    return float(__builtin_bit_cast(_Float16, uint16_t(i % 2 ? pair >> 16 : pair)));
  }
  // The greatest magnitude of those and of `other`; NaN is none. A signalling one is made quiet: of
  // it the maximum would be NaN, and the next one would forget `other`. Conversions have done so.
  __device__ __forceinline__ float greatest(float other) const {
    for (int i = 0; i < kWidth; ++i) {
      float x = __builtin_fabsf((*this)[i]);
      if constexpr (kOf != Wide::kF16) x = __builtin_canonicalizef(x);
      other = v_max_f32(other, x);
    }
    return other;
  }
};
