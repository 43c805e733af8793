// The fast form of the matrix instructions on small floats, 16 columns of D at a time, with the
// results of `sum_step`. Requires AVX2.
//
// Products of the inputs are exact in f32. Scaled to units of 2^(E - 24), E being the largest
// exponent of a product, their truncation is the conversion to integer; the sum T is an exact i32.
// With d = e(C) - E:
//   d <= 5: T + floor(C) in the same units fits 31 bits, and one conversion to f32 rounds it.
//   d > 5: units grow to 2^(e(C) - 29), in which C is exact. Of the bits that T loses, the model
//          keeps the upper 3, 2 or 1 (the less, the larger the result), and all that matters for
//          rounding is whether any of these is set.
// Right shifts by max(d - 5, 0) of T and by max(5 - d, 0) of C * 2^6 cover both cases.
// Infinities, NaNs, subnormal bf16 and xf32 inputs and extreme exponents go to `element_step`.
#pragma once

#ifdef __AVX2__

#include <cstring>

#include "numerics/float_rules_mxcsr.h"
#include "numerics/mfma_exact.h"
#include "numerics/mfma_panel_avx2.h"

namespace vdev::mfma {

struct Vec16 {  // 16 columns x 32 bits
  __m256i v[2];
};

VDEV_INLINE __m256i set32(int x) { return _mm256_set1_epi32(x); }
VDEV_INLINE __m256i set16(int x) { return _mm256_set1_epi16(static_cast<i16>(x)); }

// Two rows at a time share what is loaded of B: loads would be the bottleneck otherwise.
inline constexpr int kRows = 2;

// The largest exponent sums of `length` products k0, k0 + stride, ...
template <int length, int stride, MfmaGeometry g>
VDEV_INLINE void largest_sums(const PanelA<g>& a, const PanelB<g>& b, int k0, int i, int column,
                              __m256i (&largest)[kRows]) {
  VDEV_UNROLL
  for (int n = 0; n < length; ++n) {
    const int k = k0 + n * stride;
    const __m256i y = b.exponent[k][column / 16];
    VDEV_UNROLL
    for (int row = 0; row < kRows; ++row) {
      const __m256i x = set32(static_cast<int>(a.exponent[k][i + row]));
      const __m256i sum = _mm256_add_epi16(x, y);
      largest[row] = n == 0 ? sum : _mm256_max_epi16(largest[row], sum);
    }
  }
}

// Raises the sums of zero products to kNoSum, which gives a finite scale.
VDEV_INLINE __m256i clamp(__m256i sum) { return _mm256_max_epi16(sum, set16(kNoSum)); }

VDEV_INLINE Vec16 widen(__m256i clamped) {
  const __m256i zero = _mm256_setzero_si256();
  return {{_mm256_unpacklo_epi16(clamped, zero), _mm256_unpackhi_epi16(clamped, zero)}};
}

// The truncated products, summed, in units of 2^(E - 24). For E <= 24 the scale can be added to the
// exponents as integers, which is faster: a zero product becomes at most 2^-5.
template <int length, int stride, bool small_sums, MfmaGeometry g>
VDEV_INLINE void sum_products(const PanelA<g>& a, const PanelB<g>& b, int k0, int i, int column,
                              const Vec16 (&largest)[kRows], Vec16 (&total)[kRows]) {
  __m256i scale[kRows][2];
  VDEV_UNROLL
  for (int row = 0; row < kRows; ++row)
    for (int half = 0; half < 2; ++half) {
      const int bias = kSumBias + 24 + (small_sums ? 0 : 127);
      scale[row][half] = _mm256_slli_epi32(_mm256_sub_epi32(set32(bias), largest[row].v[half]), 23);
    }
  VDEV_UNROLL
  for (int n = 0; n < length; ++n) {
    const int k = k0 + n * stride;
    VDEV_UNROLL
    for (int half = 0; half < 2; ++half) {
      const __m256 y = _mm256_load_ps(&b.value[k][column + 8 * half]);
      VDEV_UNROLL
      for (int row = 0; row < kRows; ++row) {
        const __m256 product = _mm256_mul_ps(_mm256_broadcast_ss(&a.value[k][i + row]), y);
        const __m256i s = scale[row][half];
        const __m256 scaled =
            small_sums ? _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(product), s))
                       : _mm256_mul_ps(product, _mm256_castsi256_ps(s));
        const __m256i p = _mm256_cvttps_epi32(scaled);
        total[row].v[half] = n == 0 ? p : _mm256_add_epi32(total[row].v[half], p);
      }
    }
  }
}

// Which sums a step has met. Less kZeroSum and unsigned, those of zero products lie above all
// others.
struct SumRange {
  __m256i highest = set16(-0x8000), lowest = set16(-1), zeros = set16(0);

  VDEV_INLINE void add(__m256i sum) {
    highest = _mm256_max_epi16(highest, sum);
    const __m256i ordered = _mm256_sub_epi16(sum, set16(kZeroSum));
    lowest = _mm256_min_epu16(lowest, ordered);
    zeros = _mm256_max_epu16(zeros, ordered);
  }
  bool below(int limit) const {
    const __m256i above = _mm256_cmpgt_epi16(highest, set16(limit));
    return _mm256_testz_si256(above, above);
  }
  bool inside() const {
    const __m256i limit = set16(kLowestSum - kZeroSum);
    const __m256i high_enough = _mm256_cmpeq_epi16(_mm256_max_epu16(lowest, limit), lowest);
    return below(kHighestSum) && _mm256_testc_si256(high_enough, set16(-1));
  }
  bool has_zeros() const { return _mm256_movemask_epi8(_mm256_cmpgt_epi16(set16(0), zeros)) != 0; }
};

// The products of one step of 16 columns: T in units of 2^(largest - 24).
struct Products16 {
  __m256i largest;  // 16 x i16, clamped
  Vec16 total;
};

// What scales add to the exponents of all products of a step: 32 k have one, so that it does not
// matter to the sum in units of the largest exponent. Saturates, for special marks add up.
template <bool scaled, MfmaGeometry g>
VDEV_INLINE __m256i times_scales(__m256i sum, const PanelScale<g>& scales, int k0, int i,
                                 int column) {
  if constexpr (!scaled) return sum;
  const __m256i x = set32(static_cast<int>(scales.a[k0 / 32][i]));
  return _mm256_adds_epi16(_mm256_adds_epi16(sum, x), scales.b[k0 / 32][column / 16]);
}

// Rows i and i + 1; the second goes to out[next].
template <bool scaled, MfmaGeometry g>
VDEV_INLINE void multiply(const PanelA<g>& a, const PanelB<g>& b, const PanelScale<g>& scales,
                          int k0, int i, int column, SumRange* range, Products16* out, int next) {
  constexpr int kLength = step_length(g);
  constexpr bool kTwoGroups = has_two_groups(g);
  constexpr int kGroups = kTwoGroups ? 2 : 1;
  __m256i sums[kGroups][kRows];
  Vec16 parts[kGroups][kRows], from[kGroups][kRows];
  VDEV_UNROLL
  for (int group = 0; group < kGroups; ++group) {
    largest_sums<kLength / kGroups, kGroups>(a, b, k0 + group, i, column, sums[group]);
    VDEV_UNROLL
    for (int row = 0; row < kRows; ++row) from[group][row] = widen(clamp(sums[group][row]));
    const __m256i highest = _mm256_max_epi16(sums[group][0], sums[group][1]);
    const __m256i large = _mm256_cmpgt_epi16(highest, set16(kSumBias + 24));
    if (__builtin_expect(_mm256_testz_si256(large, large), 1))
      sum_products<kLength / kGroups, kGroups, true>(a, b, k0 + group, i, column, from[group],
                                                     parts[group]);
    else
      sum_products<kLength / kGroups, kGroups, false>(a, b, k0 + group, i, column, from[group],
                                                      parts[group]);
  }
  VDEV_UNROLL
  for (int row = 0; row < kRows; ++row) {
    Products16& to = out[row * next];
    if constexpr (kTwoGroups) {
      const __m256i larger = _mm256_max_epi16(sums[0][row], sums[1][row]);
      const __m256i largest = times_scales<scaled>(larger, scales, k0, i + row, column);
      range->add(largest);
      to.largest = clamp(largest);
      const Vec16 both = widen(clamp(larger));
      VDEV_UNROLL
      for (int half = 0; half < 2; ++half) {
        const auto floor = [&](int group) {
          return _mm256_srav_epi32(parts[group][row].v[half],
                                   _mm256_sub_epi32(both.v[half], from[group][row].v[half]));
        };
        to.total.v[half] = _mm256_add_epi32(floor(0), floor(1));
      }
    } else {
      range->add(sums[0][row]);
      to = {clamp(sums[0][row]), parts[0][row]};
    }
  }
}

VDEV_INLINE __m256i field_of(__m256i c) { return _mm256_srli_epi32(_mm256_slli_epi32(c, 1), 24); }

// Floor of C in units of 2^(E(C) - 29 + shift).
template <bool two_groups>
VDEV_INLINE __m256i floor_c(__m256i c, __m256i shift) {
  // C * 2^6; the implicit bit of a zero or subnormal C is shifted out, but -0 would leave a -1.
  const __m256i fraction = _mm256_and_si256(_mm256_slli_epi32(c, 6), set32(0x1fffffc0));
  const __m256i magnitude = _mm256_or_si256(fraction, set32(0x20000000));
  const __m256i floor = _mm256_srav_epi32(_mm256_sign_epi32(magnitude, c), shift);
  if (!two_groups) return floor;
  // A C below 2^(E - 25) is dropped instead of rounded down.
  return _mm256_andnot_si256(_mm256_cmpgt_epi32(shift, set32(30)), floor);
}

// sum * 2^(exponent - 24), where exponent carries kSumBias.
VDEV_INLINE __m256i scaled(__m256i sum, __m256i exponent) {
  const __m256i field = _mm256_sub_epi32(exponent, set32(kSumBias + 24 - 127));
  const __m256 scale = _mm256_castsi256_ps(_mm256_slli_epi32(field, 23));
  return _mm256_castps_si256(_mm256_mul_ps(_mm256_cvtepi32_ps(sum), scale));
}

// T + C for d <= 5 and no sum of zero products; collects the smallest 5 - d.
template <bool two_groups>
VDEV_INLINE __m256i add_small_c(__m256i total, __m256i largest, __m256i c, __m256i* least_shift) {
  const __m256i shift = _mm256_sub_epi32(largest, field_of(c));
  *least_shift = _mm256_min_epi32(*least_shift, shift);
  return scaled(_mm256_add_epi32(total, floor_c<two_groups>(c, shift)), largest);
}

// T + C; collects the largest exponent field of C.
template <bool two_groups>
VDEV_INLINE __m256i add_any_c(__m256i total, __m256i largest, __m256i c, __m256i* largest_field) {
  const __m256i field = field_of(c);
  *largest_field = _mm256_max_epi32(*largest_field, field);
  const __m256i unit = _mm256_max_epi32(field, largest);
  const __m256i shift = _mm256_sub_epi32(unit, largest);
  const __m256i floor = _mm256_add_epi32(_mm256_srav_epi32(total, shift),
                                         floor_c<two_groups>(c, _mm256_sub_epi32(unit, field)));
  const __m256i lost = _mm256_sllv_epi32(total, _mm256_sub_epi32(set32(32), shift));
  // 0, 1 or 2 for a result below 2^e(C), below 2^(e(C) + 1), or not.
  const __m256i size = _mm256_srli_epi32(_mm256_abs_epi32(floor), 29);
  __m256i kept = _mm256_srlv_epi32(_mm256_srli_epi32(lost, 29), size);
  // With two groups T can nearly cancel C, and then only the lowest bit is free for this.
  if (two_groups) kept = _mm256_min_epi32(kept, set32(1));
  const __m256i result = scaled(_mm256_or_si256(floor, kept), unit);
  return _mm256_blendv_epi8(result, c, _mm256_cmpeq_epi32(largest, set32(kNoSum)));
}

// One block of D. Rows of 16 columns are its tiles.
template <MfmaGeometry g>
struct Tiles {
  static constexpr int kPerRow = g.n / 16, kCount = g.m * kPerRow;
  Vec16 value[kCount];

  static ElementPlace place(int block, int tile) {
    return d_place(g, block, tile / kPerRow, tile % kPerRow * 16);
  }
  void load(const Reg* c, int block) {
    const __m256i minus_zero = set32(static_cast<int>(0x80000000));
    for (int tile = 0; tile < kCount; ++tile) {
      const ElementPlace from = place(block, tile);
      for (int half = 0; half < 2; ++half) {
        const __m256i x = load256(c[from.index].lane + from.lane + 8 * half);
        value[tile].v[half] = _mm256_andnot_si256(_mm256_cmpeq_epi32(x, minus_zero), x);
      }
    }
  }
  void store(Reg* d, int block) const {
    for (int tile = 0; tile < kCount; ++tile) {
      const ElementPlace to = place(block, tile);
      for (int half = 0; half < 2; ++half)
        store256(d[to.index].lane + to.lane + 8 * half, value[tile].v[half]);
    }
  }
};

// The step of a block that has something special somewhere. Ordinary tiles keep their result.
template <bool scaled, MfmaGeometry g>
__attribute__((noinline, cold)) void redo_special(const Reg* a, const Reg* b,
                                                  const MfmaControl& control, int block, int step,
                                                  const PanelA<g>& panel_a,
                                                  const PanelB<g>& panel_b,
                                                  const PanelScale<g>& scales, const Tiles<g>& c,
                                                  Tiles<g>* d) {
  constexpr int kLength = step_length(g);
  for (int tile = 0; tile < c.kCount; ++tile) {
    const int i = tile / c.kPerRow, column = tile % c.kPerRow * 16;
    __m256i largest[kRows];
    largest_sums<kLength, 1>(panel_a, panel_b, step * kLength, i & ~1, column, largest);
    SumRange range;
    range.add(times_scales<scaled>(largest[i & 1], scales, step * kLength, i, column));
    alignas(32) u32 row[16];
    std::memcpy(row, &c.value[tile], sizeof(row));
    bool special = !range.inside();
    for (const u32 x : row) special |= (x >> 23 & 0xff) > kHighestField;
    if (!special) continue;
    for (int j = 0; j < 16; ++j)
      row[j] = element_step<g>(a, b, control, block, i, column + j, step, row[j]);
    std::memcpy(&d->value[tile], row, sizeof(row));
  }
}

// Every T + C of a block, by add_small_c or add_any_c.
template <MfmaGeometry g, bool small_c>
VDEV_INLINE __m256i add_all(const Products16* products, const Tiles<g>& c, Tiles<g>* d) {
  constexpr auto kAdd = small_c ? add_small_c<has_two_groups(g)> : add_any_c<has_two_groups(g)>;
  __m256i seen = _mm256_setzero_si256();
  for (int tile = 0; tile < c.kCount; ++tile) {
    const Vec16 largest = widen(products[tile].largest);
    VDEV_UNROLL
    for (int half = 0; half < 2; ++half)
      d->value[tile].v[half] =
          kAdd(products[tile].total.v[half], largest.v[half], c.value[tile].v[half], &seen);
  }
  return seen;
}

// The sums of a step with C. Returns false if a C is infinite, NaN or about to overflow.
template <MfmaGeometry g>
inline bool add_addends(const Products16* products, const SumRange& range, const Tiles<g>& c,
                        Tiles<g>* d) {
  // Most often all C are small, or many are not. The first ones tell which is worth a try.
  const Vec16 first = widen(products[0].largest);
  const __m256i above = _mm256_cmpgt_epi32(field_of(c.value[0].v[0]), first.v[0]);
  if (_mm256_testz_si256(above, above) && range.below(kHighestField) && !range.has_zeros()) {
    const __m256i least_shift = add_all<g, true>(products, c, d);
    if (_mm256_testz_si256(least_shift, least_shift)) return true;
  }
  const __m256i field = add_all<g, false>(products, c, d);
  const __m256i huge = _mm256_cmpgt_epi32(field, set32(kHighestField));
  return _mm256_testz_si256(huge, huge);
}

template <MfmaGeometry g, bool scaled = false>
void run_fast(const Reg* a, const Reg* b, const Reg* c, Reg* d, const MfmaControl& control) {
  // Only the rounding of MODE matters: nothing here reads or makes a denormal that counts.
  const MxcsrScope scope(kMxcsrRoundMask, 0);
  if constexpr (!scaled && may_scale(g))
    if (control.scale[0] != nullptr) return run_fast<g, true>(a, b, c, d, control);
  constexpr int kLength = step_length(g), kSteps = g.k / kLength;
  PanelA<g> panel_a;
  PanelB<g> panel_b;
  PanelScale<g> scales;
  if constexpr (scaled) read_scales<g>(control, &scales);
  Tiles<g> value[2];
  Products16 products[Tiles<g>::kCount];
  // One block has read everything when it stores; several go through a copy, d may be c or b.
  constexpr bool kDirect = g.blocks == 1;
  Reg copy[kDirect ? 1 : d_regs(g)];
  for (int block = 0; block < g.blocks; ++block) {
    read_a<g>(a, has_cbsz_abid(g) ? broadcast_block(g, block, control) : block, &panel_a);
    read_b<g>(b, block, permutes_b(g) ? control.blgp : 0, &panel_b);
    value[0].load(c, block);
    for (int step = 0; step < kSteps; ++step) {
      const Tiles<g>& from = value[step % 2];
      Tiles<g>& to = value[1 - step % 2];
      // Two passes, so that the processor has independent work in view all the time.
      SumRange range;
      for (int i = 0; i < g.m; i += kRows)
        for (int n = 0; n < from.kPerRow; ++n)
          multiply<scaled>(panel_a, panel_b, scales, step * kLength, i, 16 * n, &range,
                           products + i * from.kPerRow + n, from.kPerRow);
      const bool finite = add_addends<g>(products, range, from, &to);
      if (__builtin_expect(!finite || !range.inside(), 0))
        redo_special<scaled>(a, b, control, block, step, panel_a, panel_b, scales, from, &to);
    }
    value[kSteps % 2].store(kDirect ? d : copy, block);
  }
  if (!kDirect) std::memcpy(d, copy, sizeof(copy));
}

}  // namespace vdev::mfma

#endif  // __AVX2__
