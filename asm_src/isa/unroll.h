// Loops unrolled by the front end: the body is a template of its index.
#pragma once
#include "isa/device.h"

template <int kFrom, int kTo, class Body>
__device__ __forceinline__ void unroll_from(Body&& body) {
  if constexpr (kFrom < kTo) {
    // Whatever the inliner thinks of its worth: what is not inlined keeps its registers in memory.
    [[clang::always_inline]] body.template operator()<kFrom>();
    unroll_from<kFrom + 1, kTo>(body);
  }
}

template <int kTo, class Body>
__device__ __forceinline__ void unroll(Body&& body) {
  unroll_from<0, kTo>(body);
}
