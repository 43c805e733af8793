// Reading host memory whose extent nobody told us.
#pragma once

#include "core/types.h"

namespace vdev {

// Reads memory of this process that may not be mapped; returns how many bytes could be read.
u64 read_safely(void* dst, const void* src, u64 bytes);

}  // namespace vdev
