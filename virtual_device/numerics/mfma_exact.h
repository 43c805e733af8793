// The matrix instructions in plain integer arithmetic: the definition that the fast kernels are
// tested against and fall back to.
//
// A floating-point sum of products is not a chain of FMAs on CDNA3. The products of a step of 4, 8
// or 16 k are truncated to one common exponent and added exactly, then C joins with a rounding of
// its own (MMA-Sim, arXiv 2511.10909, TR and GTR; in `sum_step`). Steps follow in
// ascending k, each taking the f32 result of the one before.
//
// CDNA4 is modelled by the same rules: of 16-bit types steps of 8 k, of 8-bit ones of 16, also in
// the instructions whose k is twice that of CDNA3's. Its publishers know no other unit than
// CDNA3's, which its old instructions keep; the new ones have twice the rate at the same number of
// passes. V_MFMA_*_F8F6F4 sums fp8 and bf8 so, fp6 and fp4 as the fp8 numbers that they equal, and
// a block's scale is a part of the products' exponents.
//
// Modelled, not published: V_SMFMAC_* takes the stored elements of A with the elements of B that
// their indices select, in stored order, as if they were a dense row of half the length.
#pragma once

#include <algorithm>
#include <cstring>

#include "numerics/fp8.h"
#include "numerics/mfma_layout.h"

namespace vdev::mfma {

// MMA-Sim leaves the payload open; this is the canonical quiet NaN.
inline constexpr u32 kNanF32 = 0x7fc00000;
inline constexpr u64 kNanF64 = 0x7ff8000000000000;

// A finite input is significand * 2^(exponent - fraction_bits(type)), where exponent is
// max(floor(log2 |x|), smallest normal exponent): a subnormal has a small significand. The
// exponents of the others show up in sums: a product without kZero, kInf or kNan has one in
// -300..300.
struct Unpacked {
  static constexpr i32 kZero = -(1 << 16), kInf = 1 << 20, kNan = 1 << 21;  // exponents
  i32 significand, exponent;
};

constexpr bool is_small_float(MfmaSrc type) {
  return type == MfmaSrc::kXf32 || type == MfmaSrc::kF16 || type == MfmaSrc::kBf16 ||
         type == MfmaSrc::kFp8 || type == MfmaSrc::kBf8;
}
constexpr int fraction_bits(MfmaSrc type) {
  switch (type) {
    case MfmaSrc::kXf32:
    case MfmaSrc::kF16:
      return 10;
    case MfmaSrc::kBf16:
      return 7;
    case MfmaSrc::kFp8:
      return 3;
    default:
      return 2;
  }
}
// k of one step. 8-bit floats have two groups of products, of even and of odd k. Integers have no
// steps, any length will do.
constexpr int step_length(const MfmaGeometry& g) {
  const int longest = g.a == MfmaSrc::kXf32 || g.a == MfmaSrc::kI8 ? 4 : bits_of(g.a) == 8 ? 16 : 8;
  return stored_k(g) < longest ? stored_k(g) : longest;
}
constexpr bool has_two_groups(const MfmaGeometry& g) { return bits_of(g.a) == 8; }

template <class Fmt>
constexpr Unpacked unpack8(u32 bits) {
  const u32 code = bits & 0x7f;
  const bool negative = bits >> 7 & 1;
  if constexpr (Fmt::kSigned) {
    if (code > Fmt::kMax)
      return {negative ? -1 : 1, code == Fmt::kOverflow && Fmt::kOverflow != Fmt::kNan
                                     ? Unpacked::kInf
                                     : Unpacked::kNan};
    if (code == 0) return {0, Unpacked::kZero};
  } else if (code == 0) {
    return {0, negative ? Unpacked::kNan : Unpacked::kZero};
  }
  const i32 field = static_cast<i32>(code >> Fmt::kManBits);
  i32 significand = static_cast<i32>(code & ((1u << Fmt::kManBits) - 1));
  if (field != 0) significand |= 1 << Fmt::kManBits;
  return {negative ? -significand : significand, std::max(field, 1) - Fmt::kBias};
}

// An i8 is its own significand.
template <Fp8Kind fp8>
constexpr Unpacked unpack(MfmaSrc type, u32 bits) {
  if (type == MfmaSrc::kI8) return {static_cast<i8>(bits), 0};
  if (bits_of(type) == 8)
    return type == MfmaSrc::kFp8 ? unpack8<typename Fp8Formats<fp8>::Fp8>(bits)
                                 : unpack8<typename Fp8Formats<fp8>::Bf8>(bits);
  int exponent_bits, fraction = fraction_bits(type), bias;
  switch (type) {
    case MfmaSrc::kXf32:
      bits >>= 13;
      [[fallthrough]];  // truncated, a NaN may become an infinity
    case MfmaSrc::kBf16:
      exponent_bits = 8, bias = 127;
      break;
    default:
      exponent_bits = 5, bias = 15;
      break;
  }
  const i32 field_max = (1 << exponent_bits) - 1;
  const i32 field = static_cast<i32>(bits >> fraction) & field_max;
  const bool negative = bits >> (fraction + exponent_bits) & 1;
  i32 significand = static_cast<i32>(bits & ((1u << fraction) - 1));
  if (field == 0 && significand == 0) return {0, Unpacked::kZero};
  if (field == field_max) return {negative ? -1 : 1, significand ? Unpacked::kNan : Unpacked::kInf};
  if (field != 0) significand |= 1 << fraction;
  return {negative ? -significand : significand, std::max(field, 1) - bias};
}

// c + a[0]*b[0] + ... + a[length-1]*b[length-1]; c and the result are f32 bits.
using StepFn = u32 (*)(const Unpacked* a, const Unpacked* b, u32 c);
StepFn step_function(const MfmaGeometry& g);

constexpr bool may_scale(const MfmaGeometry& g) { return bits_of(g.a) == 8 && g.m * g.k == 2048; }

// Times the scale of its block, if there is one; `side` 0: of A.
template <MfmaGeometry g>
Unpacked times_scale(Unpacked x, const MfmaControl& control, int side, int row, int k) {
  if constexpr (may_scale(g) && !g.sparse) {
    if (control.scale[side] == nullptr) return x;
    const u32 dword = control.scale[side]->lane[scale_lane(g.m, row, k)];
    const i32 field = dword >> 8 * control.scale_byte[side] & 0xff;
    if (field == 0xff) return {1, Unpacked::kNan};
    if (!(x.exponent >= Unpacked::kInf)) x.exponent += field - 127;
  }
  return x;
}

template <MfmaGeometry g>
Unpacked a_element(const Reg* a, const MfmaControl& control, int block, int i, int stored) {
  if (has_cbsz_abid(g) && !g.sparse) block = broadcast_block(g, block, control);
  const u32 bits = element_bits(a, a_place(g, block, i, stored), bits_of(g.a));
  return times_scale<g>(unpack<g.fp8>(g.a, bits), control, 0, i, stored);
}

template <MfmaGeometry g>
Unpacked b_element(const Reg* b, const MfmaControl& control, int block, int k, int j) {
  ElementPlace place = b_place(g, block, k, j);
  if (permutes_b(g)) place.lane = permuted_lane(place.lane, control.blgp);
  const u32 bits = element_bits(b, place, bits_of(g.b));
  return times_scale<g>(unpack<g.fp8>(g.b, bits), control, 1, j, k);
}

// The column of the full A that stored element `stored` of row i stands in.
template <MfmaGeometry g>
int selected_k(const Reg* index, const MfmaControl& control, int i, int stored) {
  // Two bits per stored element, in the lane of the element.
  const ElementPlace place = a_place(g, 0, i, stored);
  constexpr int kSets = index_sets(g);
  const int set = control.cbsz == 0 ? control.abid & (kSets - 1) : 0;
  const int bit = set * (32 / kSets) + 2 * place.index;
  return stored / 2 * 4 + static_cast<int>(index->lane[place.lane] >> bit & 3);
}

// Step `step` of one element of D of a dense shape, straight from the registers.
template <MfmaGeometry g>
u32 element_step(const Reg* a, const Reg* b, const MfmaControl& control, int block, int i, int j,
                 int step, u32 c) {
  constexpr int kLength = step_length(g);
  Unpacked row[kLength], column[kLength];
  for (int k = 0; k < kLength; ++k) {
    row[k] = a_element<g>(a, control, block, i, step * kLength + k);
    column[k] = b_element<g>(b, control, block, step * kLength + k, j);
  }
  return step_function(g)(row, column, c);
}

// All types but f32 and f64.
template <MfmaGeometry g>
void run_exact(const Reg* a, const Reg* b, const Reg* c, Reg* d, const MfmaControl& control) {
  constexpr int kLength = step_length(g), kStored = stored_k(g);
  const StepFn add_step = step_function(g);
  const Reg* const addend = g.sparse ? d : c;
  Reg result[d_regs(g)];
  for (int block = 0; block < g.blocks; ++block) {
    Unpacked columns[g.n][g.k];
    for (int j = 0; j < g.n; ++j)
      for (int k = 0; k < g.k; ++k) columns[j][k] = b_element<g>(b, control, block, k, j);
    for (int i = 0; i < g.m; ++i) {
      Unpacked row[kStored], selected[kStored];
      int selection[kStored];
      for (int k = 0; k < kStored; ++k) {
        row[k] = a_element<g>(a, control, block, i, k);
        selection[k] = g.sparse ? selected_k<g>(c, control, i, k) : k;
      }
      for (int j = 0; j < g.n; ++j) {
        for (int k = 0; g.sparse && k < kStored; ++k) selected[k] = columns[j][selection[k]];
        const Unpacked* const column = g.sparse ? selected : columns[j];
        const ElementPlace place = d_place(g, block, i, j);
        u32 value = addend[place.index].lane[place.lane];
        for (int k = 0; k < kStored; k += kLength) value = add_step(row + k, column + k, value);
        result[place.index].lane[place.lane] = value;
      }
    }
  }
  std::memcpy(d, result, sizeof(result));
}

// f32 and f64: a chain of correctly rounded FMAs, k ascending.
void run_fma_chain(const MfmaGeometry& g, const Reg* a, const Reg* b, const Reg* c, Reg* d,
                   const MfmaControl& control);

}  // namespace vdev::mfma
