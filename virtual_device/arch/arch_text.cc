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
          product.mall_rate * machine.num_xcds / product.num_xcds, product.peak_clock_ghz}) {
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

}  // namespace
}  // namespace vdev

// "architecture, instructions, what they do beside a matrix instruction, clk behind its end,
// evidence" of every class; valid for the process's life.
extern "C" __attribute__((visibility("default"))) const char* amdattn_vdev_coexecution() {
  static const std::string text = vdev::coexecution_text();
  return text.c_str();
}

// Every device that can be played: "architecture, name, CUs, XCDs, bytes of memory, bytes of LDS of
// a CU, sustained bytes per ns of HBM, of the last level cache, peak clock in GHz, kind of 8-bit
// floats", then the PCI ids of its product; valid for the process's life.
extern "C" __attribute__((visibility("default"))) const char* amdattn_vdev_machines() {
  static const std::string text = vdev::machines_text();
  return text.c_str();
}
