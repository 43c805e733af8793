#include "timing/coexecution.h"

namespace vdev::timing {
namespace {

// Sources  LLVM: SIInstrInfo::isNeverCoissue, for every target with gfx940's instructions, and
// SISchedule.td. MC: AMD matrix instruction calculator (coexec). RPC: rocprofiler-compute's
// pipeline description. GLUON: ROCm/gfx950-gluon-tutorials, kernels/attention, measured on MI355X.
// CK: composable_kernel#2198. HIPBLASLT: hipBLASLt#904. ROCLIB: rocm-libraries#1302, #913, #3291.
// MM: moonmath-ai/amd-kernels, comments of its kernels. AITER: what its assembled loops are made
// of.
constexpr const char* kScalarEvidence = "RPC; MC (coexec_delay)";
constexpr const char* kPacked32Evidence =
    "LLVM, and unpacks them; CK; HIPBLASLT; MM; AITER has none in its loops; unmeasured";
constexpr const char* kListed = "LLVM; unmeasured";
constexpr const char* kAloneEvidence = "MC (coexec false); SISchedule.td has f64 on the VALU";

using enum Beside;

// clang-format off
constexpr Coexecution kGfx942[] = {
    {Unit::kValu, kOverlaps, &Arch::slot, 0, "32-bit and 16-bit scalar arithmetic, v_max3, v_perm, v_fma_mix, v_cvt_pkrtz, v_accvgpr", kScalarEvidence},
    {Unit::kValu64, kOverlaps, &Arch::slot, 0, "64-bit data", "not on LLVM's list; unmeasured"},
    {Unit::kValuConvert, kOverlaps, &Arch::convert, 0, "v_cvt between f32 and i32, u32, f16, fp8, bf8", "not on LLVM's list; rate: see arch.h"},
    {Unit::kValuPacked32, kExclusive, &Arch::slot, 0, "v_pk_{add,mul,fma}_f32, v_pk_mov_b32", kPacked32Evidence},
    {Unit::kValuPacked16, kExclusive, &Arch::slot, 0, "v_pk_* of f16, i16, u16, b16", kListed},
    {Unit::kValuDot, kExclusive, &Arch::slot, 0, "v_dot*", "LLVM; ROCLIB (gfx950)"},
    {Unit::kValuSad4, kExclusive, &Arch::slot, 0, "v_qsad_*, v_mqsad_*", kListed},
    {Unit::kValuPackFp8, kExclusive, &Arch::convert, 0, "v_cvt_pk_{fp8,bf8}_f32", kListed},
    {Unit::kTrans, kOpen, &Arch::trans, 0, "v_exp, v_log, v_rcp, v_rsq, v_sqrt, v_sin, v_cos", "LLVM says exclusive; GLUON measured overlap on gfx950"},
    {Unit::kTrans64, kOpen, &Arch::trans, 0, "the same of f64", "as f32"},
    {Unit::kMfmaAlone, kExclusive, nullptr, 0, "v_mfma with f32 or f64 inputs", kAloneEvidence},
};
// No constants of this architecture besides: nothing is simulated with this table yet.
constexpr Coexecution kGfx950[] = {
    {Unit::kValu, kOverlaps, &Arch::slot, 0, "32-bit and 16-bit scalar arithmetic, v_max3, v_perm, v_cvt_pk_{bf16,f16}_f32", "GLUON, from clk 8 of an MFMA on"},
    {Unit::kValu64, kOverlaps, &Arch::slot, 0, "64-bit data", "not on LLVM's list; unmeasured"},
    {Unit::kValuConvert, kOverlaps, &Arch::convert, 0, "v_cvt between f32 and i32, u32, f16, fp8, bf8", "not on LLVM's list; unmeasured"},
    {Unit::kValuPacked32, kExclusive, &Arch::slot, 12, "v_pk_{add,mul,fma}_f32, v_pk_mov_b32", "GLUON, 4 clk exposed and 12 behind the last MFMA"},
    {Unit::kValuPacked16, kExclusive, &Arch::slot, 12, "v_pk_* of f16, i16, u16, b16", "LLVM; 12 clk as packed f32"},
    {Unit::kValuDot, kExclusive, &Arch::slot, 12, "v_dot*", "LLVM; ROCLIB; 12 clk as packed f32"},
    {Unit::kValuSad4, kExclusive, &Arch::slot, 12, "v_qsad_*, v_mqsad_*", "LLVM; 12 clk as packed f32"},
    {Unit::kValuPackFp8, kExclusive, &Arch::convert, 12, "v_cvt_pk_{fp8,bf8}_f32", "LLVM; 12 clk as packed f32"},
    {Unit::kTrans, kOverlaps, &Arch::trans, 0, "v_exp, v_log, v_rcp, v_rsq, v_sqrt, v_sin, v_cos", "GLUON, three exp in the 24 clk of a 32x32x16"},
    {Unit::kTrans64, kOverlaps, &Arch::trans, 0, "the same of f64", "as f32; unmeasured"},
    {Unit::kMfmaAlone, kExclusive, nullptr, 0, "v_mfma with f32 or f64 inputs", "as gfx942"},
};
// clang-format on

constexpr bool complete(std::span<const Coexecution> table) {
  for (int u = 0; u < kNumUnits; ++u) {
    const Unit unit = static_cast<Unit>(u);
    int rows = 0;
    for (const Coexecution& row : table) rows += row.unit == unit;
    if (rows != (is_valu(unit) || unit == Unit::kMfmaAlone)) return false;
  }
  return true;
}
static_assert(complete(kGfx942) && complete(kGfx950), "a row for every class, and one only");

}  // namespace

std::span<const Coexecution> coexecution_gfx942() { return kGfx942; }
std::span<const Coexecution> coexecution_gfx950() { return kGfx950; }

UnitTimes::UnitTimes(const Arch& arch, bool trans_exclusive) {
  for (const Coexecution& row : arch.coexecution())
    times_[static_cast<size_t>(row.unit)] = {
        row.clk ? arch.*row.clk : 0, row.after,
        row.beside == kExclusive || (row.beside == kOpen && trans_exclusive)};
}

}  // namespace vdev::timing
