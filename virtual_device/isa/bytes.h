// Byte-wise operations within a dword: permutation and sums of absolute differences.
#pragma once

#include <algorithm>

#include "core/types.h"

namespace vdev {

// Each byte of the selector picks a byte of {a, b} (b is bytes 0..3), a sign spread over the byte,
// 0x00 (12) or 0xff (13 and above).
inline u32 perm_b32(u32 a, u32 b, u32 selector) {
  const u64 bytes = u64{a} << 32 | b;
  u32 result = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 s = selector >> 8 * i & 0xff;
    u32 byte;
    if (s <= 7)
      byte = static_cast<u32>(bytes >> 8 * s) & 0xff;
    else if (s <= 11)
      byte = bytes >> (16 * (s - 8) + 15) & 1 ? 0xff : 0;
    else
      byte = s == 12 ? 0 : 0xff;
    result |= byte << 8 * i;
  }
  return result;
}

// Per-byte average; the low bit of each byte of c rounds up.
inline u32 lerp_u8(u32 a, u32 b, u32 c) {
  u32 result = 0;
  for (int i = 0; i < 32; i += 8)
    result |= (((a >> i & 0xff) + (b >> i & 0xff) + (c >> i & 1)) >> 1) << i;
  return result;
}

inline u32 absolute_difference(u32 a, u32 b) { return a < b ? b - a : a - b; }
inline u32 sad_u8(u32 a, u32 b) {
  u32 sum = 0;
  for (int i = 0; i < 32; i += 8) sum += absolute_difference(a >> i & 0xff, b >> i & 0xff);
  return sum;
}
inline u32 sad_u16(u32 a, u32 b) {
  return absolute_difference(a & 0xffff, b & 0xffff) + absolute_difference(a >> 16, b >> 16);
}
// Bytes whose reference is zero do not count.
inline u32 masked_sad_u8(u32 a, u32 reference) {
  u32 sum = 0;
  for (int i = 0; i < 32; i += 8)
    if (const u32 r = reference >> i & 0xff) sum += absolute_difference(a >> i & 0xff, r);
  return sum;
}
// Four sums over windows of a that slide by a byte, each added to a half of c.
inline u64 quad_sad_u16(u64 a, u32 b, u64 c, bool masked, bool clamp) {
  u64 result = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 window = static_cast<u32>(a >> 8 * i), base = static_cast<u32>(c >> 16 * i) & 0xffff;
    const u32 sum = (masked ? masked_sad_u8(window, b) : sad_u8(window, b)) + base;
    result |= u64{clamp && sum > 0xffff ? 0xffff : sum & 0xffff} << 16 * i;
  }
  return result;
}

}  // namespace vdev
