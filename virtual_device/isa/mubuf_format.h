// Typed buffer data: between memory formats (DFMT, NFMT) and registers.
#pragma once

#include "core/types.h"

namespace vdev::mubuf {

enum class NumFormat : u8 {
  kUnorm,
  kSnorm,
  kUscaled,
  kSscaled,
  kUint,
  kSint,
  kReserved6,
  kFloat,
};
constexpr bool is_integer(NumFormat n) { return n == NumFormat::kUint || n == NumFormat::kSint; }

// Component widths, X first; X lies in the lowest bits although names put it last (10_11_11).
struct DataFormat {
  const char* name;
  u8 bits[4];
  u8 bytes;
  int components() const {
    int n = 0;
    while (n < 4 && bits[n]) ++n;
    return n;
  }
};
// Null for invalid and reserved codes.
const DataFormat* data_format(u32 dfmt);

// One component to a register (f32 bits or an integer) and back. Components of 32 bits pass
// through unchanged.
u32 decode_component(u32 raw, int bits, NumFormat format);
u32 encode_component(u32 value, int bits, NumFormat format);

// Registers to and from memory; absent components read as 0.
void decode_datum(const DataFormat& data, NumFormat format, const std::byte* from, u32 (&out)[4]);
void encode_datum(const DataFormat& data, NumFormat format, const u32 (&in)[4], std::byte* to);

// The D16 forms' register halves.
u16 to_half(u32 value, NumFormat format);
u32 from_half(u16 half, NumFormat format);

}  // namespace vdev::mubuf
