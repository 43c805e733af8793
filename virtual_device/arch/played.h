// What the process's device is to be, beside which machine, and whether that is decided already.
#pragma once

#include "core/types.h"

namespace vdev {

inline constexpr u32 kMaxGpus = 64;  // the partitions of eight chips

// By play(), or by whoever asked for it.
bool is_machine_decided();
// How many of the machine there are from now on. False: too many, or the device exists already.
bool play_gpus(u32 count);
u32 num_played_gpus();

}  // namespace vdev
