// Flat address apertures of gfx9 as the Linux kernel driver sets them up: 4 GiB windows whose upper
// 32 bits tell LDS and scratch from global memory.
#pragma once

#include "core/types.h"

namespace vdev {

inline constexpr u64 kSharedBase = u64{1} << 48;
inline constexpr u64 kPrivateBase = u64{2} << 48;
inline constexpr u64 kApertureBytes = u64{1} << 32;

}  // namespace vdev
