// 4- and 6-bit floats of f8f6f4 as 8-bit ones: fp6 (e2m3), bf6 (e3m2) and fp4 (e2m1) have neither
// infinities nor NaNs, and all of their numbers are normal ones of fp8.
#pragma once

#include <array>

#include "numerics/mfma_layout.h"

namespace vdev::mfma {

template <int exponent_bits, int man_bits>
constexpr auto fp8_codes() {
  constexpr int kBias = (1 << (exponent_bits - 1)) - 1;
  std::array<u8, 2 << (exponent_bits + man_bits)> codes{};
  for (u32 code = 0; code < codes.size(); ++code) {
    const u32 sign = code >> (exponent_bits + man_bits);
    const int field = static_cast<int>(code >> man_bits) & ((1 << exponent_bits) - 1);
    int exponent = (field > 0 ? field : 1) - kBias;
    u32 significand = (code & ((1u << man_bits) - 1)) | (field > 0 ? 1u << man_bits : 0);
    for (; significand && !(significand >> man_bits); significand <<= 1) --exponent;
    const u32 fraction = significand << (3 - man_bits) & 7;
    const u32 magnitude = significand ? static_cast<u32>(exponent + 7) << 3 | fraction : 0;
    codes[code] = static_cast<u8>(sign << 7 | magnitude);
  }
  return codes;
}

// An operand with `rows` rows of A or columns of B, in the places that fp8 has.
template <int bits>
void widen(const u8* codes, int rows, const Reg* narrow, Reg* wide) {
  constexpr int kPerLane = 32, kAtOnce = 8;  // of a run of 16
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int first = 0; first < kPerLane; first += kAtOnce) {
      const int bit = first * bits, dword = bit / 32;
      u64 from = narrow[dword].lane[lane];
      if (bits > 4) from |= u64{narrow[dword + 1].lane[lane]} << 32;
      from >>= bit % 32;
      u64 bytes = 0;
      for (int n = 0; n < kAtOnce; ++n)
        bytes |= u64{codes[from >> bits * n & ((1u << bits) - 1)]} << 8 * n;
      const ElementPlace place =
          input_place(rows, 1, kPerLane, 8, 0, lane % rows, lane / rows * kPerLane + first);
      wide[place.index / 4].lane[place.lane] = static_cast<u32>(bytes);
      wide[place.index / 4 + 1].lane[place.lane] = static_cast<u32>(bytes >> 32);
    }
  }
}

// Returns `wide`.
inline const Reg* as_fp8(MfmaSrc type, int rows, const Reg* narrow, Reg* wide) {
  static constexpr auto kFp6 = fp8_codes<2, 3>(), kBf6 = fp8_codes<3, 2>();
  static constexpr auto kFp4 = fp8_codes<2, 1>();
  if (type == MfmaSrc::kFp4)
    widen<4>(kFp4.data(), rows, narrow, wide);
  else
    widen<6>(type == MfmaSrc::kFp6 ? kFp6.data() : kBf6.data(), rows, narrow, wide);
  return wide;
}

}  // namespace vdev::mfma
