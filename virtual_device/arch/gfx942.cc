// CDNA3: MI300X, MI325X, MI300A, MI308X. Nothing here is fitted to a kernel.
//
// Sources  ISA3: CDNA3 ISA manual. RPC: rocprofiler-compute's pipeline description. WP3: CDNA3
// white paper. MC: AMD matrix instruction calculator. FC: Formocast / TensileLite cycle pass. LLVM:
// SISchedule.td, GCNHazardRecognizer and SIInstrInfo::isNeverCoissue. RRZE: gpu-benches on MI300X.
// MT4G: memory topology runs on MI300X. SQTT: thread traces of MI350. CLR: ROCm's runtime. Of the
// co-execution tables: GLUON: ROCm/gfx950-gluon-tutorials, kernels/attention, measured on MI355X.
// CK: composable_kernel#2198. HIPBLASLT: hipBLASLt#904. ROCLIB: rocm-libraries#1302, #913, #3291.
// MM: moonmath-ai/amd-kernels, comments of its kernels. AITER: what its assembled loops are made
// of. [D] document, [T] constant of a vendor tool, [M] measured, [A] assumption.
#include "arch/processors.h"

namespace vdev {
namespace {

constexpr const char* kScalarEvidence = "RPC; MC (coexec_delay)";
constexpr const char* kPacked32Evidence =
    "LLVM, and unpacks them; CK; HIPBLASLT; MM; AITER has none in its loops; unmeasured";
constexpr const char* kListed = "LLVM; unmeasured";
constexpr const char* kAloneEvidence = "MC (coexec false); SISchedule.td has f64 on the VALU";

using enum Beside;

// clang-format off
constexpr Coexecution kCoexecution942[] = {
    {Unit::kValu, kOverlaps, &Timing::slot, 0, "32-bit and 16-bit scalar arithmetic, v_max3, v_perm, v_fma_mix, v_cvt_pkrtz, v_accvgpr", kScalarEvidence},
    {Unit::kValu64, kOverlaps, &Timing::slot, 0, "64-bit data", "not on LLVM's list; unmeasured"},
    {Unit::kValuConvert, kOverlaps, &Timing::convert, 0, "v_cvt between f32 and i32, u32, f16, fp8, bf8", "not on LLVM's list; rate: see arch/gfx942.cc"},
    {Unit::kValuPacked32, kExclusive, &Timing::slot, 0, "v_pk_{add,mul,fma}_f32, v_pk_mov_b32", kPacked32Evidence},
    {Unit::kValuPacked16, kExclusive, &Timing::slot, 0, "v_pk_* of f16, i16, u16, b16", kListed},
    {Unit::kValuDot, kExclusive, &Timing::slot, 0, "v_dot*", "LLVM; ROCLIB (gfx950)"},
    {Unit::kValuSad4, kExclusive, &Timing::slot, 0, "v_qsad_*, v_mqsad_*", kListed},
    {Unit::kValuPackFp8, kExclusive, &Timing::convert, 0, "v_cvt_pk_{fp8,bf8}_f32", kListed},
    {Unit::kTrans, kOpen, &Timing::trans, 0, "v_exp, v_log, v_rcp, v_rsq, v_sqrt, v_sin, v_cos", "LLVM says exclusive; GLUON measured overlap on gfx950"},
    {Unit::kTrans64, kOpen, &Timing::trans, 0, "the same of f64", "as f32"},
    {Unit::kMfmaAlone, kExclusive, nullptr, 0, "v_mfma with f32 or f64 inputs", kAloneEvidence},
};
// clang-format on
static_assert(complete(kCoexecution942), "a row for every class, and one only");

constexpr u32 kBanks = 32;

// Sources: RPC (two half-waves of 32 dwords for b32 and b64), AMD's article on LDS bank conflicts
// (b128), probes published with HipKittens (b96).
constexpr LdsPhases halves(bool write) {
  return {8, write, kBanks, 2, {0x00000000ffffffff, 0xffffffff00000000}};
}
constexpr LdsPhases octets() {
  LdsPhases p{16, true, kBanks, 8, {}};
  for (size_t i = 0; i < 8; ++i) p.lanes[i] = u64{0xff} << 8 * i;
  return p;
}
constexpr LdsPhases read_quads() {
  LdsPhases p{16, false, kBanks, 8, {}};
  constexpr int kFirst[4][2] = {{0, 20}, {4, 16}, {8, 28}, {12, 24}};
  for (size_t i = 0; i < 8; ++i) {
    const int half = i < 4 ? 0 : 32;
    p.lanes[i] = u64{0xf} << (kFirst[i % 4][0] + half) | u64{0xf} << (kFirst[i % 4][1] + half);
  }
  return p;
}
constexpr LdsPhases kLdsPhases[] = {halves(false), halves(true), read_quads(), octets()};

// [T MC, from its cycles; D ISA3 7.5]
constexpr MatrixPasses kPasses[] = {
    {"v_mfma_f32_16x16x8_xf32", 4},       {"v_mfma_f32_32x32x4_xf32", 8},
    {"v_mfma_f32_32x32x1_2b_f32", 16},    {"v_mfma_f32_16x16x1_4b_f32", 8},
    {"v_mfma_f32_4x4x1_16b_f32", 2},      {"v_mfma_f32_32x32x2_f32", 16},
    {"v_mfma_f32_16x16x4_f32", 8},        {"v_mfma_f32_32x32x4_2b_f16", 16},
    {"v_mfma_f32_16x16x4_4b_f16", 8},     {"v_mfma_f32_4x4x4_16b_f16", 2},
    {"v_mfma_f32_32x32x8_f16", 8},        {"v_mfma_f32_16x16x16_f16", 4},
    {"v_mfma_i32_32x32x4_2b_i8", 16},     {"v_mfma_i32_16x16x4_4b_i8", 8},
    {"v_mfma_i32_4x4x4_16b_i8", 2},       {"v_mfma_i32_32x32x16_i8", 8},
    {"v_mfma_i32_16x16x32_i8", 4},        {"v_mfma_f32_32x32x4_2b_bf16", 16},
    {"v_mfma_f32_16x16x4_4b_bf16", 8},    {"v_mfma_f32_4x4x4_16b_bf16", 2},
    {"v_mfma_f32_32x32x8_bf16", 8},       {"v_mfma_f32_16x16x16_bf16", 4},
    {"v_smfmac_f32_16x16x32_f16", 4},     {"v_smfmac_f32_32x32x16_f16", 8},
    {"v_smfmac_f32_16x16x32_bf16", 4},    {"v_smfmac_f32_32x32x16_bf16", 8},
    {"v_smfmac_i32_16x16x64_i8", 4},      {"v_smfmac_i32_32x32x32_i8", 8},
    {"v_mfma_f64_16x16x4_f64", 8},        {"v_mfma_f64_4x4x4_4b_f64", 4},
    {"v_mfma_f32_16x16x32_bf8_bf8", 4},   {"v_mfma_f32_16x16x32_bf8_fp8", 4},
    {"v_mfma_f32_16x16x32_fp8_bf8", 4},   {"v_mfma_f32_16x16x32_fp8_fp8", 4},
    {"v_mfma_f32_32x32x16_bf8_bf8", 8},   {"v_mfma_f32_32x32x16_bf8_fp8", 8},
    {"v_mfma_f32_32x32x16_fp8_bf8", 8},   {"v_mfma_f32_32x32x16_fp8_fp8", 8},
    {"v_smfmac_f32_16x16x64_bf8_bf8", 4}, {"v_smfmac_f32_16x16x64_bf8_fp8", 4},
    {"v_smfmac_f32_16x16x64_fp8_bf8", 4}, {"v_smfmac_f32_16x16x64_fp8_fp8", 4},
    {"v_smfmac_f32_32x32x32_bf8_bf8", 8}, {"v_smfmac_f32_32x32x32_bf8_fp8", 8},
    {"v_smfmac_f32_32x32x32_fp8_bf8", 8}, {"v_smfmac_f32_32x32x32_fp8_fp8", 8},
};

constexpr u16 kMi300xIds[] = {0x74a1, 0x74a9, 0x74b5, 0x74bd};
constexpr u16 kMi325xIds[] = {0x74a5, 0x74b9};
constexpr u16 kMi300aIds[] = {0x74a0};
constexpr u16 kMi308xIds[] = {0x74a2, 0x74a8, 0x74b6, 0x74bc};

// Sustained clock: AMD's own bf16 GEMM on an MI300X at 750 W, 1207 MHz (maximum achievable FLOPs);
// taken for all [A]. Sustained reads of HBM: 4200 of 5300 bytes per ns on an MI300X [M RRZE], and
// that share of the others' published rates [A]. MALL: 6.0 TB/s [T FC; M MT4G 5.9].
constexpr double kSustained = 1.2;
constexpr double hbm_rate(double published) { return 4200 * published / 5300; }
constexpr u32 kMallBytes = 256u << 20;  // [D]

constexpr Product kProducts[] = {
    {.name = "MI300X",
     .pci_ids = kMi300xIds,
     .num_xcds = 8,
     .cus_of_xcd = 38,
     .shader_engines_of_xcd = 4,
     .memory_bytes = 206141652992,  // of 192 GiB, by rocm-smi
     .memory_bus_bits = 8192,
     .memory_clock_khz = 1300000,
     .mall_bytes = kMallBytes,
     .hbm_rate = hbm_rate(5300),
     .mall_rate = 6000,
     .peak_clock_ghz = 2.1,
     .sustained_clock_ghz = kSustained},
    {.name = "MI325X",
     .pci_ids = kMi325xIds,
     .num_xcds = 8,
     .cus_of_xcd = 38,
     .shader_engines_of_xcd = 4,
     .memory_bytes = u64{256} << 30,
     .memory_bus_bits = 8192,
     .memory_clock_khz = 1500000,
     .mall_bytes = kMallBytes,
     .hbm_rate = hbm_rate(6000),
     .mall_rate = 6000,
     .peak_clock_ghz = 2.1,
     .sustained_clock_ghz = kSustained},
    {.name = "MI300A",
     .pci_ids = kMi300aIds,
     .num_xcds = 6,
     .cus_of_xcd = 38,
     .shader_engines_of_xcd = 4,
     .memory_bytes = u64{128} << 30,
     .memory_bus_bits = 8192,
     .memory_clock_khz = 1300000,
     .mall_bytes = kMallBytes,
     .hbm_rate = hbm_rate(5300),
     .mall_rate = 6000,
     .peak_clock_ghz = 2.1,
     .sustained_clock_ghz = kSustained},
    {.name = "MI308X",
     .pci_ids = kMi308xIds,
     .num_xcds = 4,
     .cus_of_xcd = 20,
     .shader_engines_of_xcd = 4,
     .memory_bytes = u64{192} << 30,
     .memory_bus_bits = 8192,
     .memory_clock_khz = 1300000,
     .mall_bytes = kMallBytes,
     .hbm_rate = hbm_rate(5300),
     .mall_rate = 6000,
     .peak_clock_ghz = 2.1,
     .sustained_clock_ghz = kSustained},
};

}  // namespace

constinit const Processor kGfx94Generic{.name = "gfx9-4-generic",
                                        .elf_machine = 0x5f,
                                        .features = {},
                                        .generic = nullptr,
                                        .instructions = 0,
                                        .wait_states = 0,
                                        .matrix_passes = {},
                                        .coexecution = {}};

constexpr Arch kGfx942{
    .processor = {.name = "gfx942",
                  .elf_machine = 0x4c,
                  .features = ":sramecc+:xnack-",  // as every one ships
                  .generic = &kGfx94Generic,
                  .instructions = kCdna3,
                  .wait_states = kCdna3,
                  .matrix_passes = kPasses,
                  .coexecution = kCoexecution942},
    .major = 9,
    .minor = 4,
    .fp8 = fp8_kind(kCdna3),
    .counter_khz = 100000,
    .limits = {.lds_bytes = 64 * 1024,
               .lds_granule = 512,
               .simds_per_cu = 4,
               .waves_per_simd = 8,
               .vgprs_per_simd = 512,
               .vgpr_granule = 8,
               .barriers = 16,
               .workgroup_lanes = 1024,
               .grid_x = 0x7fffffff,  // [D hipDeviceProp_t.maxGridSize as CLR fills it in]
               .grid_yz = 65536,      // the same
               .user_sgprs = 16},
    .timing =
        {
            // ---- Issue
            .slot = 4,    // [D RPC]
            .trans = 16,  // [D ISA3, EXCP_CYCLE 0-15]
                          // [T LLVM: WriteFloatCvt is quarter rate for every target before gfx10,
                          // where reviews.llvm.org/D75392 found it full; its list has not
                          // v_cvt_pkrtz_f16_f32, nor those between 16-bit types]. No measurement of
                          // CDNA is known: 4 is possible.
            .convert = 16,
            .mfma_lost_slots = 1,  // [T LLVM PR 184084]
            .taken_branch = 24,    // [T FC; LLVM has 32]
            .barrier = 8,          // [T FC]
            .first_fetch = 716,    // [M SQTT]

            // ---- LDS
            .lds_ports = 2,                  // [D RPC]
            .lds_port_read_bytes = 64,       // [D RPC]
            .lds_port_published_bytes = 64,  // the same
            .lds_port_write_bytes =
                64,  // [D RPC]
                     // [M MT4G: 52 clk a step of a chain of ds_read_b32 and s_waitcnt: 4 of
                     // service, these, and the slot of the wait]
            .lds_latency = 44,
            .lds_queue = 16,        // [T FC: 16; A: per port]
            .lds_back_to_back = 8,  // [T FC: 2 slots]
            .lds_after_mfma = 4,    // the next slot: no rule is known [A]
            .lgkm_limit = 15,       // 4 bits [D ISA3]
            .lds_phases = kLdsPhases,

            // ---- Vector memory
            .ta_address = 4,                // [D RPC]
            .vmem_queue = 64,               // [A]
            .vm_limit = 63,                 // 6 bits [D ISA3]
            .lds_load_slots = 0,            // [A]
            .line_bytes = 128,              // [D WP3]
            .sector_bytes = 64,             // half lines [D WP3]
            .l1_bytes = 32768,              // [D WP3]
            .l1_ways = 64,                  // [D WP3]
            .l1_bytes_per_clk = 64,         // [M RRZE 61-64]
            .l1_latency = 118,              // [M RRZE, MT4G 116-120]
            .l2_bytes = 4u << 20,           // [D WP3]
            .l2_ways = 16,                  // [D WP3]
            .l2_bytes_per_clk = 1843,       // 16 channels x 128 B x 0.9 [D WP3, T FC]
            .l2_write_bytes_per_clk = 594,  // 16 x 64 x 0.58 [D WP3, T FC]
            .l2_to_cu_bytes_per_clk = 128,  // [M RRZE]
            .l2_latency = 213,              // [M RRZE, at 2.092 GHz]
            .mall_sets = 16384,             // of 16 ways on an MI300X [D]
            .l2_polynomial = 0xc75,         // [A, see timing/cache.h]
            .mall_polynomial = 0x4f69,      // the same
            .l2_latency_ns = 102,           // [M RRZE, the 213 clk above]
            .mall_latency_ns = 217,         // [M RRZE]
            .hbm_latency_ns = 412,          // [M RRZE 400-425]

            // ---- Scalar memory and instruction fetch
            .cus_of_scalar = 2,     // [D]
            .scalar_latency = 44,   // [M MT4G: 48 a step of a chain, with the slot of the wait]
            .scalar_miss = 124,     // [M MT4G]
            .scalar_bytes = 16384,  // [M MT4G]
            .scalar_ways = 4,       // [A]
            .scalar_line = 64,      // [M MT4G]
            .fetch_line = 64,
            .icache_bytes = 65536,  // [D]
            .icache_ways = 8,       // [D]
            .icache_miss = 213,     // [A: an L2 access]

            // ---- Dispatch
            .dispatch_wave = 14,  // [M SQTT]
            .launch_us = 2.7,     // [T FC]
        },
    .products = kProducts,
};

static_assert(complete(kGfx942.timing));

}  // namespace vdev
