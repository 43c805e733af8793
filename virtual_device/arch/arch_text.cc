// The tables as text, for documentation and for tests: a line per row, tab-separated.
#include <cstdio>
#include <string>

#include "arch/arch.h"

namespace vdev {
namespace {

std::string coexecution_text() {
  static constexpr const char* kBeside[] = {"overlaps", "exclusive", "open"};
  std::string text;
  for (const Processor* processor : processors())
    for (const Coexecution& row : processor->coexecution)
      text += std::string(processor->name) + '\t' + row.instructions + '\t' +
              kBeside[static_cast<int>(row.beside)] + '\t' + std::to_string(row.after) + '\t' +
              row.evidence + '\n';
  return text;
}

std::string machines_text() {
  std::string text;
  for (const auto& [name, machine] : machines()) {
    const Product& product = *machine.product;
    text += std::string(machine.arch->name()) + '\t' + name;
    for (const double fact :
         {double(machine.num_cus()), double(machine.num_xcds), double(machine.memory_bytes()),
          double(machine.arch->limits.lds_bytes),
          product.hbm_rate * machine.num_xcds / product.num_xcds,
          product.mall_rate * machine.num_xcds / product.num_xcds, product.peak_clock_ghz,
          product.sustained_clock_ghz,
          double(product.mall_bytes) * machine.num_xcds / product.num_xcds}) {
      char number[40];
      std::snprintf(number, sizeof number, "\t%.17g", fact);
      text += number;
    }
    text += machine.arch->fp8 == Fp8Kind::kFnuz ? "\tfnuz" : "\tocp";
    for (const u16 id : product.pci_ids) text += '\t' + std::to_string(id);
    text += '\n';
  }
  return text;
}

std::string architectures_text() {
  std::string text;
  for (const Arch* arch : architectures()) {
    const auto add = [&](std::string_view fact, double value) {
      char number[40];
      std::snprintf(number, sizeof number, "\t%.17g\n", value);
      text.append(arch->name()).append("\t").append(fact) += number;
    };
    const Limits& limits = arch->limits;
    add("lds_bytes", limits.lds_bytes);
    add("simds_per_cu", limits.simds_per_cu);
    add("waves_per_simd", limits.waves_per_simd);
    add("vgprs_per_simd", limits.vgprs_per_simd);
    add("vgpr_granule", limits.vgpr_granule);
    add("grid_x", limits.grid_x);
    add("grid_yz", limits.grid_yz);
    add("l2_bytes", arch->timing.l2_bytes);
    add("l2_bytes_per_clk", arch->timing.l2_bytes_per_clk);
    add("launch_us", arch->timing.launch_us);
    add("dispatch_wave_clk", arch->timing.dispatch_wave);
    add("first_fetch_clk", arch->timing.first_fetch);
    add("mall_latency_ns", arch->timing.mall_latency_ns);
    add("hbm_latency_ns", arch->timing.hbm_latency_ns);
    add("slot_clk", arch->timing.slot);
    add("lds_ports", arch->timing.lds_ports);
    add("lds_port_bytes", arch->timing.lds_port_read_bytes);
    add("l1_bytes_per_clk", arch->timing.l1_bytes_per_clk);
    add("l2_write_bytes_per_clk", arch->timing.l2_write_bytes_per_clk);
    add("vmem_queue", arch->timing.vmem_queue);
    for (const MatrixPasses& row : arch->processor.matrix_passes) add(row.name, row.passes);
  }
  return text;
}

}  // namespace
}  // namespace vdev

// "architecture, instructions, what they do beside a matrix instruction, clk behind its end,
// evidence" of every class; valid for the process's life.
extern "C" __attribute__((visibility("default"))) const char* amdattn_vdev_coexecution() {
  static const std::string text = vdev::coexecution_text();
  return text.c_str();
}

// Every device that can be played: "architecture, name, CUs, XCDs, bytes of memory, bytes of LDS of
// a CU, sustained bytes per ns of HBM, of the last level cache, peak clock in GHz, sustained clock,
// bytes of its share of the last level cache, kind of 8-bit floats", then the PCI ids of its
// product; valid for the process's life.
extern "C" __attribute__((visibility("default"))) const char* amdattn_vdev_machines() {
  static const std::string text = vdev::machines_text();
  return text.c_str();
}

// "architecture, fact, value" of every architecture that can be played: limits, constants of the
// model and the passes of each matrix instruction, for tests; valid for the process's life.
extern "C" __attribute__((visibility("default"))) const char* vdev_test_architectures() {
  static const std::string text = vdev::architectures_text();
  return text.c_str();
}
