// C entry points through which the tests make up an architecture.
#include <string>

#include "arch/processors.h"

#define VDEV_TEST_API extern "C" __attribute__((visibility("default")))

// The process's device gets one product of an architecture that is like the default but for these.
// It runs code objects of the generic processor. 0: the device exists already.
VDEV_TEST_API int vdev_test_play_made_up(const char* arch_name, const char* product_name,
                                         vdev::u32 num_xcds, vdev::u32 cus_of_xcd,
                                         vdev::u32 lds_bytes, vdev::u32 lds_granule,
                                         vdev::u32 slot) {
  using namespace vdev;
  static std::string names[2];
  static Arch arch = kGfx942;
  static Product product = kGfx942.products.front();
  names[0] = arch_name;
  names[1] = product_name;
  arch.processor.name = names[0];
  arch.processor.elf_machine = 0;
  arch.limits.lds_bytes = lds_bytes;
  arch.limits.lds_granule = lds_granule;
  arch.timing.slot = slot;
  product.name = names[1];
  product.num_xcds = num_xcds;
  product.cus_of_xcd = cus_of_xcd;
  arch.products = {&product, 1};
  return play({&arch, &product, num_xcds});
}
