// The instruction table, a part per format. Each part lives in one file and refuses, at compile
// time, two rows with one opcode.
#pragma once

#include <span>
#include <string_view>

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
std::span<const Row> vop3_rows();  // without a shorter form; opcodes as in VOP3
std::span<const Row> vop3p_rows();
std::span<const Row> mfma_rows();  // VOP3P-MAI; format kVop3p
std::span<const Row> ds_rows();
std::span<const Row> flat_rows();   // kFlat, kGlobal and kScratch
std::span<const Row> mubuf_rows();  // kMubuf and kMtbuf

// Null when the table has no such instruction.
const Row* find_row(Format format, u32 opcode);
// Every row of every part, in the order above.
std::span<const Row* const> all_rows();

// For static_assert beside each table.
template <size_t N>
constexpr bool unique_opcodes(const Row (&rows)[N]) {
  for (size_t i = 0; i < N; ++i)
    for (size_t j = i + 1; j < N; ++j)
      if (rows[i].format == rows[j].format && rows[i].opcode == rows[j].opcode) return false;
  return true;
}

}  // namespace vdev
