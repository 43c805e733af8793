#include "isa/tables.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

namespace vdev {
namespace {

// A part checks itself at compile time; across parts only this can.
[[noreturn]] void clash(std::string_view processor, const Row& one, const Row& other) {
  std::fprintf(stderr, "instruction table of %.*s: %s and %s, format %d opcodes 0x%x and 0x%x\n",
               static_cast<int>(processor.size()), processor.data(), one.name, other.name,
               static_cast<int>(one.format), one.opcode, other.opcode);
  std::abort();
}

}  // namespace

std::vector<Row>& made_up_rows() {
  static std::vector<Row> rows;
  return rows;
}

InstructionSet::InstructionSet(const Processor& processor)
    : processor_(processor.name), wait_states_(processor.wait_states) {
  for (std::span<const Row> part :
       {sop1_rows(), sop2_rows(), sopk_rows(), sopc_rows(), sopp_rows(), smem_rows(), vop1_rows(),
        vop2_rows(), vopc_rows(), vop3_rows(), vop3_cdna4_rows(), scaled_rows(), vop3p_rows(),
        mfma_rows(), ds_rows(), flat_rows(), mubuf_rows(), std::span<const Row>(made_up_rows())})
    for (const Row& row : part)
      if (row.sets & processor.instructions) rows_.push_back(row);
  for (Row& row : rows_) {
    if (const MatrixPasses* passes = row.matrix ? processor.passes(row.name) : nullptr) {
      row.passes = passes->passes;
      row.narrow_passes = passes->narrow;
    }
    if (row.opcode >= kMaxOpcodes) clash(processor_, row, row);
    const Row*& slot = by_opcode_[static_cast<size_t>(row.format)][row.opcode];
    const auto [named, added] = by_name_.emplace(row.name, &row);
    if (slot || !added) clash(processor_, slot ? *slot : *named->second, row);
    slot = &row;
  }
}

const Row* InstructionSet::find(std::string_view mnemonic) const {
  const auto found = by_name_.find(mnemonic);
  return found == by_name_.end() ? nullptr : found->second;
}

const InstructionSet& instruction_set(const Processor& processor) {
  static std::mutex mutex;
  // Never freed: workers may run until the process is gone.
  static auto& sets = *new std::map<const Processor*, std::unique_ptr<const InstructionSet>>;
  std::lock_guard lock(mutex);
  auto& set = sets[&processor];
  if (!set) set = std::make_unique<const InstructionSet>(processor);
  return *set;
}

}  // namespace vdev
