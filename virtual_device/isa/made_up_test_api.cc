// C entry points through which the tests make up an architecture: like the default one, but for its
// name, limits, product, constants of the model and instructions.
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "isa/tables.h"

#define VDEV_TEST_API extern "C" __attribute__((visibility("default")))

namespace vdev {
namespace {

struct MadeUp {
  std::string arch_name, product_name;
  Arch arch = *default_machine().arch;
  Product product = *default_machine().product;
  std::vector<MatrixPasses> passes{arch.processor.matrix_passes.begin(),
                                   arch.processor.matrix_passes.end()};
  std::deque<std::string> mnemonics;

  MadeUp() {
    const Processor& like = default_machine().arch->processor;
    arch.processor.instructions = kMadeUpSet;
    for (Row row : instruction_set(like).rows()) {
      row.sets = kMadeUpSet;
      made_up_rows().push_back(row);
    }
  }
};
MadeUp& made_up() {
  static MadeUp machine;
  return machine;
}

constexpr struct {
  std::string_view name;
  u32 Timing::* constant;
} kConstants[] = {{"slot", &Timing::slot},
                  {"lds_after_mfma", &Timing::lds_after_mfma},
                  {"lds_load_slots", &Timing::lds_load_slots}};

}  // namespace
}  // namespace vdev

// Changes one of kConstants for the device that is played next. 0: it is none of these.
VDEV_TEST_API int vdev_test_made_up_timing(const char* name, vdev::u32 value) {
  for (const auto& row : vdev::kConstants) {
    if (row.name != name) continue;
    vdev::made_up().arch.timing.*row.constant = value;
    return 1;
  }
  return 0;
}

// The device that is played next lacks an instruction. 0: it has none of that mnemonic.
VDEV_TEST_API int vdev_test_made_up_lacks(const char* mnemonic) {
  vdev::made_up();
  return static_cast<int>(std::erase_if(vdev::made_up_rows(), [&](const vdev::Row& row) {
    return row.name == std::string(mnemonic);
  }));
}

// ... has the rules of required wait states of these sets only.
VDEV_TEST_API void vdev_test_made_up_wait_states(vdev::InstructionSets sets) {
  vdev::made_up().arch.processor.wait_states = sets;
}

// ... has another one, which does what `like` does on the default architecture; `passes` of a
// matrix instruction. 0: nothing is like that.
VDEV_TEST_API int vdev_test_made_up_instruction(const char* mnemonic, vdev::u32 opcode,
                                                const char* like, vdev::u32 passes) {
  vdev::MadeUp& made_up = vdev::made_up();
  const vdev::Row* row = vdev::instruction_set(vdev::default_machine().arch->processor).find(like);
  if (!row) return 0;
  vdev::Row other = *row;
  other.name = made_up.mnemonics.emplace_back(mnemonic).c_str();
  other.opcode = static_cast<vdev::u16>(opcode);
  other.sets = vdev::kMadeUpSet;
  vdev::made_up_rows().push_back(other);
  std::erase_if(made_up.passes, [&](const auto& known) { return known.name == other.name; });
  if (passes) made_up.passes.push_back({other.name, static_cast<vdev::u8>(passes)});
  return 1;
}

// The process's device gets one product of that architecture. It runs code objects of the generic
// processor. 0: the device exists already.
VDEV_TEST_API int vdev_test_play_made_up(const char* arch_name, const char* product_name,
                                         vdev::u32 num_xcds, vdev::u32 cus_of_xcd,
                                         vdev::u32 lds_bytes, vdev::u32 lds_granule) {
  vdev::MadeUp& made_up = vdev::made_up();
  vdev::Arch& arch = made_up.arch;
  vdev::Product& product = made_up.product;
  made_up.arch_name = arch_name;
  made_up.product_name = product_name;
  arch.processor.name = made_up.arch_name;
  arch.processor.elf_machine = 0;
  arch.processor.matrix_passes = made_up.passes;
  arch.limits.lds_bytes = lds_bytes;
  arch.limits.lds_granule = lds_granule;
  product.name = made_up.product_name;
  product.num_xcds = num_xcds;
  product.cus_of_xcd = cus_of_xcd;
  arch.products = {&product, 1};
  return vdev::play({&arch, &product, num_xcds});
}
