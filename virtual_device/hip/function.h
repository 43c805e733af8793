// Attributes of kernels.
#pragma once

#include "hip/runtime.h"

namespace vdev::hip {

inline bool is_hidden(const KernelArg& arg) { return arg.kind >= ArgKind::kHiddenGlobalOffsetX; }

// The `index`-th argument that the launcher passes; null when there is none.
const KernelArg* explicit_argument(const Kernel& kernel, size_t index);

// Both refuse unknown attributes. What can be set are permissions and hints that this device does
// not need (a launch may use all of the LDS anyway): the value is checked and has no effect.
int function_attribute(const Runtime& runtime, const Function& function, int attribute);
void check_function_attribute(const Runtime& runtime, const Function& function, int attribute,
                              int value);

// Compute capability as one number: 10 * major + minor.
int binary_version(const Runtime& runtime);

}  // namespace vdev::hip
