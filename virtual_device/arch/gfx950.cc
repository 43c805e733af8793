// CDNA4: MI350X and MI355X. So far, what its code objects say of themselves and what runs beside
// matrix instructions: nothing is simulated with this table yet.
#include "arch/processors.h"

namespace vdev {
namespace {

using enum Beside;

// Sources: see gfx942.cc.
// clang-format off
constexpr Coexecution kCoexecution950[] = {
    {Unit::kValu, kOverlaps, &Timing::slot, 0, "32-bit and 16-bit scalar arithmetic, v_max3, v_perm, v_cvt_pk_{bf16,f16}_f32", "GLUON, from clk 8 of an MFMA on"},
    {Unit::kValu64, kOverlaps, &Timing::slot, 0, "64-bit data", "not on LLVM's list; unmeasured"},
    {Unit::kValuConvert, kOverlaps, &Timing::convert, 0, "v_cvt between f32 and i32, u32, f16, fp8, bf8", "not on LLVM's list; unmeasured"},
    {Unit::kValuPacked32, kExclusive, &Timing::slot, 12, "v_pk_{add,mul,fma}_f32, v_pk_mov_b32", "GLUON, 4 clk exposed and 12 behind the last MFMA"},
    {Unit::kValuPacked16, kExclusive, &Timing::slot, 12, "v_pk_* of f16, i16, u16, b16", "LLVM; 12 clk as packed f32"},
    {Unit::kValuDot, kExclusive, &Timing::slot, 12, "v_dot*", "LLVM; ROCLIB; 12 clk as packed f32"},
    {Unit::kValuSad4, kExclusive, &Timing::slot, 12, "v_qsad_*, v_mqsad_*", "LLVM; 12 clk as packed f32"},
    {Unit::kValuPackFp8, kExclusive, &Timing::convert, 12, "v_cvt_pk_{fp8,bf8}_f32", "LLVM; 12 clk as packed f32"},
    {Unit::kTrans, kOverlaps, &Timing::trans, 0, "v_exp, v_log, v_rcp, v_rsq, v_sqrt, v_sin, v_cos", "GLUON, three exp in the 24 clk of a 32x32x16"},
    {Unit::kTrans64, kOverlaps, &Timing::trans, 0, "the same of f64", "as f32; unmeasured"},
    {Unit::kMfmaAlone, kExclusive, nullptr, 0, "v_mfma with f32 or f64 inputs", "as gfx942"},
};
// clang-format on
static_assert(complete(kCoexecution950), "a row for every class, and one only");

}  // namespace

constinit const Processor kGfx950{.name = "gfx950",
                                  .elf_machine = 0x4f,
                                  .features = ":sramecc+:xnack-",
                                  .generic = &kGfx94Generic,
                                  .instructions = kCdna4,
                                  .wait_states = kCdna4,
                                  .matrix_passes = {},
                                  .coexecution = kCoexecution950};

}  // namespace vdev
