// Copies and fills of memory by the host: resolved when they run, seen by who observes memory.
#pragma once

#include <optional>
#include <string>

#include "core/device.h"

namespace vdev {

// One side of a copy or fill, in bytes.
struct Side {
  u64 address = 0;
  u64 pitch = 0, slice = 0;  // distance of rows and of planes
  bool device = false;       // an address of the device, else one of the host alone
};

struct Copy {
  Side dst, src;
  u64 width = 0, height = 1, depth = 1;  // width in bytes
};

struct FillRange {
  Side dst;
  u32 value = 0, element_bytes = 1;
  u64 width = 0, height = 1, depth = 1;  // width in elements
};

// First to last byte of a strided range; nothing where that does not fit 64 bits.
std::optional<u64> extent(const Side& side, u64 row_bytes, u64 height, u64 depth);
// What is wrong with a range of device memory.
std::string describe_transfer(const Memory& memory, u64 address, u64 bytes, const char* what);

LaunchResult run_copy(Memory& memory, const Copy& copy);
LaunchResult run_fill(Memory& memory, const FillRange& fill);

}  // namespace vdev
