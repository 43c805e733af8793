// What is known of a pointer into an address range that the application reserved.
#pragma once

#include <optional>

#include "hsa/system.h"

namespace vdev::hsa {

struct VmemPointer {
  u64 base, bytes;  // of what is mapped there, else of the range
  bool is_mapped;
};

std::optional<VmemPointer> vmem_pointer(System& system, u64 address);

}  // namespace vdev::hsa
