// The transcendental unit. Results are correctly rounded for almost every f32 input and never more
// than 1 ULP away; the hardware's own tables are not public, so they are modelled, not bit-exact.
//
// Index
//   f32, one value (u32 -> u32) and a wave (x and out may be the same array):
//     exp_f32   exp_f32_lanes      2^x            log_f32   log_f32_lanes    log2(x)
//     rcp_f32   rcp_f32_lanes      also v_rcp_iflag_f32
//     rsq_f32   rsq_f32_lanes                     sqrt_f32  sqrt_f32_lanes
//     sin_f32   sin_f32_lanes      sin(2 pi x)    cos_f32   cos_f32_lanes    cos(2 pi x)
//   f16 (u16, m -> u16): exp_f16 log_f16 rcp_f16 rsq_f16 sqrt_f16 sin_f16 cos_f16
//   f64: rcp_f64 rsq_f64 sqrt_f64 in double_ops.h
//
// MODE: rounding is always to nearest even. exp, log, rcp, rsq and sqrt of f32 flush denormal
// operands and results to signed zero whatever MODE says; sin and cos of f32 follow the DAZ and FTZ
// bits of the MXCSR they are called with. The f16 forms follow the f16 denormal field of `m`.
// NaN operands come back quiet; invalid operations give the default NaN.
#pragma once

#include "numerics/float_rules.h"

namespace vdev {

void exp_f32_lanes(const u32* x, u32* out);
void log_f32_lanes(const u32* x, u32* out);
void rcp_f32_lanes(const u32* x, u32* out);
void rsq_f32_lanes(const u32* x, u32* out);
void sqrt_f32_lanes(const u32* x, u32* out);
void sin_f32_lanes(const u32* x, u32* out);
void cos_f32_lanes(const u32* x, u32* out);

u32 exp_f32(u32 x);
u32 log_f32(u32 x);
u32 rcp_f32(u32 x);
u32 rsq_f32(u32 x);
u32 sqrt_f32(u32 x);
u32 sin_f32(u32 x);
u32 cos_f32(u32 x);

u16 exp_f16(u16 x, const FpMode& m);
u16 log_f16(u16 x, const FpMode& m);
u16 rcp_f16(u16 x, const FpMode& m);
u16 rsq_f16(u16 x, const FpMode& m);
u16 sqrt_f16(u16 x, const FpMode& m);
u16 sin_f16(u16 x, const FpMode& m);
u16 cos_f16(u16 x, const FpMode& m);

}  // namespace vdev
