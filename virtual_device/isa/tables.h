// The instruction table, a part per format, and what an architecture has of it.
#pragma once

#include <array>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "arch/arch.h"
#include "isa/inst.h"

namespace vdev {

std::span<const Row> sop1_rows();
std::span<const Row> sop2_rows();
std::span<const Row> sopk_rows();
std::span<const Row> sopc_rows();
std::span<const Row> sopp_rows();
std::span<const Row> smem_rows();
std::span<const Row> vop1_rows();
std::span<const Row> vop2_rows();
std::span<const Row> vopc_rows();
std::span<const Row> vop3_rows();        // without a shorter form; opcodes as in VOP3
std::span<const Row> vop3_cdna4_rows();  // more of them
std::span<const Row> scaled_rows();      // v_cvt_scalef32_*
std::span<const Row> vop3p_rows();
std::span<const Row> mfma_rows();  // VOP3P-MAI; format kVop3p
std::span<const Row> ds_rows();
std::span<const Row> flat_rows();   // kFlat, kGlobal and kScratch
std::span<const Row> mubuf_rows();  // kMubuf and kMtbuf
// Of the instruction set that tests make up; empty elsewhere.
std::vector<Row>& made_up_rows();

// The instructions of one processor: a row each, completed by what its architecture says of it.
class InstructionSet {
 public:
  explicit InstructionSet(const Processor& processor);

  std::string_view processor() const { return processor_; }
  // Which rules of required wait states hold for the processor's code.
  InstructionSets wait_states() const { return wait_states_; }
  // Null: the processor has no such instruction. Mnemonics are those of rows.
  const Row* find(Format format, u32 opcode) const {
    return opcode < kMaxOpcodes ? by_opcode_[static_cast<size_t>(format)][opcode] : nullptr;
  }
  const Row* find(std::string_view mnemonic) const;
  // In the order of the parts above.
  std::span<const Row> rows() const { return rows_; }

 private:
  static constexpr u32 kMaxOpcodes = 1024;  // VOP3 has the widest opcode field: 10 bits

  std::string_view processor_;
  InstructionSets wait_states_;
  std::vector<Row> rows_;
  std::array<std::array<const Row*, kMaxOpcodes>, kNumFormats> by_opcode_{};
  std::map<std::string_view, const Row*> by_name_;
};

// Of a processor that lives as long as the process.
const InstructionSet& instruction_set(const Processor& processor);

// For static_assert beside each table: no instruction set has two rows of one opcode.
template <size_t N>
constexpr bool unique_opcodes(const Row (&rows)[N]) {
  for (size_t i = 0; i < N; ++i)
    for (size_t j = i + 1; j < N; ++j)
      if (rows[i].format == rows[j].format && rows[i].opcode == rows[j].opcode &&
          rows[i].sets & rows[j].sets)
        return false;
  return true;
}

}  // namespace vdev
