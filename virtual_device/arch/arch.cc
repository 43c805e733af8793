#include "arch/arch.h"

#include <array>
#include <mutex>

#include "arch/played.h"
#include "arch/processors.h"

namespace vdev {
namespace {

// How a chip is partitioned by how many partitions it is in, if not one for each XCD.
constexpr std::array<std::string_view, 5> kModes = {"", "SPX", "DPX", "TPX", "QPX"};

std::string_view mode(const Product& product, u32 num_xcds) {
  if (product.num_xcds % num_xcds) return {};
  const u32 partitions = product.num_xcds / num_xcds;
  if (num_xcds == 1 && partitions > 1) return "CPX";
  return partitions < kModes.size() ? kModes[partitions] : std::string_view{};
}

struct Played {
  std::mutex mutex;
  std::optional<Machine> machine;
  u32 num_gpus = 1;
  bool exists = false;
};
Played& played() {
  static Played state;
  return state;
}

}  // namespace

std::vector<std::pair<std::string, Machine>> machines() {
  std::vector<std::pair<std::string, Machine>> all;
  for (const Arch* arch : architectures())
    for (const Product& product : arch->products) {
      all.emplace_back(product.name, Machine{arch, &product, product.num_xcds});
      for (u32 xcds = product.num_xcds - 1; xcds > 0; --xcds)
        if (const auto named = mode(product, xcds); !named.empty())
          all.emplace_back(std::string(product.name).append(":").append(named),
                           Machine{arch, &product, xcds});
    }
  return all;
}

std::span<const Processor* const> processors() {
  static constexpr const Processor* kAll[] = {&kGfx942.processor, &kGfx950.processor,
                                              &kGfx94Generic};
  return kAll;
}

const Processor* find_processor(std::string_view name) {
  for (const Processor* processor : processors())
    if (processor->name == name) return processor;
  return nullptr;
}

std::span<const Arch* const> architectures() {
  static constexpr const Arch* kAll[] = {&kGfx942, &kGfx950};
  return kAll;
}

Machine default_machine() {
  const Arch& arch = *architectures().front();
  const Product& product = arch.products.front();
  return {&arch, &product, product.num_xcds};
}

bool play(const Machine& machine) {
  Played& state = played();
  std::lock_guard lock(state.mutex);
  if (state.exists) return false;
  state.machine = machine;
  return true;
}

bool play_gpus(u32 count) {
  Played& state = played();
  std::lock_guard lock(state.mutex);
  if (state.exists || count == 0 || count > kMaxGpus) return false;
  state.num_gpus = count;
  return true;
}

u32 num_played_gpus() {
  Played& state = played();
  std::lock_guard lock(state.mutex);
  return state.num_gpus;
}

bool is_machine_decided() {
  Played& state = played();
  std::lock_guard lock(state.mutex);
  return state.exists || state.machine.has_value();
}

Machine played_machine() {
  Played& state = played();
  std::lock_guard lock(state.mutex);
  state.exists = true;
  return state.machine.value_or(default_machine());
}

std::optional<Machine> find_machine(std::string_view name) {
  for (const auto& [known, machine] : machines())
    if (known == name) return machine;
  return std::nullopt;
}

}  // namespace vdev
