#include "numerics/mfma_exact.h"

#include <algorithm>
#include <cstring>

namespace vdev::mfma {
namespace {

constexpr int kMaxStoredK = 32, kMaxK = 64, kMaxN = 32;
constexpr int kMaxDRegs = 32;
constexpr int kMinExponentF32 = -126;
constexpr u32 kInfF32 = 0x7f800000;

// floor(x * 2^-bits) for any bits; a left shift must not overflow.
constexpr i64 floor_shift(i64 x, int bits) {
  if (bits <= 0) return x << -bits;
  return x >> std::min(bits, 63);
}
constexpr int floor_log2(i64 x) {
  return 63 - std::countl_zero(static_cast<u64>(x < 0 ? -x : x));
}

// x * 2^exponent to f32, nearest even; x is not zero.
u32 round_to_f32(i64 x, int exponent) {
  const u32 sign = x < 0 ? 0x80000000 : 0;
  u64 magnitude = static_cast<u64>(x < 0 ? -x : x);
  const int top = std::max(floor_log2(x) + exponent, kMinExponentF32);
  const int drop = top - 23 - exponent;  // bits below the last place of the result
  if (drop > 0) {
    if (drop > 62) return sign;
    const u64 half = u64{1} << (drop - 1), rest = magnitude & ((half << 1) - 1);
    magnitude >>= drop;
    magnitude += rest > half || (rest == half && (magnitude & 1));
  } else {
    magnitude <<= -drop;
  }
  // The implicit bit of a normal number adds the 1 that its exponent field lacks here.
  const u64 bits = (static_cast<u64>(top - kMinExponentF32) << 23) + magnitude;
  return sign | static_cast<u32>(std::min<u64>(bits, kInfF32));
}

struct Products {
  i64 sum;           // in units of 2^(max_exponent - 24)
  i32 max_exponent;  // far below every real one if all products are zero
};

template <int length, int stride, int fraction>
Products add_products(const Unpacked* a, const Unpacked* b) {
  Products out{0, 2 * Unpacked::kZero};
  for (int k = 0; k < length; k += stride)
    out.max_exponent = std::max(out.max_exponent, a[k].exponent + b[k].exponent);
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
               floor_log2(product) + a[k].exponent + b[k].exponent - fraction >= 128) {
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

Unpacked a_element(const MfmaGeometry& g, const Reg* a, const MfmaControl& control, int block, int i,
                   int stored) {
  if (has_cbsz_abid(g) && !g.sparse) block = broadcast_block(g, block, control);
  return unpack(g.a, element_bits(a, a_place(g, block, i, stored), bits_of(g.a)));
}

Unpacked b_element(const MfmaGeometry& g, const Reg* b, const MfmaControl& control, int block, int k,
                   int j) {
  ElementPlace place = b_place(g, block, k, j);
  if (permutes_b(g)) place.lane = permuted_lane(place.lane, control.blgp);
  return unpack(g.b, element_bits(b, place, bits_of(g.b)));
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
  i64 c_significand = c & 0x7fffff;
  if (field != 0) c_significand |= 0x800000;
  if (c >> 31) c_significand = -c_significand;
  const i32 c_exponent = std::max(field, 1) - 127;

  // From here on in units of 2^(top - 32). C is rounded down to 2^(top - 24), which is what makes
  // the result unsymmetric: a tiny negative C costs a whole unit.
  const i32 top = std::max(products.max_exponent, c_exponent);
  const i64 sum = floor_shift(products.sum, top - 8 - products.max_exponent);
  i64 addend = floor_shift(c_significand, top - 1 - c_exponent) << 8;
  if (two_groups && c_exponent < top - 25) addend = 0;
  i64 total = sum + addend;
  if (total == 0) return 0;
  const int total_exponent = std::max(floor_log2(total) + top - 32, kMinExponentF32);
  const int drop = std::max(total_exponent - 31 - (top - 32), 0);
  total = floor_shift(total, drop) << drop;
  return round_to_f32(total, top - 32);
}

template <int length>
u32 integer_step(const Unpacked* a, const Unpacked* b, u32 c) {
  for (int k = 0; k < length; ++k) c += static_cast<u32>(a[k].significand * b[k].significand);
  return c;
}

// The column of the full A that stored element `stored` of row i stands in.
int selected_k(const MfmaGeometry& g, const Reg* index, const MfmaControl& control, int block, int i,
               int stored) {
  if (!g.sparse) return stored;
  // Two bits per stored element, in the lane of the element. A register holds 4 or 2 sets.
  const ElementPlace place = a_place(g, block, i, stored);
  const int sets = bits_of(g.a) / 4;
  const int set = control.cbsz == 0 ? control.abid & (sets - 1) : 0;
  const int bit = set * (32 / sets) + 2 * place.index;
  return stored / 2 * 4 + static_cast<int>(index->lane[place.lane] >> bit & 3);
}

}  // namespace

Unpacked unpack(MfmaSrc type, u32 bits) {
  if (type == MfmaSrc::kI8) return {static_cast<i8>(bits), 0};
  int exponent_bits, fraction = fraction_bits(type), bias;
  switch (type) {
    case MfmaSrc::kXf32: bits >>= 13; [[fallthrough]];  // truncated, a NaN may become an infinity
    case MfmaSrc::kBf16: exponent_bits = 8, bias = 127; break;
    case MfmaSrc::kF16: exponent_bits = 5, bias = 15; break;
    case MfmaSrc::kFp8: exponent_bits = 4, bias = 8; break;
    default: exponent_bits = 5, bias = 16; break;
  }
  const bool fnuz = bits_of(type) == 8;
  const i32 field_max = (1 << exponent_bits) - 1;
  const i32 field = static_cast<i32>(bits >> fraction) & field_max;
  const bool negative = bits >> (fraction + exponent_bits) & 1;
  i32 significand = static_cast<i32>(bits & ((1u << fraction) - 1));
  if (field == 0 && significand == 0)
    return {0, fnuz && negative ? Unpacked::kNan : Unpacked::kZero};
  if (!fnuz && field == field_max)
    return {negative ? -1 : 1, significand ? Unpacked::kNan : Unpacked::kInf};
  if (field != 0) significand |= 1 << fraction;
  return {negative ? -significand : significand, std::max(field, 1) - bias};
}

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

u32 element_step(const MfmaGeometry& g, const Reg* a, const Reg* b, const MfmaControl& control,
                 int block, int i, int j, int step, u32 c) {
  Unpacked row[kMaxStoredK], column[kMaxStoredK];
  const int length = step_length(g);
  for (int k = 0; k < length; ++k) {
    row[k] = a_element(g, a, control, block, i, step * length + k);
    column[k] = b_element(g, b, control, block, step * length + k, j);
  }
  return step_function(g)(row, column, c);
}

void run_exact(const MfmaGeometry& g, const Reg* a, const Reg* b, const Reg* c, Reg* d,
               const MfmaControl& control) {
  Reg result[kMaxDRegs];
  const Reg* const addend = g.sparse ? d : c;
  const StepFn add_step = step_function(g);
  const int length = step_length(g), stored = stored_k(g);
  for (int block = 0; block < g.blocks; ++block) {
    Unpacked columns[kMaxN][kMaxK];
    for (int j = 0; j < g.n; ++j)
      for (int k = 0; k < g.k; ++k) columns[j][k] = b_element(g, b, control, block, k, j);
    for (int i = 0; i < g.m; ++i) {
      Unpacked row[kMaxStoredK], selected[kMaxStoredK];
      int selection[kMaxStoredK];
      for (int k = 0; k < stored; ++k) {
        row[k] = a_element(g, a, control, block, i, k);
        selection[k] = selected_k(g, c, control, block, i, k);
      }
      for (int j = 0; j < g.n; ++j) {
        for (int k = 0; g.sparse && k < stored; ++k) selected[k] = columns[j][selection[k]];
        const Unpacked* const column = g.sparse ? selected : columns[j];
        const ElementPlace place = d_place(g, block, i, j);
        u32 value = addend[place.index].lane[place.lane];
        for (int k = 0; k < stored; k += length)
          value = add_step(row + k, column + k, value);
        result[place.index].lane[place.lane] = value;
      }
    }
  }
  std::memcpy(d, result, sizeof(Reg) * static_cast<size_t>(d_regs(g)));
}

}  // namespace vdev::mfma
