// Initialisation, device selection, limits, flags and peers.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "hip/api.h"
#include "hip/properties.h"

namespace vdev::hip {
namespace {

constexpr int kVersion = 71526333;  // HIP 7.15.26333: 10^7 major + 10^5 minor + patch

std::atomic<unsigned> device_flags{0};
std::atomic<u64> malloc_heap_bytes{8 << 20}, stack_bytes{1024};

std::atomic<u64> scratch_min{0}, scratch_max{u64{4} << 30}, scratch_current{u64{4} << 30};

// Refuses those that AMD's runtime does not know either.
std::atomic<u64>* known_limit(hipLimit_t limit) {
  switch (limit) {
    case hipLimitStackSize:
      return &stack_bytes;
    case hipLimitMallocHeapSize:
      return &malloc_heap_bytes;
    case hipExtLimitScratchMin:
      return &scratch_min;
    case hipExtLimitScratchMax:
      return &scratch_max;
    case hipExtLimitScratchCurrent:
      return &scratch_current;
    default:
      refuse(limit == hipLimitRange ? hipErrorInvalidValue : hipErrorUnsupportedLimit);
  }
}

hipError_t give_version(int* version) {
  return stateless_api([&] {
    if (!writable(version)) return hipErrorInvalidValue;
    *version = kVersion;
    return hipSuccess;
  });
}

hipError_t no_peer() { return note_result(hipErrorInvalidDevice); }

// The text of `snprintf`, which must fit.
hipError_t give_text(char* to, int length, const char* text, bool truncate) {
  require(length > 0);
  require(truncate || std::strlen(text) < static_cast<size_t>(length));
  require(writable(to, std::min(std::strlen(text) + 1, static_cast<size_t>(length))));
  std::snprintf(to, static_cast<size_t>(length), "%s", text);
  return hipSuccess;
}

std::string pci_bus_id(const Runtime& runtime) {
  const hipDeviceProp_t& p = device_properties(runtime);
  char text[32];
  std::snprintf(
      text, sizeof text, "%04x:%02x:%02x.0", static_cast<unsigned>(p.pciDomainID) & 0xffff,
      static_cast<unsigned>(p.pciBusID) & 0xff, static_cast<unsigned>(p.pciDeviceID) & 0xff);
  return text;
}

}  // namespace

HIP_API hipInit(unsigned flags) {
  return api([&](Runtime&) { return flags == 0 ? hipSuccess : hipErrorInvalidValue; });
}

HIP_API hipDriverGetVersion(int* version) { return give_version(version); }

HIP_API hipRuntimeGetVersion(int* version) { return give_version(version); }

HIP_API hipGetDeviceCount(int* count) {
  return api([&](Runtime&) {
    require(writable(count));
    *count = 1;
    return hipSuccess;
  });
}

HIP_API hipSetDevice(int device) {
  return api([&](Runtime&) {
    check_device(device);
    return hipSuccess;
  });
}

HIP_API hipSetValidDevices(int* devices, int count) {
  return api([&](Runtime&) {
    require(count >= 0 && (count == 0 || readable(devices, static_cast<u64>(count))));
    for (int i = 0; i < count; ++i) check_device(devices[i]);
    return hipSuccess;
  });
}

HIP_API hipGetDevice(int* device) {
  return api([&](Runtime&) {
    require(writable(device));
    *device = 0;
    return hipSuccess;
  });
}

HIP_API hipDeviceGet(hipDevice_t* device, int ordinal) {
  return api([&](Runtime&) {
    require(writable(device));
    check_device(ordinal);
    *device = 0;
    return hipSuccess;
  });
}

HIP_API hipDeviceGetName(char* name, int length, hipDevice_t device) {
  return api([&](Runtime& runtime) {
    check_device(device);
    return give_text(name, length, device_properties(runtime).name, true);
  });
}

HIP_API hipDeviceGetUuid(hipUUID* uuid, hipDevice_t device) {
  return api([&](Runtime& runtime) {
    check_device(device);
    require(writable(uuid));
    *uuid = device_properties(runtime).uuid;
    return hipSuccess;
  });
}

HIP_API hipDeviceGetPCIBusId(char* id, int length, int device) {
  return api([&](Runtime& runtime) {
    check_device(device);
    return give_text(id, length, pci_bus_id(runtime).c_str(), false);
  });
}

HIP_API hipDeviceGetByPCIBusId(int* device, const char* id) {
  return api([&](Runtime& runtime) {
    require(writable(device) && is_text(id));
    require(pci_bus_id(runtime) == id);
    *device = 0;
    return hipSuccess;
  });
}

HIP_API hipDeviceTotalMem(size_t* bytes, hipDevice_t device) {
  return api([&](Runtime& runtime) {
    check_device(device);
    require(writable(bytes));
    *bytes = device_properties(runtime).totalGlobalMem;
    return hipSuccess;
  });
}

HIP_API hipDeviceComputeCapability(int* major, int* minor, hipDevice_t device) {
  return api([&](Runtime& runtime) {
    check_device(device);
    require(writable(major) && writable(minor));
    *major = device_properties(runtime).major;
    *minor = device_properties(runtime).minor;
    return hipSuccess;
  });
}

HIP_API hipDeviceSynchronize() {
  return api([&](Runtime& runtime) {
    runtime.forbid_in_capture();
    return runtime.synchronize_device();
  });
}

// Waits for all work and forgets its faults, but for those who queued it and have not been told.
// Memory and modules stay: like the real runtime's other owners in a process, arrays of the
// application may still refer to them.
HIP_API hipDeviceReset() {
  return api([&](Runtime& runtime) {
    runtime.forbid_in_capture();
    runtime.drain();
    runtime.forget_faults();
    return hipSuccess;
  });
}

HIP_API hipSetDeviceFlags(unsigned flags) {
  return api([&](Runtime&) {
    const unsigned schedule = flags & hipDeviceScheduleMask;
    require(schedule == 0 || schedule == 1 || schedule == 2 || schedule == 4);
    require((flags & ~(hipDeviceScheduleMask | hipDeviceMapHost | hipDeviceLmemResizeToMax)) == 0);
    device_flags = flags;
    return hipSuccess;
  });
}

HIP_API hipGetDeviceFlags(unsigned* flags) {
  return api([&](Runtime&) {
    require(writable(flags));
    *flags = device_flags;
    return hipSuccess;
  });
}

HIP_API hipDeviceGetLimit(size_t* value, hipLimit_t limit) {
  return api([&](Runtime&) {
    require(writable(value));
    *value = *known_limit(limit);
    return hipSuccess;
  });
}

// What is least and most of the scratch is the device's.
HIP_API hipDeviceSetLimit(hipLimit_t limit, size_t value) {
  return api([&](Runtime&) {
    auto* known = known_limit(limit);
    require(limit != hipExtLimitScratchMin && limit != hipExtLimitScratchMax,
            hipErrorUnsupportedLimit);
    *known = value;
    return hipSuccess;
  });
}

HIP_API hipDeviceCanAccessPeer(int* can_access, int device, int peer) {
  return api([&](Runtime&) {
    require(writable(can_access));
    check_device(device);
    check_device(peer);
    *can_access = 0;  // a device is no peer of itself
    return hipSuccess;
  });
}

// Asks about two different devices, and there is only one.
HIP_API hipDeviceGetP2PAttribute(int*, hipDeviceP2PAttr, int, int) { return no_peer(); }

HIP_API hipDeviceEnablePeerAccess(int, unsigned) { return no_peer(); }

HIP_API hipDeviceDisablePeerAccess(int) { return no_peer(); }

HIP_API hipDeviceSetCacheConfig(hipFuncCache_t config) {
  return stateless_api([&] {
    const bool known = config >= hipFuncCachePreferNone && config <= hipFuncCachePreferEqual;
    return known ? hipSuccess : hipErrorInvalidValue;
  });
}

HIP_API hipDeviceGetCacheConfig(hipFuncCache_t* config) {
  return stateless_api([&] {
    if (!writable(config)) return hipErrorInvalidValue;
    *config = hipFuncCachePreferNone;
    return hipSuccess;
  });
}

HIP_API hipDeviceSetSharedMemConfig(hipSharedMemConfig config) {
  return stateless_api([&] {
    const bool known =
        config >= hipSharedMemBankSizeDefault && config <= hipSharedMemBankSizeEightByte;
    return known ? hipSuccess : hipErrorInvalidValue;
  });
}

HIP_API hipDeviceGetSharedMemConfig(hipSharedMemConfig* config) {
  return stateless_api([&] {
    if (!writable(config)) return hipErrorInvalidValue;
    *config = hipSharedMemBankSizeDefault;
    return hipSuccess;
  });
}

HIP_API hipProfilerStart() { return note_result(hipErrorNotSupported); }

HIP_API hipProfilerStop() { return note_result(hipErrorNotSupported); }

VDEV_EXPORT hipChannelFormatDesc hipCreateChannelDesc(int x, int y, int z, int w,
                                                      hipChannelFormatKind kind) {
  return {x, y, z, w, kind};
}

}  // namespace vdev::hip
