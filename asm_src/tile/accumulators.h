// A range of accumulation registers that a kernel takes by number (isa/acc.h), as accumulators of
// matrix instructions: four registers each.
#pragma once
#include "isa/acc.h"
#include "isa/unroll.h"
#include "tile/mma.h"

// a[kFirst : kFirst + 4 * kCount - 1]. What was written by a matrix instruction is read some waits
// behind it: the caller's.
template <int kFirst_, int kCount_>
struct Accumulators {
  static constexpr int kFirst = kFirst_, kCount = kCount_;
  static constexpr int kLast = kFirst + 4 * kCount - 1;
  static_assert(kFirst >= 0 && kCount >= 0 && kLast < 256);
  template <int n>
  static constexpr int kRegister = kFirst + 4 * n;

  static __device__ __forceinline__ void zero() {
    unroll_from<kFirst, kLast + 1>([]<int r>() { v_accvgpr_zero_b32<r>(); });
  }
  template <int n>
  static __device__ __forceinline__ f32x4 read() {
    static_assert(n < kCount);
    constexpr int r = kRegister<n>;
    return f32x4{v_accvgpr_read_b32<r>(), v_accvgpr_read_b32<r + 1>(), v_accvgpr_read_b32<r + 2>(),
                 v_accvgpr_read_b32<r + 3>()};
  }
  template <int n>
  static __device__ __forceinline__ void write(f32x4 x) {
    static_assert(n < kCount);
    unroll<4>([&]<int i>() {
      const float one = x[i];  // a cast of x[i] itself would take the bits of x[0]
      v_accvgpr_write_b32<kRegister<n> + i>(__builtin_bit_cast(uint32_t, one));
    });
  }
  // Accumulator n += a * b^T.
  template <Element kOf, int n>
  static __device__ __forceinline__ void mma(bf16x4 a, bf16x4 b) {
    static_assert(n < kCount);
    ordered::mma_into_acc<kOf, kMatrix, kRegister<n>>(a, b);
  }
};
