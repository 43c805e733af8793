// f64 instructions that need more than one host operation.
//
// Index
//   rcp_f64 rsq_f64 sqrt_f64 (x)         correctly rounded (modelled: the hardware's are seeds good
//                                        to 2^29 ULP that compilers refine); denormals supported
//   trig_preop_f64(x, segment)           v_trig_preop_f64: 53 bits of 2/pi for argument reduction
//   add_f64 mul_f64 (a, b, m)  fma_f64(a, b, c, m)   MODE by bit arithmetic or host, see below
//   min/max/ldexp/frexp/fract/...<F64> are in float_rules.h and float_rules_ops.h
#pragma once

#include "numerics/float_rules.h"

namespace vdev {

u64 rcp_f64(u64 x);
u64 rsq_f64(u64 x);
u64 sqrt_f64(u64 x);
u64 trig_preop_f64(u64 x, u32 segment);

// Host arithmetic: the caller has set MXCSR to mxcsr_f64(m).
inline u64 add_f64(u64 a, u64 b, const FpMode& m) {
  return fix_nan<F64>(bit_cast<u64>(bit_cast<f64>(a) + bit_cast<f64>(b)), m, a, b);
}
inline u64 mul_f64(u64 a, u64 b, const FpMode& m) {
  return fix_nan<F64>(bit_cast<u64>(bit_cast<f64>(a) * bit_cast<f64>(b)), m, a, b);
}
// The same result with and without a host FMA unit.
u64 fma_f64(u64 a, u64 b, u64 c, const FpMode& m);

}  // namespace vdev
