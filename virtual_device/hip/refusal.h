// How the runtime turns down a call: by an exception that never leaves `api()` (hip/api.h).
#pragma once

#include <string>

#include "hip/hip_abi.h"

namespace vdev::hip {

struct Refusal {
  hipError_t code;
  std::string message;  // for amdattn_vdev_last_report(); empty: leaves the last report alone
};

[[noreturn]] inline void refuse(hipError_t code, std::string message = {}) {
  throw Refusal{code, std::move(message)};
}

inline void require(bool condition, hipError_t code = hipErrorInvalidValue) {
  if (!condition) refuse(code);
}

}  // namespace vdev::hip
