// Dot products within a lane (v_dot2_f32_f16 and the integer ones).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/types.h"
#include "numerics/half.h"

namespace vdev {

inline constexpr const char* kDot2Note =
    "products added one by one with f32 FMA: order and rounding not published";

// Whatever MODE says, f16 sources keep their denormals and a denormal addend counts as +0 (LLVM's
// notes on fdot2). A sum with f16 products is then never denormal itself.
inline f32 dot2_f32_f16(u32 a, u32 b, f32 c) {
  c = (bit_cast<u32>(c) & 0x7f800000u) ? c : 0.0f;
  auto half = [](u32 x, int i) { return bit_cast<f32>(widen_f16(static_cast<u16>(x >> 16 * i))); };
  return std::fma(half(a, 1), half(b, 1), std::fma(half(a, 0), half(b, 0), c));
}

// bf16 sources: denormals count as zeros and rounding is to nearest even, whatever MODE says, which
// the caller's MXCSR sees to.
inline f32 dot2_f32_bf16(u32 a, u32 b, f32 c) {
  auto half = [](u32 x, int i) { return bit_cast<f32>(i ? x & 0xffff0000u : x << 16); };
  return std::fma(half(a, 1), half(b, 1), std::fma(half(a, 0), half(b, 0), c));
}

template <class T>
inline T saturated(i64 x, bool clamp) {
  if (clamp) x = std::clamp<i64>(x, std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  return static_cast<T>(x);
}
// Sum over fields of `bits` bits, signed or not, of exact products; clamp saturates the total.
template <class T, int kBits>
inline T dot(u32 a, u32 b, T c, bool clamp) {
  i64 total = c;
  for (int i = 0; i < 32; i += kBits) {
    i64 x = a >> i & ((1u << kBits) - 1), y = b >> i & ((1u << kBits) - 1);
    if (std::is_signed_v<T>) {
      if (x >> (kBits - 1)) x -= i64{1} << kBits;
      if (y >> (kBits - 1)) y -= i64{1} << kBits;
    }
    total += x * y;
  }
  return saturated<T>(total, clamp);
}
inline i32 dot2_i32_i16(u32 a, u32 b, i32 c, bool clamp) { return dot<i32, 16>(a, b, c, clamp); }
inline u32 dot2_u32_u16(u32 a, u32 b, u32 c, bool clamp) { return dot<u32, 16>(a, b, c, clamp); }
inline i32 dot4_i32_i8(u32 a, u32 b, i32 c, bool clamp) { return dot<i32, 8>(a, b, c, clamp); }
inline u32 dot4_u32_u8(u32 a, u32 b, u32 c, bool clamp) { return dot<u32, 8>(a, b, c, clamp); }
inline i32 dot8_i32_i4(u32 a, u32 b, i32 c, bool clamp) { return dot<i32, 4>(a, b, c, clamp); }
inline u32 dot8_u32_u4(u32 a, u32 b, u32 c, bool clamp) { return dot<u32, 4>(a, b, c, clamp); }

}  // namespace vdev
