// What is known of a pointer into an address range that the application reserved.
#pragma once

#include <optional>

#include "hsa/system.h"

namespace vdev::hsa {

struct VmemPointer {
  u64 base, bytes;  // of what is mapped there, else of the range
  bool is_mapped;
  u32 gpu;  // whose memory is mapped
};

std::optional<VmemPointer> vmem_pointer(System& system, u64 address);
// What memory without an address of its own takes of a GPU's.
u64 vmem_bytes_of(const System& system, u32 gpu);

}  // namespace vdev::hsa
