// Basic types of the virtual device.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vdev {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i8 = std::int8_t;
using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
using f32 = float;
using f64 = double;

inline constexpr int kLanes = 64;  // wave64 only: gfx942 has no wave32

// One 32-bit vector register: a dword per lane. Registers of a wave are contiguous, so a 64-bit
// operand is two consecutive Regs (low dwords, then high dwords).
struct alignas(64) Reg {
  u32 lane[kLanes];
};

template <class To, class From>
inline To bit_cast(From value) {
  return std::bit_cast<To>(value);
}

}  // namespace vdev
