#include "isa/mubuf_format.h"

#include <algorithm>

#include "numerics/convert.h"

namespace vdev::mubuf {
namespace {

constexpr DataFormat kFormats[16] = {
    {"invalid", {}, 0},
    {"8", {8}, 1},
    {"16", {16}, 2},
    {"8_8", {8, 8}, 2},
    {"32", {32}, 4},
    {"16_16", {16, 16}, 4},
    {"10_11_11", {11, 11, 10}, 4},
    {"11_11_10", {10, 11, 11}, 4},
    {"10_10_10_2", {2, 10, 10, 10}, 4},
    {"2_10_10_10", {10, 10, 10, 2}, 4},
    {"8_8_8_8", {8, 8, 8, 8}, 4},
    {"32_32", {32, 32}, 8},
    {"16_16_16_16", {16, 16, 16, 16}, 8},
    {"32_32_32", {32, 32, 32}, 12},
    {"32_32_32_32", {32, 32, 32, 32}, 16},
    {"reserved", {}, 0},
};

i32 sign_extend(u32 raw, int bits) { return static_cast<i32>(raw << (32 - bits)) >> (32 - bits); }
f32 as_float(u32 bits) { return bit_cast<f32>(bits); }
u32 as_bits(f32 value) { return bit_cast<u32>(value); }

// Floats of 16, 11 (unsigned, 6 mantissa bits) and 10 bits (5): all have f16's exponent, so that
// the short ones are f16 without their low bits and sign.
u32 decode_float(u32 raw, int bits) {
  const u32 half = bits == 16 ? raw : raw << (15 - bits);
  return widen_f16(static_cast<u16>(half));
}
// The short ones: towards zero, negative numbers to 0, infinity kept.
u32 encode_float(u32 value, int bits) {
  if (bits == 16) return f32_to_f16(value, Round::kNearestEven, FpMode{});
  if (is_nan<F32>(value)) value &= ~F32::kSign;
  if (sign_bit<F32>(value)) return 0;
  return f32_to_f16(value, Round::kZero, FpMode{}) >> (15 - bits);
}

i64 nearest(f64 x, i64 low, i64 high) {
  return to_integer<F64>(bit_cast<u64>(x), Round::kNearestEven, low, high);
}

}  // namespace

const DataFormat* data_format(u32 dfmt) {
  return dfmt < 16 && kFormats[dfmt].bytes ? &kFormats[dfmt] : nullptr;
}

u32 decode_component(u32 raw, int bits, NumFormat format) {
  if (bits == 32) return raw;
  const u32 max = (1u << bits) - 1;
  const i32 with_sign = sign_extend(raw, bits);
  switch (format) {
    case NumFormat::kUnorm:
      return as_bits(static_cast<f32>(f64{1.0} * raw / max));
    case NumFormat::kSnorm:
      return as_bits(static_cast<f32>(std::max(f64{1.0} * with_sign / (max >> 1), -1.0)));
    case NumFormat::kUscaled:
      return as_bits(static_cast<f32>(raw));
    case NumFormat::kSscaled:
      return as_bits(static_cast<f32>(with_sign));
    case NumFormat::kSint:
      return static_cast<u32>(with_sign);
    case NumFormat::kFloat:
      return decode_float(raw, bits);
    default:
      return raw;
  }
}

u32 encode_component(u32 value, int bits, NumFormat format) {
  if (bits == 32) return value;
  const u32 mask = (1u << bits) - 1;
  const i64 max = mask, max_signed = mask >> 1;
  const f64 x = as_float(value);
  i64 result = 0;
  switch (format) {
    case NumFormat::kUnorm:
      result = nearest(x * static_cast<f64>(max), 0, max);
      break;
    case NumFormat::kSnorm:
      result = nearest(x * static_cast<f64>(max_signed), -max_signed, max_signed);
      break;
    case NumFormat::kUscaled:
      result = nearest(x, 0, max);
      break;
    case NumFormat::kSscaled:
      result = nearest(x, -max_signed - 1, max_signed);
      break;
    case NumFormat::kUint:
      result = std::min(value, mask);
      break;
    case NumFormat::kSint:
      result = std::clamp<i64>(static_cast<i32>(value), -max_signed - 1, max_signed);
      break;
    case NumFormat::kFloat:
      return encode_float(value, bits);
    default:
      result = value;
      break;
  }
  return static_cast<u32>(result) & mask;
}

void decode_datum(const DataFormat& data, NumFormat format, const std::byte* from, u32 (&out)[4]) {
  u32 words[4] = {};
  std::memcpy(words, from, data.bytes);
  int position = 0;
  for (int c = 0; c < 4; ++c) {
    const int bits = data.bits[c];
    out[c] = 0;
    if (bits == 0) continue;
    const u32 raw = words[position / 32] >> position % 32;
    out[c] = decode_component(bits == 32 ? raw : raw & ((1u << bits) - 1), bits, format);
    position += bits;
  }
}

void encode_datum(const DataFormat& data, NumFormat format, const u32 (&in)[4], std::byte* to) {
  u32 words[4] = {};
  int position = 0;
  for (int c = 0; c < 4 && data.bits[c]; ++c) {
    words[position / 32] |= encode_component(in[c], data.bits[c], format) << position % 32;
    position += data.bits[c];
  }
  std::memcpy(to, words, data.bytes);
}

u16 to_half(u32 value, NumFormat format) {
  if (format == NumFormat::kUint) return static_cast<u16>(std::min(value, 0xffffu));
  if (format == NumFormat::kSint)
    return static_cast<u16>(std::clamp(static_cast<i32>(value), -32768, 32767));
  return f32_to_f16(value, Round::kNearestEven, FpMode{});
}

u32 from_half(u16 half, NumFormat format) {
  if (format == NumFormat::kUint) return half;
  if (format == NumFormat::kSint) return static_cast<u32>(i32{static_cast<i16>(half)});
  return widen_f16(half);
}

}  // namespace vdev::mubuf
