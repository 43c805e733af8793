// The co-execution tables as text, for documentation: a line per row, tab-separated.
#include <string>

#include "timing/coexecution.h"

namespace vdev::timing {
namespace {

std::string coexecution_text() {
  static constexpr const char* kBeside[] = {"overlaps", "exclusive", "open"};
  std::string text;
  const auto add = [&text](const char* arch, std::span<const Coexecution> table) {
    for (const Coexecution& row : table)
      text += std::string(arch) + '\t' + row.instructions + '\t' +
              kBeside[static_cast<int>(row.beside)] + '\t' + std::to_string(row.after) + '\t' +
              row.evidence + '\n';
  };
  add("gfx942", coexecution_gfx942());
  add("gfx950", coexecution_gfx950());
  return text;
}

}  // namespace
}  // namespace vdev::timing

// "architecture, instructions, what they do beside a matrix instruction, clk behind its end,
// evidence" of every class; valid for the process's life.
extern "C" __attribute__((visibility("default"))) const char* amdattn_vdev_coexecution() {
  static const std::string text = vdev::timing::coexecution_text();
  return text.c_str();
}
