// Stream-ordered allocation. A pool keeps the books; it holds no freed memory back, so what is
// reserved is what is used.
#include <algorithm>

#include "hip/api.h"
#include "hip/capture.h"

namespace vdev::hip {
namespace {

void count_use(MemPool& pool, u64 bytes) {
  const u64 used = pool.used += bytes;
  u64 high = pool.used_high;
  while (high < used && !pool.used_high.compare_exchange_weak(high, used)) {
  }
}

hipError_t allocate_async(void** pointer, size_t bytes, hipStream_t stream,
                          const hipMemPool_t* pool_handle) {
  return api([&](Runtime& runtime) {
    require(writable(pointer));
    *pointer = nullptr;
    forbid_capturing_stream(runtime, *runtime.stream(stream));
    const auto pool = [&] {
      if (pool_handle != nullptr) return runtime.pools.get(*pool_handle, hipErrorInvalidValue);
      std::unique_lock lock(runtime.pool_mutex);
      return runtime.current_pool;
    }();
    if (bytes == 0) return hipSuccess;
    require(pool->max_bytes == 0 ||
                bytes <= pool->max_bytes - std::min<u64>(pool->used, pool->max_bytes),
            hipErrorOutOfMemory);
    const auto allocation = runtime.device.memory().allocate(bytes, MemoryKind::kDevice);
    require(allocation.has_value(), hipErrorOutOfMemory);
    count_use(*pool, bytes);
    std::unique_lock lock(runtime.pool_mutex);
    runtime.pool_blocks[allocation->base] = {pool, bytes};
    *pointer = reinterpret_cast<void*>(allocation->base);
    return hipSuccess;
  });
}

hipError_t pool_of_location(hipMemPool_t* pool, const hipMemLocation* location, bool current) {
  return api([&](Runtime& runtime) {
    require(writable(pool) && readable(location) && location->type == hipMemLocationTypeDevice);
    check_device(location->id);
    std::unique_lock lock(runtime.pool_mutex);
    *pool = (current ? runtime.current_pool : runtime.default_pool)->handle;
    return hipSuccess;
  });
}

void set_current_pool(Runtime& runtime, hipMemPool_t handle) {
  const auto pool = runtime.pools.get(handle, hipErrorInvalidValue);
  std::unique_lock lock(runtime.pool_mutex);
  runtime.current_pool = pool;
}

}  // namespace

bool Runtime::release(u64 address) {
  {
    std::unique_lock lock(pool_mutex);
    const auto block = pool_blocks.find(address);
    if (block != pool_blocks.end()) {
      if (block->second.pool != nullptr) block->second.pool->used -= block->second.bytes;
      pool_blocks.erase(block);
    }
  }
  return device.memory().free(address);
}

HIP_API hipMallocAsync(void** pointer, size_t bytes, hipStream_t stream) {
  return allocate_async(pointer, bytes, stream, nullptr);
}

HIP_API hipMallocFromPoolAsync(void** pointer, size_t bytes, hipMemPool_t pool,
                               hipStream_t stream) {
  return allocate_async(pointer, bytes, stream, &pool);
}

HIP_API hipFreeAsync(void* pointer, hipStream_t stream) {
  return api([&](Runtime& runtime) {
    const auto s = runtime.stream(stream);
    forbid_capturing_stream(runtime, *s);
    const u64 address = reinterpret_cast<u64>(pointer);
    const auto allocation = runtime.device.memory().find(address);
    require(allocation && allocation->base == address && allocation->kind == MemoryKind::kDevice);
    Task task;
    task.always = true;
    task.run = [&runtime, address] {
      runtime.release(address);
      return LaunchResult{};
    };
    // The task cannot take the block out of the table before this lock is released.
    std::unique_lock lock(runtime.pool_mutex);
    Runtime::PoolBlock& block = runtime.pool_blocks[address];  // of hipMalloc: without a pool
    require(!block.freeing);
    runtime.submit(s, std::move(task));
    block.freeing = true;
    return hipSuccess;
  });
}

HIP_API hipDeviceGetDefaultMemPool(hipMemPool_t* pool, int device) {
  const hipMemLocation location{hipMemLocationTypeDevice, device};
  return pool_of_location(pool, &location, false);
}

HIP_API hipDeviceGetMemPool(hipMemPool_t* pool, int device) {
  const hipMemLocation location{hipMemLocationTypeDevice, device};
  return pool_of_location(pool, &location, true);
}

HIP_API hipMemGetDefaultMemPool(hipMemPool_t* pool, hipMemLocation* location,
                                hipMemAllocationType type) {
  if (type != hipMemAllocationTypePinned) return note_result(hipErrorNotSupported);
  return pool_of_location(pool, location, false);
}

HIP_API hipMemGetMemPool(hipMemPool_t* pool, hipMemLocation* location, hipMemAllocationType type) {
  if (type != hipMemAllocationTypePinned) return note_result(hipErrorNotSupported);
  return pool_of_location(pool, location, true);
}

HIP_API hipDeviceSetMemPool(int device, hipMemPool_t pool) {
  return api([&](Runtime& runtime) {
    check_device(device);
    set_current_pool(runtime, pool);
    return hipSuccess;
  });
}

HIP_API hipMemPoolCreate(hipMemPool_t* pool, const hipMemPoolProps* props) {
  return api([&](Runtime& runtime) {
    require(writable(pool) && readable(props));
    require(props->allocType == hipMemAllocationTypePinned);
    require(props->location.type == hipMemLocationTypeDevice && props->location.id == 0);
    require(props->handleTypes == hipMemHandleTypeNone, hipErrorNotSupported);
    auto made = std::make_shared<MemPool>();
    made->max_bytes = props->maxSize;
    *pool = runtime.pools.add(made);
    return hipSuccess;
  });
}

// Blocks of the pool stay allocated until they are freed.
HIP_API hipMemPoolDestroy(hipMemPool_t pool) {
  return api([&](Runtime& runtime) {
    require(pool != runtime.default_pool->handle);
    const auto removed = runtime.pools.remove(pool);
    require(removed != nullptr);
    std::unique_lock lock(runtime.pool_mutex);
    if (runtime.current_pool == removed) runtime.current_pool = runtime.default_pool;
    return hipSuccess;
  });
}

HIP_API hipMemPoolTrimTo(hipMemPool_t pool, size_t) {
  return api([&](Runtime& runtime) {
    runtime.pools.get(pool, hipErrorInvalidValue);
    return hipSuccess;
  });
}

HIP_API hipMemPoolGetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value) {
  return api([&](Runtime& runtime) {
    const auto p = runtime.pools.get(pool, hipErrorInvalidValue);
    const bool narrow = attribute <= hipMemPoolReuseAllowInternalDependencies;
    require(narrow ? writable(static_cast<int*>(value)) : writable(static_cast<u64*>(value)));
    auto& wide = *static_cast<u64*>(value);
    switch (attribute) {
      case hipMemPoolReuseFollowEventDependencies:
      case hipMemPoolReuseAllowOpportunistic:
      case hipMemPoolReuseAllowInternalDependencies:
        *static_cast<int*>(value) = p->reuse[attribute - hipMemPoolReuseFollowEventDependencies];
        return hipSuccess;
      case hipMemPoolAttrReleaseThreshold:
        wide = p->release_threshold;
        return hipSuccess;
      case hipMemPoolAttrReservedMemCurrent:
      case hipMemPoolAttrUsedMemCurrent:
        wide = p->used;
        return hipSuccess;
      case hipMemPoolAttrReservedMemHigh:
      case hipMemPoolAttrUsedMemHigh:
        wide = p->used_high;
        return hipSuccess;
    }
    return hipErrorInvalidValue;
  });
}

HIP_API hipMemPoolSetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value) {
  return api([&](Runtime& runtime) {
    const auto p = runtime.pools.get(pool, hipErrorInvalidValue);
    const bool narrow = attribute <= hipMemPoolReuseAllowInternalDependencies;
    require(narrow ? readable(static_cast<int*>(value)) : readable(static_cast<u64*>(value)));
    switch (attribute) {
      case hipMemPoolReuseFollowEventDependencies:
      case hipMemPoolReuseAllowOpportunistic:
      case hipMemPoolReuseAllowInternalDependencies:
        p->reuse[attribute - hipMemPoolReuseFollowEventDependencies] = *static_cast<int*>(value);
        return hipSuccess;
      case hipMemPoolAttrReleaseThreshold:
        p->release_threshold = *static_cast<u64*>(value);
        return hipSuccess;
      case hipMemPoolAttrReservedMemHigh:
      case hipMemPoolAttrUsedMemHigh:  // can only be reset
        require(*static_cast<u64*>(value) == 0);
        p->used_high = p->used.load();
        return hipSuccess;
      default:
        return hipErrorInvalidValue;
    }
  });
}

HIP_API hipMemPoolSetAccess(hipMemPool_t pool, const hipMemAccessDesc* descriptors, size_t count) {
  return api([&](Runtime& runtime) {
    runtime.pools.get(pool, hipErrorInvalidValue);
    require(count != 0 && readable(descriptors, count));
    for (size_t i = 0; i < count; ++i) {
      require(descriptors[i].location.type == hipMemLocationTypeDevice);
      check_device(descriptors[i].location.id);
      // The only device owns the pool and cannot lose its access.
      require(descriptors[i].flags == hipMemAccessFlagsProtReadWrite);
    }
    return hipSuccess;
  });
}

HIP_API hipMemPoolGetAccess(hipMemAccessFlags* flags, hipMemPool_t pool, hipMemLocation* location) {
  return api([&](Runtime& runtime) {
    runtime.pools.get(pool, hipErrorInvalidValue);
    require(writable(flags) && writable(location));
    require(location->type == hipMemLocationTypeDevice && location->id == 0);
    *flags = hipMemAccessFlagsProtReadWrite;
    return hipSuccess;
  });
}

}  // namespace vdev::hip
