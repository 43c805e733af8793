// The instruction tables of all architectures as text, for documentation: a line per row,
// tab-separated.
#include <string>

#include "isa/tables.h"

namespace vdev {
namespace {

constexpr const char* kFormats[kNumFormats] = {
    "SOP2", "SOPK",  "SOP1", "SOPC", "SOPP",    "SMEM",   "VOP2",  "VOP1", "VOPC",
    "VOP3", "VOP3P", "DS",   "FLAT", "SCRATCH", "GLOBAL", "MUBUF", "MTBUF"};
constexpr const char* kFidelities[] = {"exact", "modelled", "unverified"};

std::string table() {
  std::string text;
  for (const Arch* arch : architectures())
    for (const Row& row : instruction_set(arch->processor).rows()) {
      text += std::string(arch->name()) + '\t' + row.name + '\t' +
              kFormats[static_cast<int>(row.format)] + '\t' + std::to_string(row.opcode) + '\t' +
              kFidelities[static_cast<int>(row.fidelity)] + '\t' + row.note + '\n';
    }
  return text;
}

}  // namespace
}  // namespace vdev

// "architecture, name, format, opcode, fidelity, note" of every instruction; valid for the process.
extern "C" __attribute__((visibility("default"))) const char* amdattn_vdev_instructions() {
  static const std::string text = vdev::table();
  return text.c_str();
}
