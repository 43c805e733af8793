// The arguments of the kernel that copies caches to rows; their declaration has no guard of its
// own.
#pragma once
#include "isa/uniform.h"
#include "tile/integers.h"
// clang-format off
#include "args/cache_rows.h"
// clang-format on

using RowsArguments = Constant<CacheRowsArgs>;

// The same, loaded again where it is used from here on: all of them at once are more than there are
// scalar registers.
__device__ __forceinline__ RowsArguments& anew(RowsArguments& args) {
  return *(RowsArguments*)anew((uint64_t)&args);
}
