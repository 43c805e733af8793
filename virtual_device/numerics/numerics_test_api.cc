// C entry points through which the tests run the scalar arithmetic on arrays.
#include <algorithm>
#include <cstring>

#include "numerics/convert.h"
#include "numerics/double_ops.h"
#include "numerics/float_rules_div.h"
#include "numerics/float_rules_mxcsr.h"
#include "numerics/float_rules_ops.h"
#include "numerics/fp8.h"
#include "numerics/half.h"
#include "numerics/transcendental.h"

#define VDEV_TEST_API extern "C" __attribute__((visibility("default")))

namespace vdev {
namespace {

using Operation = u64 (*)(u64 a, u64 b, u64 c, const FpMode& m);
struct NamedOperation {
  const char* name;
  Operation run;
};
struct NamedLanes {
  const char* name;
  void (*run)(const u32* x, u32* out);
};

#define OP(NAME, EXPRESSION)                               \
  {NAME, [](u64 a, u64 b, u64 c, const FpMode& m) -> u64 { \
     (void)a, (void)b, (void)c, (void)m;                   \
     return static_cast<u64>(EXPRESSION);                  \
   }}
// One row per instruction and format; X is the operand type of the helpers called.
#define FORMAT_OPS(S, F, X)                                                                      \
  OP("max_" S, max_num<F>(X(a), X(b), m)), OP("min_" S, min_num<F>(X(a), X(b), m)),              \
      OP("max3_" S, max3<F>(X(a), X(b), X(c), m)), OP("min3_" S, min3<F>(X(a), X(b), X(c), m)),  \
      OP("med3_" S, med3<F>(X(a), X(b), X(c), m)), OP("class_" S, cmp_class<F>(X(a), u32(b))),   \
      OP("clamp_" S, clamp01<F>(X(a), m)), OP("omod_" S, apply_omod<F>(X(a), u32(b), m)),        \
      OP("ldexp_" S, ldexp<F>(X(a), static_cast<i32>(b), m)), OP("trunc_" S, trunc<F>(X(a), m)), \
      OP("ceil_" S, ceil<F>(X(a), m)), OP("floor_" S, floor<F>(X(a), m)),                        \
      OP("rndne_" S, rndne<F>(X(a), m)), OP("fract_" S, fract<F>(X(a), m)),                      \
      OP("frexp_exp_" S, static_cast<u32>(frexp_exp<F>(X(a), m))),                               \
      OP("frexp_mant_" S, frexp_mant<F>(X(a), m)),                                               \
      OP("div_fixup_" S, div_fixup<F>(X(a), X(b), X(c), m)),                                     \
      OP("propagate_nan_" S, propagate_nan<F>(m, X(a), X(b), X(c)))
#define DIVISION_OPS(S, F, X)                                        \
  OP("div_scale_" S, div_scale<F>(X(a), X(b), X(c), m).value),       \
      OP("div_scale_vcc_" S, div_scale<F>(X(a), X(b), X(c), m).vcc), \
      OP("div_fmas_" S, div_fmas<F>(X(a), X(b), X(c), false, m)),    \
      OP("div_fmas_vcc_" S, div_fmas<F>(X(a), X(b), X(c), true, m))
#define FP8_OPS(S, FMT)                                                                            \
  OP(S "_decode", fp8_decode<FMT>(u32(a))), OP(S "_encode", fp8_encode<FMT>(u32(a), m.fp16_ovfl)), \
      OP(S "_encode_sr", fp8_encode_sr<FMT>(u32(a), u32(b), m.fp16_ovfl)),                         \
      OP(S "_pk0", cvt_pk_fp8_f32<FMT>(u32(a), u32(b), u32(c), 0, m)),                             \
      OP(S "_pk1", cvt_pk_fp8_f32<FMT>(u32(a), u32(b), u32(c), 1, m)),                             \
      OP(S "_sr_byte2", cvt_sr_fp8_f32<FMT>(u32(a), u32(b), u32(c), 2, m))

constexpr NamedOperation kOperations[] = {
    FORMAT_OPS("f16", F16, u16),
    FORMAT_OPS("f32", F32, u32),
    FORMAT_OPS("f64", F64, u64),
    DIVISION_OPS("f32", F32, u32),
    DIVISION_OPS("f64", F64, u64),
    FP8_OPS("fp8_fnuz", Fp8Fnuz),
    FP8_OPS("bf8_fnuz", Bf8Fnuz),
    FP8_OPS("fp8_ocp", Fp8Ocp),
    FP8_OPS("bf8_ocp", Bf8Ocp),
    OP("mul_legacy_f32", mul_legacy_f32(u32(a), u32(b), m)),
    OP("cube_id_f32", cube_id_f32(u32(a), u32(b), u32(c))),
    OP("cube_sc_f32", cube_sc_f32(u32(a), u32(b), u32(c))),
    OP("cube_tc_f32", cube_tc_f32(u32(a), u32(b), u32(c))),
    OP("cube_ma_f32", cube_ma_f32(u32(a), u32(b), u32(c))),
    OP("f16_to_f32", f16_to_f32(u16(a), m)),
    OP("f32_to_f16", f32_to_f16(u32(a), static_cast<Round>(b), m)),
    OP("f64_to_f16", f64_to_f16(a, static_cast<Round>(b), m)),
    OP("cvt_f16_f32", cvt_f16_f32(u32(a), m)),
    OP("cvt_pkrtz_f16_f32", cvt_pkrtz_f16_f32(u32(a), u32(b), m)),
    OP("add_f16", add_f16(u16(a), u16(b), m)),
    OP("sub_f16", sub_f16(u16(a), u16(b), m)),
    OP("mul_f16", mul_f16(u16(a), u16(b), m)),
    OP("fma_f16", fma_f16(u16(a), u16(b), u16(c), m)),
    OP("mad_f16", mad_f16(u16(a), u16(b), u16(c), m)),
    OP("soft_fma_f16", div_fmas<F16>(u16(a), u16(b), u16(c), false, m)),
    OP("exp_f32", exp_f32(u32(a))),
    OP("log_f32", log_f32(u32(a))),
    OP("rcp_f32", rcp_f32(u32(a))),
    OP("rsq_f32", rsq_f32(u32(a))),
    OP("sqrt_f32", sqrt_f32(u32(a))),
    OP("sin_f32", sin_f32(u32(a))),
    OP("cos_f32", cos_f32(u32(a))),
    OP("exp_f16", exp_f16(u16(a), m)),
    OP("log_f16", log_f16(u16(a), m)),
    OP("rcp_f16", rcp_f16(u16(a), m)),
    OP("rsq_f16", rsq_f16(u16(a), m)),
    OP("sqrt_f16", sqrt_f16(u16(a), m)),
    OP("sin_f16", sin_f16(u16(a), m)),
    OP("cos_f16", cos_f16(u16(a), m)),
    OP("rcp_f64", rcp_f64(a)),
    OP("rsq_f64", rsq_f64(a)),
    OP("sqrt_f64", sqrt_f64(a)),
    OP("trig_preop_f64", trig_preop_f64(a, u32(b))),
    OP("add_f64", add_f64(a, b, m)),
    OP("mul_f64", mul_f64(a, b, m)),
    OP("fma_f64", fma_f64(a, b, c, m)),
    OP("cvt_i32_f32", cvt_i32_f32(u32(a))),
    OP("cvt_u32_f32", cvt_u32_f32(u32(a))),
    OP("cvt_rpi_i32_f32", cvt_rpi_i32_f32(u32(a))),
    OP("cvt_flr_i32_f32", cvt_flr_i32_f32(u32(a))),
    OP("cvt_f32_i32", cvt_f32_i32(u32(a), m)),
    OP("cvt_f32_u32", cvt_f32_u32(u32(a), m)),
    OP("cvt_f32_ubyte", cvt_f32_ubyte(u32(a), u32(b))),
    OP("cvt_off_f32_i4", cvt_off_f32_i4(u32(a))),
    OP("cvt_i32_f64", cvt_i32_f64(a)),
    OP("cvt_u32_f64", cvt_u32_f64(a)),
    OP("cvt_f64_i32", cvt_f64_i32(u32(a))),
    OP("cvt_f64_u32", cvt_f64_u32(u32(a))),
    OP("cvt_f32_f64", cvt_f32_f64(a, m)),
    OP("cvt_f64_f32", cvt_f64_f32(u32(a), m)),
    OP("cvt_i16_f16", cvt_i16_f16(u16(a))),
    OP("cvt_u16_f16", cvt_u16_f16(u16(a))),
    OP("cvt_f16_i16", cvt_f16_i16(u16(a), m)),
    OP("cvt_f16_u16", cvt_f16_u16(u16(a), m)),
    OP("cvt_pk_i16_i32", cvt_pk_i16_i32(u32(a), u32(b))),
    OP("cvt_pk_u16_u32", cvt_pk_u16_u32(u32(a), u32(b))),
    OP("sat_pk_u8_i16", sat_pk_u8_i16(u32(a))),
    OP("cvt_pknorm_i16_f32", cvt_pknorm_i16_f32(u32(a), u32(b), m)),
    OP("cvt_pknorm_u16_f32", cvt_pknorm_u16_f32(u32(a), u32(b), m)),
    OP("cvt_pknorm_i16_f16", cvt_pknorm_i16_f16(u16(a), u16(b), m)),
    OP("cvt_pknorm_u16_f16", cvt_pknorm_u16_f16(u16(a), u16(b), m)),
    OP("cvt_pk_u8_f32", cvt_pk_u8_f32(u32(a), u32(b), u32(c), m)),
    OP("f32_to_bf16", f32_to_bf16(u32(a), m.fp16_ovfl)),
};
constexpr NamedLanes kLanesFunctions[] = {
    {"exp_f32", exp_f32_lanes}, {"log_f32", log_f32_lanes},   {"rcp_f32", rcp_f32_lanes},
    {"rsq_f32", rsq_f32_lanes}, {"sqrt_f32", sqrt_f32_lanes}, {"sin_f32", sin_f32_lanes},
    {"cos_f32", cos_f32_lanes},
};

template <class Table>
auto find(const Table& table, const char* name) {
  return std::find_if(std::begin(table), std::end(table),
                      [name](const auto& row) { return std::strcmp(row.name, name) == 0; });
}

}  // namespace

// out[i] = name(a[i], b[i], c[i]) for n elements, with the MODE register `mode` and MXCSR set to
// `mxcsr`. b and c may be null. Returns 0, or -1 if there is no operation `name`.
VDEV_TEST_API int vdev_test_numerics(const char* name, u32 mode, u32 mxcsr, const u64* a,
                                     const u64* b, const u64* c, u64* out, size_t n) {
  const auto row = find(kOperations, name);
  if (row == std::end(kOperations)) return -1;
  const FpMode m = fp_mode_from_register(mode);
  const MxcsrScope scope(~u32{0}, mxcsr);
  for (size_t i = 0; i < n; ++i) out[i] = row->run(a[i], b ? b[i] : 0, c ? c[i] : 0, m);
  return 0;
}

// The 64-lane functions on n elements, n a multiple of 64. In place if x == out.
VDEV_TEST_API int vdev_test_unary_f32(const char* name, u32 mxcsr, const u32* x, u32* out,
                                      size_t n) {
  const auto row = find(kLanesFunctions, name);
  if (row == std::end(kLanesFunctions) || n % kLanes != 0) return -1;
  const MxcsrScope scope(~u32{0}, mxcsr);
  for (size_t i = 0; i < n; i += kLanes) row->run(x + i, out + i);
  return 0;
}

}  // namespace vdev
