// Allocation of device, managed and host memory; registration of host memory.
#include "hip/api.h"

namespace vdev::hip {
namespace {

constexpr u64 kPitchAlign = 256;
constexpr unsigned kKnownHostFlags =
    0x7 | 0x20000000 | hipHostMallocCoherent | hipHostMallocNonCoherent;

void* allocate(Runtime& runtime, u64 bytes, MemoryKind kind, unsigned flags) {
  runtime.forbid_in_capture();
  if (bytes == 0) return nullptr;
  const auto allocation = runtime.device.memory().allocate(bytes, kind, flags);
  require(allocation.has_value(), hipErrorOutOfMemory);
  return reinterpret_cast<void*>(allocation->base);
}

hipError_t allocate_device(void** pointer, size_t bytes, unsigned flags) {
  return api([&](Runtime& runtime) {
    require(writable(pointer));
    *pointer = nullptr;
    *pointer = allocate(runtime, bytes, MemoryKind::kDevice, flags);
    return hipSuccess;
  });
}

hipError_t allocate_host(void** pointer, size_t bytes, unsigned flags) {
  return api([&](Runtime& runtime) {
    constexpr unsigned kCoherence = hipHostMallocCoherent | hipHostMallocNonCoherent;
    require(writable(pointer) && (flags & ~kKnownHostFlags) == 0);
    require((flags & kCoherence) != kCoherence);
    *pointer = nullptr;
    *pointer = allocate(runtime, bytes, MemoryKind::kHost, flags);
    return hipSuccess;
  });
}

// Rows of `pitch` bytes, so that each begins aligned.
hipError_t allocate_pitched(void** pointer, size_t* pitch, size_t width, size_t rows) {
  return api([&](Runtime& runtime) {
    require(writable(pointer) && writable(pitch));
    *pointer = nullptr;
    u64 bytes = 0;
    require(width <= ~u64{0} - kPitchAlign, hipErrorOutOfMemory);
    const u64 row_bytes = (width + kPitchAlign - 1) / kPitchAlign * kPitchAlign;
    require(!__builtin_mul_overflow(row_bytes, u64{rows}, &bytes), hipErrorOutOfMemory);
    *pointer = allocate(runtime, bytes, MemoryKind::kDevice, 0);
    *pitch = row_bytes;
    return hipSuccess;
  });
}

// Waits for the device first, as a GPU does, but reports no fault: hipFree is called by
// destructors that ignore its result.
hipError_t free_memory(void* pointer, bool host) {
  return api([&](Runtime& runtime) {
    runtime.forbid_in_capture();
    if (pointer == nullptr) return hipSuccess;
    const u64 address = reinterpret_cast<u64>(pointer);
    const auto allocation = runtime.device.memory().find(address);
    require(allocation && allocation->base == address);
    require((allocation->kind == MemoryKind::kHost) == host);
    runtime.drain();
    require(runtime.release(address));
    return hipSuccess;
  });
}

// The allocation of host memory, pinned or registered, that `pointer` lies in.
Allocation host_allocation(Runtime& runtime, const void* pointer) {
  const auto allocation = runtime.device.memory().find(reinterpret_cast<u64>(pointer));
  require(allocation && allocation->kind != MemoryKind::kDevice);
  return *allocation;
}

}  // namespace

HIP_API hipMalloc(void** pointer, size_t bytes) { return allocate_device(pointer, bytes, 0); }

HIP_API hipExtMallocWithFlags(void** pointer, size_t bytes, unsigned flags) {
  if (flags > hipDeviceMallocContiguous) return note_result(hipErrorInvalidValue);
  if (flags == hipMallocSignalMemory && bytes != 8) return note_result(hipErrorInvalidValue);
  return allocate_device(pointer, bytes, flags);
}

HIP_API hipMallocManaged(void** pointer, size_t bytes, unsigned flags) {
  return api([&](Runtime& runtime) {
    require(writable(pointer) && bytes != 0);
    require(flags == hipMemAttachGlobal || flags == hipMemAttachHost);
    *pointer = nullptr;
    *pointer = allocate(runtime, bytes, MemoryKind::kManaged, flags);
    return hipSuccess;
  });
}

HIP_API hipMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  return allocate_pitched(pointer, pitch, width, height);
}

HIP_API hipMemAllocPitch(void** pointer, size_t* pitch, size_t width, size_t height,
                         unsigned element_bytes) {
  const bool known = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
  return known ? allocate_pitched(pointer, pitch, width, height)
               : note_result(hipErrorInvalidValue);
}

HIP_API hipMalloc3D(hipPitchedPtr* pitched, hipExtent extent) {
  u64 rows = 0;
  if (!writable(pitched) || __builtin_mul_overflow(extent.height, extent.depth, &rows)) {
    return note_result(hipErrorInvalidValue);
  }
  pitched->xsize = extent.width;
  pitched->ysize = extent.height;
  return allocate_pitched(&pitched->ptr, &pitched->pitch, extent.width, rows);
}

HIP_API hipFree(void* pointer) { return free_memory(pointer, false); }

HIP_API hipHostMalloc(void** pointer, size_t bytes, unsigned flags) {
  return allocate_host(pointer, bytes, flags);
}

HIP_API hipHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  return flags > 7 ? note_result(hipErrorInvalidValue) : allocate_host(pointer, bytes, flags);
}

HIP_API hipMallocHost(void** pointer, size_t bytes) { return allocate_host(pointer, bytes, 0); }

HIP_API hipMemAllocHost(void** pointer, size_t bytes) { return allocate_host(pointer, bytes, 0); }

HIP_API hipHostFree(void* pointer) { return free_memory(pointer, true); }

HIP_API hipFreeHost(void* pointer) { return free_memory(pointer, true); }

HIP_API hipHostRegister(void* pointer, size_t bytes, unsigned flags) {
  return api([&](Runtime& runtime) {
    require(pointer != nullptr && bytes != 0 && flags <= 15);
    runtime.forbid_in_capture();
    if (!is_accessible(pointer, bytes, HostAccess::kWrite)) {
      refuse(hipErrorInvalidValue,
             "hipHostRegister: not all of the memory can be read and written");
    }
    require(runtime.device.memory().register_host(pointer, bytes, flags),
            hipErrorHostMemoryAlreadyRegistered);
    return hipSuccess;
  });
}

HIP_API hipHostUnregister(void* pointer) {
  return api([&](Runtime& runtime) {
    require(pointer != nullptr);
    runtime.forbid_in_capture();
    runtime.drain();
    require(runtime.device.memory().unregister_host(pointer), hipErrorHostMemoryNotRegistered);
    return hipSuccess;
  });
}

// Host memory that launches of one call may use, by ranges: {address, bytes}. Unlike registered
// memory, ranges may overlap with those of other calls. All of them, or with an error none.
VDEV_EXPORT hipError_t amdattn_vdev_borrow(const u64 (*ranges)[2], uint32_t count) {
  return api([&](Runtime& runtime) {
    require(readable(ranges, count));
    Memory& memory = runtime.device.memory();
    for (uint32_t i = 0; i < count; ++i) {
      if (memory.borrow(ranges[i][0], ranges[i][1])) continue;
      while (i > 0) --i, memory.give_back(ranges[i][0], ranges[i][1]);
      refuse(hipErrorInvalidValue, "borrowed memory is empty, or belongs to the device already");
    }
    return hipSuccess;
  });
}

// Once no launch uses them any more.
VDEV_EXPORT hipError_t amdattn_vdev_give_back(const u64 (*ranges)[2], uint32_t count) {
  return api([&](Runtime& runtime) {
    require(readable(ranges, count));
    bool all = true;
    for (uint32_t i = 0; i < count; ++i) {
      all &= runtime.device.memory().give_back(ranges[i][0], ranges[i][1]);
    }
    return all ? hipSuccess : hipErrorInvalidValue;
  });
}

// Host memory that the device sees has the same address there.
HIP_API hipHostGetDevicePointer(void** device_pointer, void* pointer, unsigned flags) {
  return api([&](Runtime& runtime) {
    require(writable(device_pointer) && flags == 0);
    *device_pointer = nullptr;
    host_allocation(runtime, pointer);
    *device_pointer = pointer;
    return hipSuccess;
  });
}

HIP_API hipHostGetFlags(unsigned* flags, void* pointer) {
  return api([&](Runtime& runtime) {
    require(writable(flags));
    *flags = host_allocation(runtime, pointer).flags;
    return hipSuccess;
  });
}

HIP_API hipMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return api([&](Runtime& runtime) {
    const Memory& memory = runtime.device.memory();
    if (wanted(free_bytes)) *free_bytes = memory.capacity() - memory.used();
    if (wanted(total_bytes)) *total_bytes = memory.capacity();
    return hipSuccess;
  });
}

}  // namespace vdev::hip
