#include "isa/atomic.h"

#include <cstdio>

namespace vdev::atomic {

void misaligned(u64 address, u32 bytes, int lane) {
  char text[96];
  std::snprintf(text, sizeof text, "atomic of %u bytes at 0x%llx, which is not a multiple of %u",
                bytes, static_cast<unsigned long long>(address), bytes);
  raise(FaultKind::kMisaligned, text, lane, address);
}

}  // namespace vdev::atomic
