// `wanted` of 18 scalars; that of seven is in isa/uniform.h.
#pragma once
#include "isa/device.h"

// An empty statement with all of them as operands: the compiler has to have them in scalar
// registers here, used or not, so that their loads are under way together.
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
