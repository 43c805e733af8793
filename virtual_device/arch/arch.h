// What is known of a chip. One table an architecture (arch/gfx*.cc) has the numbers: elsewhere no
// name of a product or an architecture and no size of a chip stands, which .ci/literals checks. The
// rest of the library asks the Machine that its device plays.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arch/fp8.h"
#include "arch/instruction_sets.h"
#include "arch/timing.h"
#include "core/types.h"

namespace vdev {

struct MatrixPasses {
  std::string_view name;  // of the instruction
  u8 passes;              // of an issue slot each
  u8 narrow = passes;     // f8f6f4 without an 8-bit operand
};

// What code objects are built for.
struct Processor {
  std::string_view name;         // as in target ids
  u32 elf_machine;               // of e_flags
  std::string_view features;     // as the devices ship
  const Processor* generic;      // runs on this and its relatives alike; null: is one itself
  InstructionSets instructions;  // it has the rows that name one of these
  InstructionSets wait_states;   // rules that name one of these hold for its code
  std::span<const MatrixPasses> matrix_passes;  // a row for every matrix instruction
  // What the vector ALU does beside the matrix unit: a row for every class of instruction.
  std::span<const Coexecution> coexecution;

  // Null: it has no such matrix instruction.
  const MatrixPasses* passes(std::string_view instruction) const {
    for (const MatrixPasses& row : matrix_passes)
      if (row.name == instruction) return &row;
    return nullptr;
  }
};
// Those with devices, then the generic ones.
std::span<const Processor* const> processors();
const Processor* find_processor(std::string_view name);

// What one CU holds, and what a launch may ask for.
struct Limits {
  u32 lds_bytes, lds_granule;
  u32 simds_per_cu, waves_per_simd;
  u32 vgprs_per_simd, vgpr_granule;  // of a lane, VGPRs and AGPRs together
  u32 barriers;                      // workgroups of several waves
  u32 workgroup_lanes;
  u32 grid_x, grid_yz;  // workgroups
  u32 user_sgprs;
};

// A whole chip, all of its XCDs in one partition.
struct Product {
  std::string_view name;         // without the vendor
  std::span<const u16> pci_ids;  // the first is a whole device's, others of variants and functions
  u32 num_xcds, cus_of_xcd, shader_engines_of_xcd;
  u64 memory_bytes;  // as its runtime reports
  u32 memory_bus_bits, memory_clock_khz;
  u32 mall_bytes;
  double hbm_rate, mall_rate;  // sustained, bytes per ns
  double peak_clock_ghz, sustained_clock_ghz;
};

struct Arch {
  Processor processor;
  u32 major, minor;  // "compute capability"
  Fp8Kind fp8;
  u32 counter_khz;  // of s_memrealtime
  Limits limits;
  Timing timing;
  std::span<const Product> products;

  std::string_view name() const { return processor.name; }
};
// Those that can be played; the first is the default.
std::span<const Arch* const> architectures();

// A device as programs see it: a product, or a partition of one with some of its XCDs, which have
// their share of what the chip has once.
struct Machine {
  const Arch* arch;
  const Product* product;
  u32 num_xcds;

  u32 cus_of_xcd() const { return product->cus_of_xcd; }
  u32 num_cus() const { return num_xcds * product->cus_of_xcd; }
  u64 memory_bytes() const {  // whole pages
    return product->memory_bytes * num_xcds / product->num_xcds & ~u64{4095};
  }
};
// The first product of the first architecture.
Machine default_machine();
// What the process's device is from now on. False: it exists already.
bool play(const Machine& machine);
// What it is, for good: what play() has said, or the default.
Machine played_machine();
// Every device that can be played, by names such as "MI300X", and "MI300X:CPX" of its partitions.
std::vector<std::pair<std::string, Machine>> machines();
std::optional<Machine> find_machine(std::string_view name);

}  // namespace vdev
