// What the device says about itself.
#pragma once

#include "hip/hip_device_prop.h"
#include "hip/runtime.h"

namespace vdev::hip {

const hipDeviceProp_t& device_properties(const Runtime& runtime);

}  // namespace vdev::hip
