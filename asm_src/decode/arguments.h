// The arguments of the decode kernels; their declaration has no guard of its own.
#pragma once
#include "isa/uniform.h"
// clang-format off
#include "args/attn_decode.h"
// clang-format on

using Arguments = Constant<AttnDecodeArgs>;

// The same, loaded again where it is used from here on: all of them at once are more than there are
// scalar registers.
__device__ __forceinline__ Arguments& anew(Arguments& args) {
  return *(Arguments*)anew((uint64_t)&args);
}
