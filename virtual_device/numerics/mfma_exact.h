// The matrix instructions in plain integer arithmetic: the definition that the fast kernels are
// tested against and fall back to.
//
// A floating-point sum of products is not a chain of FMAs on CDNA3. The products of a step of 4, 8
// or 16 k are truncated to one common exponent and added exactly, then C joins with a rounding of
// its own (MMA-Sim, arXiv 2511.10909, TR and GTR; in `sum_step`). Steps follow in
// ascending k, each taking the f32 result of the one before.
//
// Modelled, not published: V_SMFMAC_* takes the stored elements of A with the elements of B that
// their indices select, in stored order, as if they were a dense row of half the length.
#pragma once

#include "numerics/mfma_layout.h"

namespace vdev::mfma {

// MMA-Sim leaves the payload open; this is the canonical quiet NaN.
inline constexpr u32 kNanF32 = 0x7fc00000;
inline constexpr u64 kNanF64 = 0x7ff8000000000000;

// A finite input is significand * 2^(exponent - fraction_bits(type)), where exponent is
// max(floor(log2 |x|), smallest normal exponent): a subnormal has a small significand. The exponents
// of the others show up in sums: a product without kZero, kInf or kNan has one in -300..300.
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
    case MfmaSrc::kF16: return 10;
    case MfmaSrc::kBf16: return 7;
    case MfmaSrc::kFp8: return 3;
    default: return 2;
  }
}
// k of one step. 8-bit floats have two groups of products, of even and of odd k. Integers have no
// steps, any length will do.
constexpr int step_length(const MfmaGeometry& g) {
  const int longest =
      g.a == MfmaSrc::kXf32 || g.a == MfmaSrc::kI8 ? 4 : bits_of(g.a) == 8 ? 16 : 8;
  return stored_k(g) < longest ? stored_k(g) : longest;
}
constexpr bool has_two_groups(const MfmaGeometry& g) { return bits_of(g.a) == 8; }

Unpacked unpack(MfmaSrc type, u32 bits);  // an i8 is its own significand

// c + a[0]*b[0] + ... + a[length-1]*b[length-1]; c and the result are f32 bits.
using StepFn = u32 (*)(const Unpacked* a, const Unpacked* b, u32 c);
StepFn step_function(const MfmaGeometry& g);

// Step `step` of one element of D of a dense shape, straight from the registers.
u32 element_step(const MfmaGeometry& g, const Reg* a, const Reg* b, const MfmaControl& control,
                 int block, int i, int j, int step, u32 c);

// All types but f32 and f64.
void run_exact(const MfmaGeometry& g, const Reg* a, const Reg* b, const Reg* c, Reg* d,
               const MfmaControl& control);
// f32 and f64: a chain of correctly rounded FMAs, k ascending.
void run_fma_chain(const MfmaGeometry& g, const Reg* a, const Reg* b, const Reg* c, Reg* d,
                   const MfmaControl& control);

}  // namespace vdev::mfma
