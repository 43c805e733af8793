#include "isa/tables.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace vdev {
namespace {

constexpr u32 kMaxOpcodes = 1024;  // VOP3 has the widest opcode field: 10 bits

struct Tables {
  std::array<std::array<const Row*, kMaxOpcodes>, kNumFormats> by_opcode{};
  std::vector<const Row*> all;

  Tables() {
    for (std::span<const Row> part :
         {sop1_rows(), sop2_rows(), sopk_rows(), sopc_rows(), sopp_rows(), smem_rows(), vop1_rows(),
          vop2_rows(), vopc_rows(), vop3_rows(), vop3p_rows(), mfma_rows(), ds_rows(), flat_rows(),
          mubuf_rows()})
      for (const Row& row : part) add(row);
  }

  // A part checks itself at compile time; across parts only this can.
  void add(const Row& row) {
    const Row*& slot = by_opcode[static_cast<size_t>(row.format)][row.opcode % kMaxOpcodes];
    if (row.opcode >= kMaxOpcodes || slot != nullptr) {
      std::fprintf(stderr, "instruction table: %s and %s share format %d opcode 0x%x\n",
                   slot ? slot->name : "(none)", row.name, static_cast<int>(row.format),
                   row.opcode);
      std::abort();
    }
    slot = &row;
    all.push_back(&row);
  }
};

const Tables& tables() {
  static const Tables instance;
  return instance;
}

}  // namespace

const Row* find_row(Format format, u32 opcode) {
  return opcode < kMaxOpcodes ? tables().by_opcode[static_cast<size_t>(format)][opcode] : nullptr;
}

std::span<const Row* const> all_rows() { return tables().all; }

}  // namespace vdev
