// The constants of the performance model, each with its source. Nothing here is fitted to a kernel.
//
// Sources  ISA3: CDNA3 ISA manual. RPC: rocprofiler-compute's pipeline description. WP3: CDNA3
// white paper. MC: AMD matrix instruction calculator. FC: Formocast / TensileLite cycle pass. LLVM:
// SISchedule.td and GCNHazardRecognizer. RRZE: gpu-benches on MI300X. MT4G: memory topology runs on
// MI300X. SQTT: thread traces of MI350. [D] document, [T] constant of a vendor tool, [M] measured,
// [A] assumption.
#pragma once

#include <span>

#include "core/types.h"

namespace vdev::timing {

struct Coexecution;
std::span<const Coexecution> coexecution_gfx942();  // timing/coexecution.cc
std::span<const Coexecution> coexecution_gfx950();

struct Arch {
  const char* name;
  double peak_clock_ghz, sustained_clock_ghz;
  u32 num_cus, num_xcds;
  // What the vector ALU does beside the matrix unit.
  std::span<const Coexecution> (*coexecution)();

  // ---- Issue
  u32 simds = 4;   // per CU [D RPC]
  u32 slot = 4;    // clk between two issue slots of a SIMD [D RPC]
  u32 trans = 16;  // clk of the VALU for a transcendental [D ISA3, EXCP_CYCLE 0-15]
  // clk of the VALU for a conversion between f32 and 32-bit integers, f16 or f8. [T LLVM:
  // WriteFloatCvt is quarter rate for every target before gfx10, where reviews.llvm.org/D75392
  // found it full; its list has not v_cvt_pkrtz_f16_f32, nor those between 16-bit types]. No
  // measurement of CDNA is known: 4 is possible.
  u32 convert = 16;
  // VALU slots of the SIMD that an MFMA takes besides its own. [T LLVM PR 184084: 1]
  u32 mfma_lost_slots = 1;
  u32 taken_branch = 24;  // clk until the next instruction of the wave [T FC; LLVM has 32]
  u32 barrier = 8;        // clk after the last wave's arrival [T FC]
  u32 first_fetch = 716;  // clk from dispatch to a wave's first instruction, cold [M SQTT]

  // ---- LDS
  u32 lds_ports = 2;        // each shared by two SIMDs [D RPC]
  u32 lds_port_bytes = 64;  // per clk, each way [D RPC]
  // clk from the end of service to the data. [M MT4G: 52 clk a step of a chain of ds_read_b32 and
  // s_waitcnt: 4 of service, these, and the slot of the wait]
  u32 lds_latency = 44;
  u32 lds_queue = 16;        // instructions under way per port [T FC: 16; A: per port]
  u32 lds_back_to_back = 8;  // clk between two DS instructions of a wave [T FC: 2 slots]
  u32 lgkm_limit = 15;       // operations of a wave under way, lgkmcnt has 4 bits [D ISA3]

  // ---- Vector memory
  u32 ta_address = 4;                     // clk of the CU's address unit per instruction [D RPC]
  u32 vmem_queue = 64;                    // instructions under way per CU [A]
  u32 vm_limit = 63;                      // of a wave, vmcnt has 6 bits [D ISA3]
  u32 line_bytes = 128;                   // [D WP3]
  u32 sector_bytes = 64;                  // what the L2 writes to below: half lines [D WP3]
  u32 l1_bytes = 32768, l1_ways = 64;     // [D WP3]
  u32 l1_bytes_per_clk = 64;              // [M RRZE 61-64]
  u32 l1_latency = 118;                   // [M RRZE, MT4G 116-120]
  u32 l2_bytes = 4u << 20, l2_ways = 16;  // per XCD [D WP3]
  u32 l2_bytes_per_clk = 1843;            // per XCD: 16 channels x 128 B x 0.9 [D WP3, T FC]
  u32 l2_write_bytes_per_clk = 594;       // 16 x 64 x 0.58 [D WP3, T FC]
  u32 l2_to_cu_bytes_per_clk = 128;       // and back [M RRZE]
  u32 l2_latency = 213;                   // [M RRZE]
  u32 mall_bytes = 256u << 20, mall_ways = 16;          // [D]
  u32 l2_polynomial = 0xc75, mall_polynomial = 0x4f69;  // of their sets [A, see cache.h]
  // Beyond the L2 clocks are not the engine's: times in ns, rates in bytes per ns. Latencies are of
  // whole loads, measured at 2.092 GHz; what one level takes beyond another is their difference.
  double l2_latency_ns = 102;    // [M RRZE, the 213 clk above]
  double mall_latency_ns = 217;  // [M RRZE]
  double mall_rate = 6000;       // device, B/ns [T FC 6.0 TB/s; M MT4G 5.9]
  double hbm_latency_ns = 412;   // [M RRZE 400-425]
  double hbm_rate = 4200;        // device, B/ns, reads and writes together [M RRZE, reads]

  // ---- Scalar memory and instruction fetch
  u32 scalar_latency = 44;   // clk, hit [M MT4G: 48 a step of a chain, with the slot of the wait]
  u32 scalar_miss = 124;     // clk beyond a hit, to the L2 [M MT4G]
  u32 scalar_bytes = 16384;  // per two CUs [M MT4G]
  u32 scalar_ways = 4;       // [A]
  u32 scalar_line = 64;
  u32 fetch_line = 64;
  u32 icache_bytes = 65536;  // per two CUs [D]
  u32 icache_ways = 8;       // [D]
  u32 icache_miss = 213;     // [A: an L2 access]

  // ---- Dispatch
  u32 dispatch_wave = 14;  // clk between two waves started on an XCD [M SQTT]
  double launch_us = 2.7;  // marginal launch in a train of kernels [T FC]
};

// MI300X. Sustained clock: AMD's own bf16 GEMM at 750 W, 1207 MHz (maximum achievable FLOPs).
inline constexpr Arch kMi300x{.name = "gfx942",
                              .peak_clock_ghz = 2.1,
                              .sustained_clock_ghz = 1.2,
                              .num_cus = 304,
                              .num_xcds = 8,
                              .coexecution = coexecution_gfx942};

}  // namespace vdev::timing
