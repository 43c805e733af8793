// The constants of the performance model: what they are and in which units. Their values, each with
// its source, are in the architectures' tables.
//
// clk are engine clocks. Beyond the L2, clocks are not the engine's: times in ns, rates in bytes
// per ns. Latencies are of whole loads; what one level takes beyond another is their difference.
#pragma once

#include <array>
#include <bit>
#include <span>

#include "arch/unit.h"

namespace vdev {

// Lanes that the LDS serves together: of accesses of up to `bytes` a lane, from reads or writes.
struct LdsPhases {
  u32 bytes;
  bool write;
  u32 banks;  // of 4 bytes, that a phase has
  u32 count;
  std::array<u64, 8> lanes;
};

inline constexpr u32 kMostBanks = 64;

// Accesses of 1 to 16 bytes find a row, whose phases have every lane once.
constexpr bool complete(std::span<const LdsPhases> table) {
  u32 widest[2] = {};
  for (const LdsPhases& row : table) {
    u64 lanes = 0;
    for (u32 i = 0; i < row.count; ++i) {
      if (lanes & row.lanes[i]) return false;
      lanes |= row.lanes[i];
    }
    if (~lanes || row.banks > kMostBanks || row.bytes <= widest[row.write]) return false;
    widest[row.write] = row.bytes;
  }
  return widest[0] == 16 && widest[1] == 16;
}

struct Timing {
  // ---- Issue
  u32 slot;             // clk between two issue slots of a SIMD
  u32 trans;            // clk of the VALU for a transcendental
  u32 convert;          // ... between f32 and 32-bit integers, f16 or f8
  u32 mfma_lost_slots;  // VALU slots of the SIMD that an MFMA takes besides its own
  u32 taken_branch;     // clk until the next instruction of the wave
  u32 barrier;          // clk after the last wave's arrival
  u32 first_fetch;      // clk from dispatch to a wave's first instruction, cold

  // ---- LDS
  u32 lds_ports;                 // each shared by two SIMDs
  u32 lds_port_read_bytes;       // per clk, as measured
  u32 lds_port_published_bytes;  // ... as published: simulated when that is asked for
  u32 lds_port_write_bytes;      // per clk, addresses of writes among them
  u32 lds_latency;               // clk from the end of service to the data
  u32 lds_queue;                 // instructions under way per port
  u32 lds_back_to_back;          // clk between two DS instructions of a wave
  u32 lds_after_mfma;            // clk from a wave's MFMA to its next DS instruction, at least
  u32 lgkm_limit;                // operations of a wave under way, by the bits of lgkmcnt
  std::span<const LdsPhases> lds_phases;  // reads and writes, ascending bytes

  // ---- Vector memory
  u32 ta_address;      // clk of the CU's address unit per instruction
  u32 vmem_queue;      // instructions under way per CU
  u32 vm_limit;        // of a wave, by the bits of vmcnt
  u32 lds_load_slots;  // VALU slots of the SIMD that a load to LDS takes
  u32 line_bytes;
  u32 sector_bytes;  // what the L2 writes to below
  u32 l1_bytes, l1_ways;
  u32 l1_bytes_per_clk;
  u32 l1_latency;
  u32 l2_bytes, l2_ways;       // per XCD
  u32 l2_bytes_per_clk;        // per XCD
  u32 l2_write_bytes_per_clk;  // per XCD
  u32 l2_to_cu_bytes_per_clk;  // and back
  u32 l2_latency;
  u32 mall_sets;                       // of an XCD's share: its bytes give the ways
  u32 l2_polynomial, mall_polynomial;  // of their sets, see timing/cache.h
  double l2_latency_ns;
  double mall_latency_ns;
  double hbm_latency_ns;

  // ---- Scalar memory and instruction fetch
  u32 cus_of_scalar;   // CUs that share scalar and instruction caches
  u32 scalar_latency;  // clk, hit
  u32 scalar_miss;     // clk beyond a hit, to the L2
  u32 scalar_bytes, scalar_ways, scalar_line;
  u32 fetch_line;
  u32 icache_bytes, icache_ways;
  u32 icache_miss;

  // ---- Dispatch
  u32 dispatch_wave;  // clk between two waves started on an XCD
  double launch_us;   // marginal launch in a train of kernels
};

// Sets that a polynomial hashes to: two to the power of its degree.
constexpr bool hashes_to(u32 polynomial, u32 sets) {
  return std::has_single_bit(sets) && std::bit_width(polynomial) == std::bit_width(sets);
}
constexpr bool complete(const Timing& t) {
  return complete(t.lds_phases) && hashes_to(t.mall_polynomial, t.mall_sets) &&
         hashes_to(t.l2_polynomial, t.l2_bytes / t.line_bytes / t.l2_ways) &&
         std::has_single_bit(t.l1_bytes / t.line_bytes / t.l1_ways) &&
         std::has_single_bit(t.scalar_bytes / t.scalar_line / t.scalar_ways) &&
         std::has_single_bit(t.icache_bytes / t.fetch_line / t.icache_ways);
}

// ---- What the vector ALU and the matrix unit of a SIMD do at the same time

enum class Beside : u8 {
  kOverlaps,   // issues while the matrix unit works
  kExclusive,  // waits until the matrix unit is free, and holds it as long as the VALU
  kOpen,       // undecided: overlaps or not, as the simulation is told
};

// A class of instruction, with its evidence.
struct Coexecution {
  Unit unit;
  Beside beside;
  u32 Timing::* clk;  // of the VALU (of matrix instructions: none, their passes count)
  u8 after;           // exclusive: clk by which it stays behind the matrix unit's end
  const char* instructions;
  const char* evidence;
};

// A row for every class that a table must have, and one only.
constexpr bool complete(std::span<const Coexecution> table) {
  for (int u = 0; u < kNumUnits; ++u) {
    const Unit unit = static_cast<Unit>(u);
    int rows = 0;
    for (const Coexecution& row : table) rows += row.unit == unit;
    if (rows != (is_valu(unit) || unit == Unit::kMfmaAlone)) return false;
  }
  return true;
}

}  // namespace vdev
