// Columns of 8 bits next to each other, to any address.
#pragma once
#include "quantize/chunk.h"

template <int kWidth>
__device__ __forceinline__ void store_all(Global<uint8_t>* to, uint64_t bits) {
  if constexpr (kWidth == 8) store_at_any_byte(to, bits);
  if constexpr (kWidth == 4) store_at_any_byte(to, uint32_t(bits));
  if constexpr (kWidth == 1) *to = uint8_t(bits);
}
// The last `count` only, fewer than all.
template <int kWidth>
__device__ __forceinline__ void store_last(int count, Global<uint8_t>* to, uint64_t bits) {
  to += kWidth - count;
  bits >>= 8 * (kWidth - count);
  if constexpr (kWidth == 8)
    if (count & 4) {
      store_at_any_byte(to, uint32_t(bits));
      to += 4;
      bits >>= 32;
    }
  if constexpr (kWidth >= 4) {
    if (count & 2) {
      store_at_any_byte(to, uint16_t(bits));
      to += 2;
      bits >>= 16;
    }
    if (count & 1) *to = uint8_t(bits);
  }
}
