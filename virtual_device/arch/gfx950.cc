// CDNA4: MI350X and MI355X. Nothing here is fitted to a kernel.
//
// Sources as in gfx942.cc, and ISA4: CDNA4 ISA manual. WP4: CDNA4 white paper. HK: phase probes of
// HipKittens on an MI355X (analysis/paper_experiments/phases). OR: rates that AMD's Origami has of
// gfx950, measured (rocm-libraries, shared/origami, hardware.cpp). What is not named is as on CDNA3
// [A].
#include "arch/processors.h"

namespace vdev {
namespace {

using enum Beside;

// clang-format off
constexpr Coexecution kCoexecution950[] = {
    {Unit::kValu, kOverlaps, &Timing::slot, 0, "32-bit and 16-bit scalar arithmetic, v_max3, v_perm, v_cvt_pk_{bf16,f16}_f32; v_permlane*_swap (5 slots)", "GLUON, from clk 8 of an MFMA on"},
    {Unit::kValu64, kOverlaps, &Timing::slot, 0, "64-bit data", "not on LLVM's list; unmeasured"},
    {Unit::kValuConvert, kOverlaps, &Timing::convert, 0, "v_cvt between f32 and i32, u32, f16, bf16, fp8, bf8; v_cvt_scalef32_*", "not on LLVM's list; unmeasured"},
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

constexpr u32 kBanks950 = 64;

// Lanes that follow each other are served together.
constexpr LdsPhases in_order(u32 bytes, bool write, u32 banks, u32 count) {
  LdsPhases p{bytes, write, banks, count, {}};
  const u32 lanes = 64 / count;
  for (u32 i = 0; i < count; ++i) p.lanes[i] = ((u64{1} << lanes) - 1) << lanes * i;
  return p;
}

// [M HK] of b64, b96 and b128 reads and of b64 writes; b128 reads as Triton has them, too (PR
// 11365). b32 reads as those of b64 [T FC: they take as long], transposing reads as those of their
// width, b32 and b128 writes as CDNA3's [A].
constexpr LdsPhases kLdsPhases950[] = {
    in_order(8, false, kBanks950, 2),
    {12,
     false,
     32,
     8,
     {0x0000000000f0000f, 0x00000000000f00f0, 0x00000000f0000f00, 0x000000000f00f000,
      0x00f0000f00000000, 0x000f00f000000000, 0xf0000f0000000000, 0x0f00f00000000000}},
    {16,
     false,
     kBanks950,
     4,
     {0x000000000ff0f00f, 0x00000000f00f0ff0, 0x0ff0f00f00000000, 0xf00f0ff000000000}},
    in_order(4, true, 32, 2),
    in_order(8, true, 32, 4),
    in_order(16, true, 32, 8),
};

// [D ISA4; T LLVM, which has f64 4x4x4 at 4 as on CDNA3]. f8f6f4: with an 8-bit operand, without.
constexpr MatrixPasses kPasses950[] = {
    {"v_mfma_f32_32x32x1_2b_f32", 16},
    {"v_mfma_f32_16x16x1_4b_f32", 8},
    {"v_mfma_f32_4x4x1_16b_f32", 2},
    {"v_mfma_f32_32x32x2_f32", 16},
    {"v_mfma_f32_16x16x4_f32", 8},
    {"v_mfma_f32_32x32x4_2b_f16", 16},
    {"v_mfma_f32_16x16x4_4b_f16", 8},
    {"v_mfma_f32_4x4x4_16b_f16", 2},
    {"v_mfma_f32_32x32x8_f16", 8},
    {"v_mfma_f32_16x16x16_f16", 4},
    {"v_mfma_i32_32x32x4_2b_i8", 16},
    {"v_mfma_i32_16x16x4_4b_i8", 8},
    {"v_mfma_i32_4x4x4_16b_i8", 2},
    {"v_mfma_i32_32x32x16_i8", 8},
    {"v_mfma_i32_16x16x32_i8", 4},
    {"v_mfma_f32_32x32x4_2b_bf16", 16},
    {"v_mfma_f32_16x16x4_4b_bf16", 8},
    {"v_mfma_f32_4x4x4_16b_bf16", 2},
    {"v_mfma_f32_32x32x8_bf16", 8},
    {"v_mfma_f32_16x16x16_bf16", 4},
    {"v_smfmac_f32_16x16x32_f16", 4},
    {"v_smfmac_f32_32x32x16_f16", 8},
    {"v_smfmac_f32_16x16x32_bf16", 4},
    {"v_smfmac_f32_32x32x16_bf16", 8},
    {"v_smfmac_i32_16x16x64_i8", 4},
    {"v_smfmac_i32_32x32x32_i8", 8},
    {"v_mfma_f64_16x16x4_f64", 16},
    {"v_mfma_f64_4x4x4_4b_f64", 8},
    {"v_mfma_f32_16x16x32_bf8_bf8", 4},
    {"v_mfma_f32_16x16x32_bf8_fp8", 4},
    {"v_mfma_f32_16x16x32_fp8_bf8", 4},
    {"v_mfma_f32_16x16x32_fp8_fp8", 4},
    {"v_mfma_f32_32x32x16_bf8_bf8", 8},
    {"v_mfma_f32_32x32x16_bf8_fp8", 8},
    {"v_mfma_f32_32x32x16_fp8_bf8", 8},
    {"v_mfma_f32_32x32x16_fp8_fp8", 8},
    {"v_smfmac_f32_16x16x64_bf8_bf8", 4},
    {"v_smfmac_f32_16x16x64_bf8_fp8", 4},
    {"v_smfmac_f32_16x16x64_fp8_bf8", 4},
    {"v_smfmac_f32_16x16x64_fp8_fp8", 4},
    {"v_smfmac_f32_32x32x32_bf8_bf8", 8},
    {"v_smfmac_f32_32x32x32_bf8_fp8", 8},
    {"v_smfmac_f32_32x32x32_fp8_bf8", 8},
    {"v_smfmac_f32_32x32x32_fp8_fp8", 8},
    {"v_mfma_f32_16x16x32_bf16", 4},
    {"v_mfma_f32_32x32x16_bf16", 8},
    {"v_mfma_f32_16x16x32_f16", 4},
    {"v_mfma_f32_32x32x16_f16", 8},
    {"v_mfma_i32_16x16x64_i8", 4},
    {"v_mfma_i32_32x32x32_i8", 8},
    {"v_smfmac_f32_16x16x64_f16", 4},
    {"v_smfmac_f32_32x32x32_f16", 8},
    {"v_smfmac_f32_16x16x64_bf16", 4},
    {"v_smfmac_f32_32x32x32_bf16", 8},
    {"v_smfmac_i32_16x16x128_i8", 4},
    {"v_smfmac_i32_32x32x64_i8", 8},
    {"v_smfmac_f32_16x16x128_bf8_bf8", 4},
    {"v_smfmac_f32_16x16x128_bf8_fp8", 4},
    {"v_smfmac_f32_16x16x128_fp8_bf8", 4},
    {"v_smfmac_f32_16x16x128_fp8_fp8", 4},
    {"v_smfmac_f32_32x32x64_bf8_bf8", 8},
    {"v_smfmac_f32_32x32x64_bf8_fp8", 8},
    {"v_smfmac_f32_32x32x64_fp8_bf8", 8},
    {"v_smfmac_f32_32x32x64_fp8_fp8", 8},
    {"v_mfma_f32_16x16x128_f8f6f4", 8, 4},
    {"v_mfma_f32_32x32x64_f8f6f4", 16, 8},
    {"v_mfma_scale_f32_16x16x128_f8f6f4", 8, 4},
    {"v_mfma_scale_f32_32x32x64_f8f6f4", 16, 8},
};

constexpr u16 kMi355xIds[] = {0x75a3, 0x75b3};
constexpr u16 kMi350xIds[] = {0x75a0, 0x75b0};

// Sustained clock: 1.57 TFLOP/s of a bf16 GEMM at 100 % use give 1.5 GHz, so it is above [M HK];
// AMD's simulator has 1.8 [T FC]; 1.75 is taken [A]. Sustained reads of HBM: 6250 of 8000 bytes per
// ns, the ceiling that AITER's kernels are held against on an MI355X [M aiter#4719; OR 6228 to
// 6373 by width]. MALL [M OR, 16 bytes a lane].
constexpr double kSustained950 = 1.75;
constexpr double kHbm950 = 6250;
constexpr double kMall950 = 6565;
constexpr u32 kMallBytes950 = 256u << 20;  // [D]

constexpr Product kProducts950[] = {
    {.name = "MI355X",
     .pci_ids = kMi355xIds,
     .num_xcds = 8,
     .cus_of_xcd = 32,
     .shader_engines_of_xcd = 4,
     .memory_bytes = u64{288} << 30,
     .memory_bus_bits = 8192,
     .memory_clock_khz = 2000000,
     .mall_bytes = kMallBytes950,
     .hbm_rate = kHbm950,
     .mall_rate = kMall950,
     .peak_clock_ghz = 2.4,
     .sustained_clock_ghz = kSustained950},
    {.name = "MI350X",
     .pci_ids = kMi350xIds,
     .num_xcds = 8,
     .cus_of_xcd = 32,
     .shader_engines_of_xcd = 4,
     .memory_bytes = u64{288} << 30,
     .memory_bus_bits = 8192,
     .memory_clock_khz = 2000000,
     .mall_bytes = kMallBytes950,
     .hbm_rate = kHbm950,
     .mall_rate = kMall950,
     .peak_clock_ghz = 2.2,
     .sustained_clock_ghz = 1.5},  // 1000 W for 1400 W [A]
};

}  // namespace

constexpr Arch kGfx950{
    .processor = {.name = "gfx950",
                  .elf_machine = 0x4f,
                  .features = ":sramecc+:xnack-",
                  .generic = &kGfx94Generic,
                  .instructions = kCdna4,
                  .wait_states = kCdna4,
                  .matrix_passes = kPasses950,
                  .coexecution = kCoexecution950},
    .major = 9,
    .minor = 5,
    .fp8 = fp8_kind(kCdna4),
    .counter_khz = 100000,
    .limits = {.lds_bytes = 160 * 1024,  // [D WP4]
               .lds_granule = 1280,      // [T LLVM]
               .simds_per_cu = 4,
               .waves_per_simd = 8,
               .vgprs_per_simd = 512,
               .vgpr_granule = 8,
               .barriers = 16,
               .workgroup_lanes = 1024,
               .grid_x = 0x7fffffff,
               .grid_yz = 65536,
               .user_sgprs = 16},
    .timing =
        {
            // ---- Issue
            .slot = 4,             // [D RPC]
            .trans = 8,            // [D WP4: twice CDNA3's rate; M GLUON]
            .convert = 16,         // as CDNA3 [A]; v_cvt_pk_{bf16,f16}_f32 take a slot [M GLUON]
            .mfma_lost_slots = 1,  // VALU from clk 8 of an MFMA on [M GLUON]
            .taken_branch = 24,
            .barrier = 8,
            .first_fetch = 716,  // [M SQTT]

            // ---- LDS
            .lds_ports = 2,  // [T FC: two waves share an interface]
                             // As CDNA3 [D RPC, of MI350 too]: 122 of 128 bytes a clk of a CU is
                             // the most that was seen, with 15 of writes by loads to LDS beside [M
                             // GLUON], and a wave's b128 return 16 clk apart [M SQTT]
            .lds_port_read_bytes = 64,
            .lds_port_published_bytes = 128,  // 256 of a CU [D WP4]
            .lds_port_write_bytes = 64,
            .lds_latency = 44,      // [T FC, of b32 and b64; M SQTT 36 to the first return]
            .lds_queue = 16,        // [T FC]
            .lds_back_to_back = 8,  // [T FC]
            .lds_after_mfma = 8,    // none in the 4 clk after an MFMA [T FC; hipBLASLt#2997]
            .lgkm_limit = 15,
            .lds_phases = kLdsPhases950,

            // ---- Vector memory
            .ta_address = 4,
            .vmem_queue = 64,
            .vm_limit = 63,
            .lds_load_slots = 1,  // [T FC, LLVM PR 214682]
            .line_bytes = 128,    // [T FC; M OR 128 of L2 and MALL]
            .sector_bytes = 64,
            .l1_bytes = 32768,  // [T FC]
            .l1_ways = 64,
            .l1_bytes_per_clk = 64,  // [T FC]
            .l1_latency = 118,
            .l2_bytes = 4u << 20,  // [T FC]
            .l2_ways = 16,
            .l2_bytes_per_clk = 1843,       // 16 x 128 x 0.9 [T FC]; 880 by a workgroup a CU [M OR]
            .l2_write_bytes_per_clk = 768,  // 16 x 64 x 0.75 [T FC]
            .l2_to_cu_bytes_per_clk = 128,  // [T FC]
            .l2_latency = 213,
            .mall_sets = 16384,
            .l2_polynomial = 0xc75,
            .mall_polynomial = 0x4f69,
            .l2_latency_ns = 102,
            .mall_latency_ns = 217,
            .hbm_latency_ns = 412,

            // ---- Scalar memory and instruction fetch
            .cus_of_scalar = 2,
            .scalar_latency = 44,
            .scalar_miss = 124,
            .scalar_bytes = 16384,
            .scalar_ways = 4,
            .scalar_line = 64,
            .fetch_line = 64,
            .icache_bytes = 65536,
            .icache_ways = 8,
            .icache_miss = 213,

            // ---- Dispatch
            .dispatch_wave = 14,  // [M SQTT]
            .launch_us = 2.6,     // [T FC]
        },
    .products = kProducts950,
};

static_assert(complete(kGfx950.timing));

}  // namespace vdev
