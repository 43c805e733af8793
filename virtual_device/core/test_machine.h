// The device that the tests' entry points decode and run for: the default one, or what a test says.
#pragma once

#include "core/device.h"

namespace vdev {

// A device of its own for every machine, which lives as long as the process.
Device& test_device();
inline const Processor& test_processor() { return test_device().machine().arch->processor; }

}  // namespace vdev
