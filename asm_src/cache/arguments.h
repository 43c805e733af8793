// The arguments of the kernel that copies caches to rows; their declaration has no guard of its
// own.
#pragma once
#include "isa/uniform.h"
// clang-format off
#include "args/cache_rows.h"
// clang-format on

using RowsArguments = Constant<CacheRowsArgs>;

// The same, loaded again where it is used from here on: all of them at once are more than there are
// scalar registers.
__device__ __forceinline__ RowsArguments& anew(RowsArguments& args) {
  return *(RowsArguments*)anew((uint64_t)&args);
}

__device__ __forceinline__ int least_of(int a, int b) { return a < b ? a : b; }
__device__ __forceinline__ uint32_t least_of(uint32_t a, uint32_t b) { return a < b ? a : b; }
__device__ __forceinline__ int most_of(int a, int b) { return a > b ? a : b; }
