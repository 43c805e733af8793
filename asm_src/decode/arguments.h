// The arguments of the decode kernels; their declaration has no guard of its own.
#pragma once
#include "isa/uniform.h"
#include "isa/wanted.h"
// clang-format off
#include "args/attn_decode.h"
// clang-format on

using Arguments = Constant<AttnDecodeArgs>;

// All of them under way at once: they are then near when one after the other is loaded again.
__device__ __forceinline__ void fetch(Arguments& args) {
  constexpr int kLine = 64 / 4, kLines = 6;
  static_assert(sizeof(AttnDecodeArgs) / 64 == kLines);
  const auto* words = (Constant<uint32_t>*)&args;
  wanted(words[0], words[kLine], words[2 * kLine], words[3 * kLine], words[4 * kLine],
         words[5 * kLine], words[kLines * kLine]);
}

// The same, loaded again where it is used from here on: all of them at once are more than there are
// scalar registers.
__device__ __forceinline__ Arguments& anew(Arguments& args) {
  return *(Arguments*)anew((uint64_t)&args);
}
