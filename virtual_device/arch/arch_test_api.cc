// C entry points through which the tests make up an architecture.
#include <string>
#include <string_view>

#include "arch/processors.h"

#define VDEV_TEST_API extern "C" __attribute__((visibility("default")))

namespace vdev {
namespace {

struct MadeUp {
  std::string arch_name, product_name;
  Arch arch = kGfx942;
  Product product = kGfx942.products.front();
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

// The process's device gets one product of an architecture that is like the default but for these.
// It runs code objects of the generic processor. 0: the device exists already.
VDEV_TEST_API int vdev_test_play_made_up(const char* arch_name, const char* product_name,
                                         vdev::u32 num_xcds, vdev::u32 cus_of_xcd,
                                         vdev::u32 lds_bytes, vdev::u32 lds_granule) {
  auto& [first_name, second_name, arch, product] = vdev::made_up();
  first_name = arch_name;
  second_name = product_name;
  arch.processor.name = first_name;
  arch.processor.elf_machine = 0;
  arch.limits.lds_bytes = lds_bytes;
  arch.limits.lds_granule = lds_granule;
  product.name = second_name;
  product.num_xcds = num_xcds;
  product.cus_of_xcd = cus_of_xcd;
  arch.products = {&product, 1};
  return vdev::play({&arch, &product, num_xcds});
}
