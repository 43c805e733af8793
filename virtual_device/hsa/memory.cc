// Pools of memory, access to it, host memory that the device sees, and what is known of a pointer.
#include <cstring>
#include <limits>

#include "core/safe_read.h"
#include "core/transfer.h"
#include "hsa/api.h"
#include "hsa/vmem.h"

namespace vdev::hsa {
namespace {

constexpr u64 kGranule = 4096;
constexpr u64 kLargePage = 2 << 20;      // of the GPU
constexpr u64 kCpuBytes = u64{1} << 40;  // more than any host has
// As the kernel driver says them: of PCIe, and of XGMI.
constexpr u32 kNumaDistance = 20, kXgmiDistance = 15;

struct PoolFacts {
  u64 handle;
  bool of_gpu;
  u32 segment, flags;
  u32 gpu = 0;

  u64 agent() const { return of_gpu ? gpu_agent(gpu).handle : kCpuAgent; }
};
// Of the CPU, and of the first GPU; the handles of the others' follow those.
constexpr PoolFacts kPools[] = {
    {kCpuFine, false, kSegmentGlobal, kFineGrained},
    {kCpuKernarg, false, kSegmentGlobal, kFineGrained | kKernargInit},
    {kCpuCoarse, false, kSegmentGlobal, kCoarseGrained},
    {kFirstGpuCoarse, true, kSegmentGlobal, kCoarseGrained},
    {kFirstGpuFine, true, kSegmentGlobal, kExtendedFineGrained},
    {kFirstGpuGroup, true, kSegmentGroup, 0},
};

PoolFacts facts_of(const System& system, Pool pool) {
  for (PoolFacts facts : kPools) {
    const u64 number = pool.handle - facts.handle;
    if (number >= (facts.of_gpu ? system.device.num_gpus() : 1)) continue;
    facts.handle = pool.handle;
    facts.gpu = static_cast<u32>(number);
    return facts;
  }
  throw Refused{kInvalidMemoryPool};
}

u64 bytes_of(const System& system, const PoolFacts& pool) {
  if (pool.segment == kSegmentGroup) return system.device.limits().lds_bytes;
  return pool.of_gpu ? system.capacity_of_gpu() : kCpuBytes;
}

bool is_agent(const System& system, Agent agent) {
  return agent.handle == kCpuAgent || system.gpu_of(agent);
}

// How an agent reaches a pool that is not its own. The host sees no memory of GPUs: no large BAR.
LinkInfo link_to(const PoolFacts& pool) {
  LinkInfo link{};  // neither latency nor bandwidth is said
  link.atomic_support_32bit = link.atomic_support_64bit = link.coherent_support = true;
  link.link_type = pool.of_gpu ? kLinkXgmi : kLinkPcie;
  link.numa_distance = pool.of_gpu ? kXgmiDistance : kNumaDistance;
  return link;
}

// Host memory has its own address on the device.
Status lock(System& system, void* host, size_t bytes, void** device) {
  require(host != nullptr && bytes != 0 && device != nullptr);
  require(is_accessible(host, bytes, HostAccess::kRead));  // what is copied from may be read-only
  const u64 address = reinterpret_cast<u64>(host);
  if (system.memory.borrow(address, bytes, true)) {  // again and overlapping, too
    std::lock_guard guard(system.locks_mutex);
    system.locks.emplace(address, bytes);
  } else {  // of a pool of the CPU, which the device sees already
    const auto allocation = system.memory.find(address);
    require(allocation && allocation->kind == MemoryKind::kHost &&
            allocation->contains(address, bytes));
  }
  *device = host;
  return kSuccess;
}

Status unlock(System& system, void* host) {
  const u64 address = reinterpret_cast<u64>(host);
  u64 bytes = 0;
  {
    std::lock_guard guard(system.locks_mutex);
    const auto it = system.locks.find(address);
    if (it == system.locks.end()) return system.memory.find(address) ? kSuccess : kInvalidArgument;
    bytes = it->second;
    system.locks.erase(it);
  }
  require(system.memory.give_back(address, bytes), kError);
  return kSuccess;
}

}  // namespace

HSA_API hsa_amd_agent_iterate_memory_pools(Agent agent, Status (*visit)(Pool pool, void* data),
                                           void* data) {
  return api([&](System& system) {
    require(is_agent(system, agent), kInvalidAgent);
    require(visit != nullptr);
    const auto gpu = system.gpu_of(agent);
    for (const PoolFacts& pool : kPools) {
      if (pool.of_gpu != gpu.has_value()) continue;
      const Status status = visit({pool.handle + gpu.value_or(0)}, data);
      if (status != kSuccess) return status;
    }
    return kSuccess;
  });
}

HSA_API hsa_amd_memory_pool_get_info(Pool handle, u32 attribute, void* value) {
  using namespace pool_info;
  return api([&](System& system) {
    const PoolFacts pool = facts_of(system, handle);
    const bool global = pool.segment == kSegmentGlobal;
    switch (attribute) {
      case kSegment:
        return answer(value, pool.segment);
      case kGlobalFlags:
        return answer(value, pool.flags);
      case kSize:
      case kAllocMaxSize:
        return answer<size_t>(value, bytes_of(system, pool));
      case kAllocAllowed:
        return answer(value, global);
      case kAllocGranule:
      case kAllocAlignment:
        return answer<size_t>(value, global ? kGranule : 0);
      case kRecommendedGranule:
        return answer<size_t>(value, !global ? 0 : pool.of_gpu ? kLargePage : kGranule);
      case kAccessibleByAll:
        return answer(value, !pool.of_gpu);
      case kLocation:
        return answer(value, u32{pool.of_gpu});
    }
    return kInvalidArgument;
  });
}

HSA_API hsa_amd_agent_memory_pool_get_info(Agent agent, Pool handle, u32 attribute, void* value) {
  return api([&](System& system) {
    require(is_agent(system, agent), kInvalidAgent);
    const PoolFacts pool = facts_of(system, handle);
    const bool own = pool.agent() == agent.handle;
    const bool never = pool.segment == kSegmentGroup || agent.handle == kCpuAgent;
    switch (attribute) {
      case pool_info::kAccess:
        return answer<u32>(value, own     ? kAllowedByDefault
                                  : never ? kNeverAllowed
                                          : kDisallowedByDefault);
      case pool_info::kNumLinkHops:
        return answer(value, u32{!own && !never});
      case pool_info::kLinkInfo:
        return own ? kSuccess : answer(value, link_to(pool));
    }
    return kInvalidArgument;
  });
}

HSA_API hsa_amd_memory_pool_allocate(Pool handle, size_t bytes, u32 flags, void** pointer) {
  return api([&](System& system) {
    const PoolFacts pool = facts_of(system, handle);
    require(pointer != nullptr && bytes != 0);
    require(pool.segment == kSegmentGlobal, kInvalidAllocation);
    const bool device = pool.of_gpu, several = system.device.num_gpus() > 1;
    const auto kind = device ? MemoryKind::kDevice : MemoryKind::kHost;
    if (device && several) {
      const u64 used = system.used_by(pool.gpu);
      require(used <= bytes_of(system, pool) && bytes <= bytes_of(system, pool) - used,
              kOutOfResources);
    }
    // The kernel gives the host pages of zeros.
    const auto fill = device ? Fill::kPoison : Fill::kZero;
    const auto allocation = system.memory.allocate(bytes, kind, device ? pool.gpu : flags, fill);
    require(allocation.has_value(), kOutOfResources);
    if (device && several) system.memory.show_to(allocation->base, u64{1} << pool.gpu);
    *pointer = reinterpret_cast<void*>(allocation->base);
    return kSuccess;
  });
}

HSA_API hsa_amd_memory_pool_free(void* pointer) {
  return api([&](System& system) {
    if (pointer == nullptr) return kSuccess;
    require(system.memory.free(reinterpret_cast<u64>(pointer)), kInvalidAllocation);
    return kSuccess;
  });
}

HSA_API hsa_amd_agents_allow_access(u32 count, const Agent* agents, const u32* flags,
                                    const void* pointer) {
  return api([&](System& system) {
    require(count != 0 && agents != nullptr && flags == nullptr && pointer != nullptr);
    u64 gpus = 0;  // the owner, and those that are named
    for (u32 i = 0; i < count; ++i) {
      require(is_agent(system, agents[i]), kInvalidAgent);
      if (const auto gpu = system.gpu_of(agents[i])) gpus |= u64{1} << *gpu;
    }
    const auto found = system.memory.find(reinterpret_cast<u64>(pointer));
    require(found.has_value());
    if (found->kind == MemoryKind::kDevice && system.device.num_gpus() > 1) {
      system.memory.show_to(found->base, gpus | u64{1} << System::owner_of(*found));
    }
    return kSuccess;
  });
}

HSA_API hsa_amd_memory_lock_to_pool(void* host, size_t bytes, Agent*, int, Pool, u32,
                                    void** device) {
  return api([&](System& system) { return lock(system, host, bytes, device); });
}

HSA_API hsa_amd_memory_unlock(void* host) {
  return api([&](System& system) { return unlock(system, host); });
}

HSA_API hsa_memory_register(void* host, size_t bytes) {
  return api([&](System& system) {
    void* device = nullptr;
    return lock(system, host, bytes, &device);
  });
}

HSA_API hsa_memory_deregister(void* host, size_t) {
  return api([&](System& system) { return unlock(system, host); });
}

HSA_API hsa_amd_pointer_info(const void* pointer, PointerInfo* info, void* (*allocate)(size_t),
                             u32* num_agents, Agent** agents) {
  return api([&](System& system) {
    require(pointer != nullptr && info != nullptr && info->size != 0);
    PointerInfo found{};
    found.size = sizeof found;
    const auto allocation = system.memory.find(reinterpret_cast<u64>(pointer));
    if (allocation) {
      const bool device = allocation->kind == MemoryKind::kDevice;
      const bool locked = [&] {
        std::lock_guard guard(system.locks_mutex);
        return system.locks.contains(allocation->base);
      }();
      found.type = locked ? kPointerLocked : kPointerHsa;
      found.agent_base = reinterpret_cast<void*>(allocation->base);
      found.host_base = device ? nullptr : found.agent_base;
      found.bytes = allocation->size;
      found.owner = device ? gpu_agent(System::owner_of(*allocation)) : Agent{kCpuAgent};
      found.global_flags = device ? kCoarseGrained : kFineGrained;
      found.registered = true;
    }
    if (const auto own = vmem_pointer(system, reinterpret_cast<u64>(pointer))) {
      found.type = own->is_mapped ? kPointerVmem : kPointerReserved;
      found.agent_base = reinterpret_cast<void*>(own->base);
      found.host_base = nullptr;
      found.bytes = own->bytes;
      found.owner = gpu_agent(own->gpu);
      found.registered = own->is_mapped;
    }
    found.size = std::min(info->size, found.size);
    std::memcpy(info, &found, found.size);
    if (allocation && allocate != nullptr && num_agents != nullptr && agents != nullptr) {
      *agents = static_cast<Agent*>(allocate(system.device.num_gpus() * sizeof(Agent)));
      require(*agents != nullptr, kOutOfResources);
      *num_agents = 0;
      for (u32 gpu = 0; gpu < system.device.num_gpus(); ++gpu)
        if (allocation->is_seen_by(gpu)) (*agents)[(*num_agents)++] = gpu_agent(gpu);
    } else if (num_agents != nullptr) {
      *num_agents = 0;
    }
    return kSuccess;
  });
}

HSA_API hsa_memory_copy(void* to, const void* from, size_t bytes) {
  return api([&](System& system) {
    if (bytes == 0) return kSuccess;
    require(to != nullptr && from != nullptr);
    const auto side = [&](const void* pointer) {
      const u64 address = reinterpret_cast<u64>(pointer);
      return Side{address, 0, 0, system.memory.find(address).has_value()};
    };
    const LaunchResult result = run_copy(system.memory, {side(to), side(from), bytes});
    if (result.fault == FaultKind::kNone) return kSuccess;
    std::fprintf(stderr, "amdattn: hsa_memory_copy: %s\n", result.report.c_str());
    return kInvalidArgument;
  });
}

}  // namespace vdev::hsa
