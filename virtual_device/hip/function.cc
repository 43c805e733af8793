#include "hip/function.h"

#include <algorithm>
#include <climits>

#include "hip/api.h"
#include "hip/properties.h"

namespace vdev::hip {

namespace {

// What a kernel claims, before a launch refuses it.
int to_int(u32 claimed) { return static_cast<int>(std::min<u32>(claimed, INT_MAX)); }

u32 dynamic_lds_left(const Runtime& runtime, const Kernel& kernel) {
  const u32 lds = runtime.device.limits().lds_bytes;
  return lds - std::min(lds, kernel.lds_bytes);
}

}  // namespace

const KernelArg* explicit_argument(const Kernel& kernel, size_t index) {
  for (const KernelArg& arg : kernel.args) {
    if (!is_hidden(arg) && index-- == 0) return &arg;
  }
  return nullptr;
}

int binary_version(const Runtime& runtime) {
  const hipDeviceProp_t& properties = device_properties(runtime);
  return 10 * properties.major + properties.minor;
}

int function_attribute(const Runtime& runtime, const Function& function, int attribute) {
  const Kernel& kernel = *function.kernel;
  switch (attribute) {
    case HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return to_int(kernel.max_workgroup_size);
    case HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      return to_int(kernel.lds_bytes);
    case HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      return to_int(kernel.scratch_bytes);
    case HIP_FUNC_ATTRIBUTE_NUM_REGS:
      return static_cast<int>(kernel.num_vgprs + kernel.num_agprs);
    case HIP_FUNC_ATTRIBUTE_PTX_VERSION:
    case HIP_FUNC_ATTRIBUTE_BINARY_VERSION:
      return binary_version(runtime);
    case HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return static_cast<int>(dynamic_lds_left(runtime, kernel));
    case HIP_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:  // constants live in global memory
    case HIP_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    case HIP_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return 0;
  }
  refuse(hipErrorInvalidValue);
}

void check_function_attribute(const Runtime& runtime, const Function& function, int attribute,
                              int value) {
  const u32 available = dynamic_lds_left(runtime, *function.kernel);
  switch (attribute) {
    case hipFuncAttributeMaxDynamicSharedMemorySize:
      return require(value >= 0 && static_cast<u32>(value) <= available);
    case hipFuncAttributePreferredSharedMemoryCarveout:
      return require(value >= -1 && value <= 100);
  }
  refuse(hipErrorInvalidValue);
}

HIP_API hipFuncGetAttribute(int* value, hipFunction_attribute attribute, hipFunction_t f) {
  return api([&](Runtime& runtime) {
    require(writable(value));
    *value = function_attribute(runtime, *runtime.functions.get(f), attribute);
    return hipSuccess;
  });
}

HIP_API hipFuncGetAttributes(hipFuncAttributes* attributes, const void* f) {
  return api([&](Runtime& runtime) {
    require(writable(attributes));
    const auto function = runtime.functions.get(f, hipErrorInvalidDeviceFunction);
    const auto get = [&](int id) { return function_attribute(runtime, *function, id); };
    *attributes = {};
    attributes->binaryVersion = get(HIP_FUNC_ATTRIBUTE_BINARY_VERSION);
    attributes->ptxVersion = get(HIP_FUNC_ATTRIBUTE_PTX_VERSION);
    attributes->localSizeBytes = static_cast<size_t>(get(HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
    attributes->sharedSizeBytes = static_cast<size_t>(get(HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
    attributes->maxThreadsPerBlock = get(HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    attributes->numRegs = get(HIP_FUNC_ATTRIBUTE_NUM_REGS);
    attributes->maxDynamicSharedSizeBytes = get(HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    return hipSuccess;
  });
}

HIP_API hipFuncSetAttribute(const void* f, hipFuncAttribute attribute, int value) {
  return api([&](Runtime& runtime) {
    const auto function = runtime.functions.get(f, hipErrorInvalidDeviceFunction);
    check_function_attribute(runtime, *function, attribute, value);
    return hipSuccess;
  });
}

// Preferences of another architecture's caches: checked and without effect.
HIP_API hipFuncSetCacheConfig(const void* f, hipFuncCache_t config) {
  return api([&](Runtime& runtime) {
    runtime.functions.get(f, hipErrorInvalidDeviceFunction);
    require(config >= hipFuncCachePreferNone && config <= hipFuncCachePreferEqual);
    return hipSuccess;
  });
}

HIP_API hipFuncSetSharedMemConfig(const void* f, hipSharedMemConfig config) {
  return api([&](Runtime& runtime) {
    runtime.functions.get(f, hipErrorInvalidDeviceFunction);
    require(config >= hipSharedMemBankSizeDefault && config <= hipSharedMemBankSizeEightByte);
    return hipSuccess;
  });
}

HIP_API hipGetFuncBySymbol(hipFunction_t* function, const void* symbol) {
  return api([&](Runtime& runtime) {
    require(writable(function));
    *function = runtime.functions.get(symbol, hipErrorInvalidDeviceFunction)->handle;
    return hipSuccess;
  });
}

VDEV_EXPORT const char* hipKernelNameRef(hipFunction_t f) {
  const char* name = nullptr;
  api([&](Runtime& runtime) {
    name = runtime.functions.get(f)->kernel->name.c_str();
    return hipSuccess;
  });
  return name;
}

VDEV_EXPORT const char* hipKernelNameRefByPtr(const void* f, hipStream_t) {
  return hipKernelNameRef(static_cast<hipFunction_t>(const_cast<void*>(f)));
}

}  // namespace vdev::hip
