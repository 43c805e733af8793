// Occupancy queries: how many workgroups of a kernel are resident on a CU at a time.
#include <algorithm>

#include "hip/api.h"

namespace vdev::hip {
namespace {

int largest_workgroup(const Runtime& runtime) {
  return static_cast<int>(runtime.device.limits().workgroup_lanes);
}

int workgroups_per_cu(const Runtime& runtime, const Kernel& kernel, int lanes, size_t lds) {
  return static_cast<int>(runtime.device.resident_workgroups_per_cu(kernel, static_cast<u32>(lanes),
                                                                    static_cast<u32>(lds)));
}

hipError_t max_active(int* num_workgroups, const void* f, int lanes, size_t lds, unsigned flags,
                      hipError_t unknown_function) {
  return api([&](Runtime& runtime) {
    require(writable(num_workgroups) && lanes > 0 && flags <= 1);
    const auto function = runtime.functions.get(f, unknown_function);
    const bool possible =
        lanes <= largest_workgroup(runtime) && lds <= runtime.device.limits().lds_bytes;
    *num_workgroups = possible ? workgroups_per_cu(runtime, *function->kernel, lanes, lds) : 0;
    return hipSuccess;
  });
}

// The workgroup size, a multiple of a wave, that keeps the most waves resident; the largest of
// equals.
hipError_t max_potential(int* num_workgroups, int* lanes, const void* f, size_t lds, int limit,
                         unsigned flags, hipError_t unknown_function) {
  return api([&](Runtime& runtime) {
    require(writable(num_workgroups) && writable(lanes) && limit >= 0 && flags <= 1);
    const auto function = runtime.functions.get(f, unknown_function);
    require(lds <= runtime.device.limits().lds_bytes);
    int largest = static_cast<int>(
        std::min(runtime.device.limits().workgroup_lanes, function->kernel->max_workgroup_size));
    if (limit > 0) largest = std::min(largest, limit);
    int best_lanes = 0, best_groups = 0;
    for (int size = largest; size > 0; size = (size - 1) / kLanes * kLanes) {
      const int groups = workgroups_per_cu(runtime, *function->kernel, size, lds);
      const int waves = (size + kLanes - 1) / kLanes;
      if (groups * waves > best_groups * ((best_lanes + kLanes - 1) / kLanes)) {
        best_lanes = size;
        best_groups = groups;
      }
    }
    *lanes = best_lanes;
    *num_workgroups = best_groups * static_cast<int>(runtime.device.machine().num_cus());
    return hipSuccess;
  });
}

}  // namespace

HIP_API hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* num_workgroups, hipFunction_t f,
                                                           int lanes, size_t lds) {
  return max_active(num_workgroups, f, lanes, lds, 0, hipErrorInvalidHandle);
}

HIP_API hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* num_workgroups,
                                                                    hipFunction_t f, int lanes,
                                                                    size_t lds, unsigned flags) {
  return max_active(num_workgroups, f, lanes, lds, flags, hipErrorInvalidHandle);
}

HIP_API hipOccupancyMaxActiveBlocksPerMultiprocessor(int* num_workgroups, const void* f, int lanes,
                                                     size_t lds) {
  return max_active(num_workgroups, f, lanes, lds, 0, hipErrorInvalidDeviceFunction);
}

HIP_API hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* num_workgroups, const void* f,
                                                              int lanes, size_t lds,
                                                              unsigned flags) {
  return max_active(num_workgroups, f, lanes, lds, flags, hipErrorInvalidDeviceFunction);
}

HIP_API hipModuleOccupancyMaxPotentialBlockSize(int* num_workgroups, int* lanes, hipFunction_t f,
                                                size_t lds, int limit) {
  return max_potential(num_workgroups, lanes, f, lds, limit, 0, hipErrorInvalidHandle);
}

HIP_API hipModuleOccupancyMaxPotentialBlockSizeWithFlags(int* num_workgroups, int* lanes,
                                                         hipFunction_t f, size_t lds, int limit,
                                                         unsigned flags) {
  return max_potential(num_workgroups, lanes, f, lds, limit, flags, hipErrorInvalidHandle);
}

HIP_API hipOccupancyMaxPotentialBlockSize(int* num_workgroups, int* lanes, const void* f,
                                          size_t lds, int limit) {
  return max_potential(num_workgroups, lanes, f, lds, limit, 0, hipErrorInvalidDeviceFunction);
}

// The dynamic LDS with which `num_workgroups` still fit on one CU.
HIP_API hipOccupancyAvailableDynamicSMemPerBlock(size_t* lds, const void* f, int num_workgroups,
                                                 int lanes) {
  return api([&](Runtime& runtime) {
    require(writable(lds) && num_workgroups > 0 && lanes > 0 &&
            lanes <= largest_workgroup(runtime));
    const auto function = runtime.functions.get(f, hipErrorInvalidDeviceFunction);
    const Kernel& kernel = *function->kernel;
    if (workgroups_per_cu(runtime, kernel, lanes, 0) < num_workgroups) {
      *lds = 0;
      return hipSuccess;
    }
    size_t fits = 0, too_much = size_t{runtime.device.limits().lds_bytes} + 1;
    while (too_much - fits > 1) {
      const size_t middle = fits + (too_much - fits) / 2;
      (workgroups_per_cu(runtime, kernel, lanes, middle) >= num_workgroups ? fits : too_much) =
          middle;
    }
    *lds = fits;
    return hipSuccess;
  });
}

}  // namespace vdev::hip
