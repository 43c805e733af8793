#include "numerics/mfma_exact.h"

#include <algorithm>

namespace vdev::mfma {
namespace {

constexpr int kMinExponentF32 = -126;
constexpr u32 kInfF32 = 0x7f800000;

// floor(x * 2^-bits), bits from 0 up. Shifts with a bound instead of branches: which case applies
// is as random as the data.
constexpr i64 floor_shift(i64 x, int bits) { return x >> std::min(bits, 63); }

constexpr u64 magnitude_of(i64 x) {
  const i64 sign = x >> 63;
  return static_cast<u64>((x ^ sign) - sign);
}
constexpr int floor_log2(u64 x) { return 63 - std::countl_zero(x); }

// x * 2^exponent to f32, nearest even; 0 < |x| < 2^39.
u32 round_to_f32(i64 x, int exponent) {
  const u32 sign = static_cast<u32>(x >> 63) & 0x80000000;
  const u64 magnitude = magnitude_of(x) << 24;
  const int top = std::max(floor_log2(magnitude) + exponent - 24, kMinExponentF32);
  const int drop = top - 23 - exponent + 24;  // bits below the last place of the result, 1 or more
  if (drop > 63) return sign;
  const u64 below_half = (u64{1} << (drop - 1)) - 1;
  const u64 rounded = (magnitude + below_half + (magnitude >> drop & 1)) >> drop;
  // The implicit bit of a normal number adds the 1 that its exponent field lacks here.
  const u64 bits = (static_cast<u64>(top - kMinExponentF32) << 23) + rounded;
  return sign | static_cast<u32>(std::min<u64>(bits, kInfF32));
}

struct Products {
  i64 sum;           // in units of 2^(max_exponent - 24)
  i32 max_exponent;  // far below every real one if all products are zero
};

template <int length, int stride, int fraction>
Products add_products(const Unpacked* a, const Unpacked* b) {
  Products out{0, 2 * Unpacked::kZero};
  VDEV_UNROLL
  for (int k = 0; k < length; k += stride)
    out.max_exponent = std::max(out.max_exponent, a[k].exponent + b[k].exponent);
  VDEV_UNROLL
  for (int k = 0; k < length; k += stride) {
    // Truncation is toward zero, so it shifts the magnitude, which is below 2^26.
    const i32 product = a[k].significand * b[k].significand;
    const i32 sign = product >> 31;  // without a branch: signs are random
    const u32 magnitude = static_cast<u32>((product ^ sign) - sign) << (24 - fraction);
    const int below = out.max_exponent - (a[k].exponent + b[k].exponent);
    out.sum += (static_cast<i32>(magnitude >> std::min(below, 31)) ^ sign) - sign;
  }
  return out;
}

constexpr bool is_special(const Unpacked& x) { return x.exponent >= Unpacked::kInf; }

// True if the step's result is a NaN or an infinity, which then is in `result`. A product that
// reaches 2^128 counts as an infinity, also when it is finite.
bool special_result(const Unpacked* a, const Unpacked* b, int length, int fraction, u32 c,
                    u32* result) {
  bool nan = (c & 0x7fffffff) > kInfF32;
  bool infinite[2] = {c == kInfF32, c == (kInfF32 | 0x80000000)};
  for (int k = 0; k < length; ++k) {
    const i32 product = a[k].significand * b[k].significand;
    if (is_special(a[k]) || is_special(b[k])) {
      if (a[k].exponent == Unpacked::kNan || b[k].exponent == Unpacked::kNan || product == 0)
        nan = true;
      else
        infinite[product < 0] = true;
    } else if (product != 0 &&
               floor_log2(magnitude_of(product)) + a[k].exponent + b[k].exponent - fraction >=
                   128) {
      infinite[product < 0] = true;
    }
  }
  if (nan || (infinite[0] && infinite[1])) {
    *result = kNanF32;
  } else if (infinite[0] || infinite[1]) {
    *result = kInfF32 | (infinite[1] ? 0x80000000 : 0);
  } else {
    return false;
  }
  return true;
}

// fraction: of a product.
template <int length, bool two_groups, int fraction>
u32 sum_step(const Unpacked* a, const Unpacked* b, u32 c) {
  Products products;
  if constexpr (two_groups) {
    const Products even = add_products<length, 2, fraction>(a, b);
    const Products odd = add_products<length, 2, fraction>(a + 1, b + 1);
    products.max_exponent = std::max(even.max_exponent, odd.max_exponent);
    products.sum = floor_shift(even.sum, products.max_exponent - even.max_exponent) +
                   floor_shift(odd.sum, products.max_exponent - odd.max_exponent);
  } else {
    products = add_products<length, 1, fraction>(a, b);
  }
  u32 special;
  if ((products.max_exponent >= 127 || (c & kInfF32) == kInfF32) &&
      special_result(a, b, length, fraction, c, &special))
    return special;

  const i32 field = c >> 23 & 0xff;
  const i64 c_magnitude = (c & 0x7fffff) | (field != 0 ? 0x800000 : 0);
  const i64 c_sign = -static_cast<i64>(c >> 31);
  const i64 c_significand = (c_magnitude ^ c_sign) - c_sign;
  const i32 c_exponent = std::max(field, 1) - 127;

  // From here on in units of 2^(top - 32). C is rounded down to 2^(top - 24), which is what makes
  // the result unsymmetric: a tiny negative C costs a whole unit.
  const i32 top = std::max(products.max_exponent, c_exponent);
  const i64 sum = floor_shift(products.sum * 256, top - products.max_exponent);
  i64 addend = floor_shift(c_significand * 2, top - c_exponent) * 256;
  if (two_groups && c_exponent < top - 25) addend = 0;
  const i64 total = sum + addend;
  if (total == 0) return 0;
  const int total_exponent = std::max(floor_log2(magnitude_of(total)) + top - 32, kMinExponentF32);
  const int drop = std::max(total_exponent - 31 - (top - 32), 0);
  return round_to_f32(total >> drop << drop, top - 32);
}

template <int length>
u32 integer_step(const Unpacked* a, const Unpacked* b, u32 c) {
  for (int k = 0; k < length; ++k) c += static_cast<u32>(a[k].significand * b[k].significand);
  return c;
}

}  // namespace

StepFn step_function(const MfmaGeometry& g) {
  const int fraction = fraction_bits(g.a) + fraction_bits(g.b);
  if (g.d == MfmaDst::kI32) return integer_step<4>;
  if (has_two_groups(g))
    return fraction == 6   ? sum_step<16, true, 6>
           : fraction == 5 ? sum_step<16, true, 5>
                           : sum_step<16, true, 4>;
  if (fraction == 14) return step_length(g) == 8 ? sum_step<8, false, 14> : sum_step<4, false, 14>;
  return step_length(g) == 8 ? sum_step<8, false, 20> : sum_step<4, false, 20>;
}

}  // namespace vdev::mfma
