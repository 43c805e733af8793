// Questions about pointers, and advice about ranges.
#include "hip/api.h"

namespace vdev::hip {
namespace {

Allocation find(Runtime& runtime, const void* pointer, hipError_t otherwise) {
  const auto allocation = runtime.device.memory().find(reinterpret_cast<u64>(pointer));
  require(allocation.has_value(), otherwise);
  return *allocation;
}

hipMemoryType type_of(const Allocation& allocation) {
  switch (allocation.kind) {
    case MemoryKind::kDevice:
      return hipMemoryTypeDevice;
    case MemoryKind::kHost:
      return hipMemoryTypeHost;
    case MemoryKind::kManaged:
      return hipMemoryTypeManaged;
  }
  return hipMemoryTypeUnregistered;
}

bool host_visible(const Allocation& allocation) { return allocation.kind != MemoryKind::kDevice; }

template <class T>
hipError_t give(void* data, T value) {
  require(writable(static_cast<std::byte*>(data), sizeof value));
  std::memcpy(data, &value, sizeof value);
  return hipSuccess;
}

hipError_t get_attribute(Runtime& runtime, void* data, int attribute, void* pointer) {
  require(data != nullptr);
  const auto found = [&] { return find(runtime, pointer, hipErrorInvalidValue); };
  switch (attribute) {
    case HIP_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return give(data, static_cast<u32>(type_of(found())));
    case HIP_POINTER_ATTRIBUTE_DEVICE_POINTER:
      found();
      return give(data, pointer);
    case HIP_POINTER_ATTRIBUTE_HOST_POINTER:
      require(host_visible(found()));
      return give(data, pointer);
    case HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      found();
      return give(data, false);
    case HIP_POINTER_ATTRIBUTE_BUFFER_ID:
      return give(data, static_cast<u32>(found().id));
    case HIP_POINTER_ATTRIBUTE_IS_MANAGED:
      return give(data, found().kind == MemoryKind::kManaged);
    case HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      found();
      return give(data, 0);
    case HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return give(data, found().base);
    case HIP_POINTER_ATTRIBUTE_RANGE_SIZE: {
      // The real runtime writes 32 bits here; more only when the size needs them.
      const u64 size = found().size;
      return size >> 32 == 0 ? give(data, static_cast<u32>(size)) : give(data, size);
    }
    case HIP_POINTER_ATTRIBUTE_MAPPED:
      found();
      return give(data, true);
  }
  return attribute >= HIP_POINTER_ATTRIBUTE_CONTEXT && attribute <= 17 ? hipErrorNotSupported
                                                                       : hipErrorInvalidValue;
}

}  // namespace

HIP_API hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer) {
  return api([&](Runtime& runtime) {
    require(writable(attributes) && pointer != nullptr);
    *attributes = {};
    const auto allocation = runtime.device.memory().find(reinterpret_cast<u64>(pointer));
    if (!allocation) {
      attributes->type = hipMemoryTypeUnregistered;
      attributes->device = hipInvalidDeviceId;
      return hipSuccess;
    }
    attributes->type = type_of(*allocation);
    attributes->devicePointer = const_cast<void*>(pointer);
    if (host_visible(*allocation)) attributes->hostPointer = const_cast<void*>(pointer);
    attributes->isManaged = allocation->kind == MemoryKind::kManaged;
    attributes->allocationFlags = allocation->flags;
    return hipSuccess;
  });
}

HIP_API hipPointerGetAttribute(void* data, hipPointer_attribute attribute, hipDeviceptr_t pointer) {
  return api([&](Runtime& runtime) { return get_attribute(runtime, data, attribute, pointer); });
}

// Attributes that do not apply to the pointer leave their data alone.
HIP_API hipDrvPointerGetAttributes(unsigned count, hipPointer_attribute* attributes, void** data,
                                   hipDeviceptr_t pointer) {
  return api([&](Runtime& runtime) {
    require(count > 0 && readable(attributes, count) && readable(data, count));
    for (unsigned i = 0; i < count; ++i) {
      try {
        get_attribute(runtime, data[i], attributes[i], pointer);
      } catch (const Refusal&) {
      }
    }
    return hipSuccess;
  });
}

// Copies are always ordered: there is nothing to switch.
HIP_API hipPointerSetAttribute(const void* value, hipPointer_attribute attribute,
                               hipDeviceptr_t pointer) {
  return api([&](Runtime& runtime) {
    require(readable(static_cast<const u32*>(value)) &&
            attribute == HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS);
    require(*static_cast<const u32*>(value) <= 1);
    find(runtime, pointer, hipErrorInvalidDevicePointer);
    return hipSuccess;
  });
}

HIP_API hipMemGetAddressRange(hipDeviceptr_t* base, size_t* bytes, hipDeviceptr_t pointer) {
  return api([&](Runtime& runtime) {
    const Allocation allocation = find(runtime, pointer, hipErrorNotFound);
    if (wanted(base)) *base = reinterpret_cast<void*>(allocation.base);
    if (wanted(bytes)) *bytes = allocation.size;
    return hipSuccess;
  });
}

HIP_API hipMemPtrGetInfo(void* pointer, size_t* bytes) {
  return api([&](Runtime& runtime) {
    require(writable(bytes));
    *bytes = find(runtime, pointer, hipErrorInvalidValue).size;
    return hipSuccess;
  });
}

// Managed memory is one memory for host and device: there is nothing to move.
HIP_API hipMemPrefetchAsync(const void* pointer, size_t bytes, int device, hipStream_t stream) {
  return api([&](Runtime& runtime) {
    runtime.stream(stream);
    require(device == 0 || device == hipCpuDeviceId, hipErrorInvalidDevice);
    const Allocation allocation = find(runtime, pointer, hipErrorInvalidValue);
    require(bytes > 0 && allocation.contains(reinterpret_cast<u64>(pointer), bytes));
    return hipSuccess;
  });
}

HIP_API hipMemAdvise(const void* pointer, size_t bytes, hipMemoryAdvise advice, int device) {
  return api([&](Runtime& runtime) {
    require((advice >= hipMemAdviseFirst && advice <= hipMemAdviseLast) || advice == 100 ||
            advice == 101);
    require(device == 0 || device == hipCpuDeviceId, hipErrorInvalidDevice);
    const Allocation allocation = find(runtime, pointer, hipErrorInvalidValue);
    require(bytes > 0 && allocation.contains(reinterpret_cast<u64>(pointer), bytes));
    return hipSuccess;
  });
}

}  // namespace vdev::hip
