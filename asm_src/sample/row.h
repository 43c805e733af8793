// Logits of a row and their keys.
#pragma once
#include "isa/global.h"
#include "sample/workgroup.h"
// clang-format off
#include "args/sample.h"
// clang-format on

// Of a float32, so that greater ones have greater keys and both zeros the same; that of no number
// is 0.
__device__ __forceinline__ uint32_t key_of(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x + 0.0f);
  if (x != x) return 0;
  return bits ^ (int32_t(bits) < 0 ? ~0u : 1u << 31);
}
__device__ __forceinline__ float value_of(uint32_t key) {
  return __builtin_bit_cast(float, key ^ (int32_t(key) < 0 ? 1u << 31 : ~0u));
}
inline constexpr uint32_t kLeastKey = 0x00800000;  // of numbers greater than -infinity

// Of equal ones the first column is the greatest.
__device__ __forceinline__ uint64_t with_column(float x, int column) {
  return uint64_t(key_of(x)) << 32 | uint32_t(~column);
}
__device__ __forceinline__ int column_of(uint64_t best) { return int(~uint32_t(best)); }

// kElement: 0 float32, 1 bfloat16, 2 float16.
template <int kElement>
struct Logits {
  static constexpr int kBytes = kElement == 0 ? 4 : 2;
  const SampleArgs& args;
  int row;
  int64_t first = row * args.logits_stride;

  __device__ __forceinline__ const Global<char>* at(int column) const {
    return (const Global<char>*)args.logits + (first + column) * kBytes;
  }
  static __device__ __forceinline__ float of_half(uint16_t bits) {
    if constexpr (kElement == 1) return __builtin_bit_cast(float, uint32_t(bits) << 16);
    return float(__builtin_bit_cast(_Float16, bits));
  }
  __device__ __forceinline__ float load(int column) const {
    if constexpr (kElement == 0) return *(const Global<float>*)at(column);
    return of_half(*(const Global<uint16_t>*)at(column));
  }
  // Four columns; of those behind the last one NaN.
  __device__ __forceinline__ void load(float (&x)[4], int column) const {
    if (column + 4 <= args.columns) {
      const auto dwords = global_load_anywhere<kBytes>(at(column));
      for (int i = 0; i < 4; ++i) {
        const uint32_t dword = dwords[i * kBytes / 4];  // a bit cast takes no element of a vector
        if constexpr (kElement == 0)
          x[i] = __builtin_bit_cast(float, dword);
        else
          x[i] = of_half(uint16_t(dword >> i % 2 * 16));
      }
    } else {
      for (int i = 0; i < 3; ++i)
        x[i] = column + i < args.columns ? load(column + i) : __builtin_nanf("");
      x[3] = __builtin_nanf("");
    }
  }
  __device__ __forceinline__ float penalised(float x) const {
    return x < 0 ? x * args.penalty : x / args.penalty;
  }
  // A bit in `seen` of each token so far of columns [first, first + columns). Ends with a barrier.
  template <int kLanes>
  __device__ __forceinline__ void mark(Local<uint32_t>* seen, int first, int columns) const {
    Workgroup<kLanes>::join();
    for (int i = Lane::in_workgroup(); i < (columns + 31) / 32; i += kLanes) seen[i] = 0;
    Workgroup<kLanes>::join();
    const auto* tokens = (const Global<int32_t>*)args.tokens + row * args.tokens_stride;
    for (int i = Lane::in_workgroup(); i < args.history; i += kLanes) {
      const uint32_t token = tokens[i] - first;
      if (token < uint32_t(columns))
        __atomic_fetch_or(&seen[token / 32], 1u << token % 32, __ATOMIC_RELAXED);
    }
    Workgroup<kLanes>::join();
  }
};
