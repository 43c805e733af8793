// The arguments of the decode kernels; their declaration has no guard of its own.
#pragma once
#include "isa/uniform.h"
// clang-format off
#include "args/attn_decode.h"
// clang-format on

// Scalars, loaded if nothing else asks for them; all at once.
template <class... T>
  requires(sizeof...(T) == 18)
__device__ __forceinline__ void wanted(T... x) {
  const auto all = [](auto a, auto b, auto c, auto d, auto e, auto f, auto g, auto h, auto i,
                      auto j, auto k, auto l, auto m, auto n, auto o, auto p, auto q, auto r) {
    asm volatile("" ::"s"(a), "s"(b), "s"(c), "s"(d), "s"(e), "s"(f), "s"(g), "s"(h), "s"(i),
                 "s"(j), "s"(k), "s"(l), "s"(m), "s"(n), "s"(o), "s"(p), "s"(q), "s"(r));
  };
  all(x...);
}

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
