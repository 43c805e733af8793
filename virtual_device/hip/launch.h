// Checked kernel launches.
#pragma once

#include "hip/runtime.h"

namespace vdev::hip {

struct LaunchShape {
  Dim3 num_workgroups, workgroup_size;
  u64 dynamic_lds_bytes = 0;
  bool cooperative = false;
  // What CLR answers to more than 2^32 - 1 lanes along an axis depends on the call.
  hipError_t too_long = hipErrorInvalidValue;
  Dim3 remainder{0, 0, 0};  // as of Launch
};

// Refuses what the runtime would refuse, and copies the arguments: either `params` (an address for
// each explicit argument) or `extra` (one packed buffer).
KernelCommand make_kernel(Runtime& runtime, std::shared_ptr<Function> function,
                          const LaunchShape& shape, void** params, void** extra);

}  // namespace vdev::hip
