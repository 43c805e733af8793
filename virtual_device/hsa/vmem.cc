// Virtual memory of the application's own: address ranges that it reserves, memory without an
// address, and the mappings between them. Memory is an anonymous file, so that other processes can
// have it by a descriptor. Nothing is accessible before access was given, as on a GPU.
#include "hsa/vmem.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "hsa/api.h"

namespace vdev::hsa {
namespace {

constexpr char kFileName[] = "amdattn device memory";
enum Permission : u32 { kNoAccess = 0, kReadWrite = 3 };

struct VmemHandle {
  u64 handle;
};
struct AccessDesc {  // hsa_amd_memory_access_desc_t
  u32 permissions;
  Agent agent;
};

// Memory without an address. It lives as long as handles or mappings of it do.
struct Backing {
  Memory& memory;
  const int file;
  const u64 bytes, number;
  const Pool pool;
  const u32 type;
  u32 num_handles = 1;  // to be released each
  bool is_fresh;        // nobody has had it mapped

  Backing(Memory& memory, int file, u64 bytes, u64 number, Pool pool, u32 type, bool is_fresh)
      : memory(memory),
        file(file),
        bytes(bytes),
        number(number),
        pool(pool),
        type(type),
        is_fresh(is_fresh) {}
  Backing(const Backing&) = delete;
  Backing& operator=(const Backing&) = delete;
  ~Backing() {
    close(file);
    memory.discharge(bytes);
  }
};

struct Mapping {
  u64 bytes;
  std::shared_ptr<Backing> backing;
  std::optional<u64> gpus;  // that see it, a bit each, once it was said
};

struct VirtualMemory {
  std::mutex mutex;                                // guards the following
  std::map<u64, std::weak_ptr<Backing>> backings;  // by handle
  std::map<u64, std::shared_ptr<Backing>> held;    // those of them with handles
  std::map<u64, Mapping> mappings;                 // by address
  u64 next_number = 0x4001;

  static VirtualMemory& get() {
    static VirtualMemory& one = *new VirtualMemory;
    return one;
  }

  std::shared_ptr<Backing> find(VmemHandle handle) const {
    const auto it = held.find(handle.handle);
    require(it != held.end(), kInvalidAllocation);
    return it->second;
  }

  // Takes the file over.
  VmemHandle hold(Memory& memory, int file, u64 bytes, Pool pool, u32 type, bool is_fresh) {
    std::erase_if(backings, [](const auto& one) { return one.second.expired(); });
    if (!memory.charge(bytes)) {
      close(file);
      throw Refused{kOutOfResources};
    }
    const u64 number = next_number++;
    held[number] = std::make_shared<Backing>(memory, file, bytes, number, pool, type, is_fresh);
    backings[number] = held[number];
    return {number};
  }

  // The mapping that holds an address.
  std::map<u64, Mapping>::iterator at(u64 address) {
    auto it = mappings.upper_bound(address);
    require(it != mappings.begin(), kInvalidAllocation);
    --it;
    require(address - it->first < it->second.bytes, kInvalidAllocation);
    return it;
  }
};

u64 granule_of(const System& system, Pool pool) {
  require(system.gpu_of(pool).has_value(), kInvalidAllocation);
  return kMemoryPage;
}

// Reading or writing alone cannot be given, and the host sees nothing of the GPU's memory.
void check_access(const System& system, const AccessDesc& one) {
  const bool is_gpu = system.gpu_of(one.agent).has_value();
  require(one.agent.handle == kCpuAgent || is_gpu, kInvalidAgent);
  const bool none = one.permissions == kNoAccess;
  if (none || (one.permissions == kReadWrite && is_gpu)) return;
  refuse_call(one.agent.handle == kCpuAgent ? "hsa_amd_vmem_set_access for the host"
                                            : "hsa_amd_vmem_set_access to read or write alone");
  throw Refused{kInvalidArgument};
}

void show_to(System& system, u64 address, Mapping& mapping, u64 gpus) {
  const bool had = mapping.gpus.value_or(0) != 0;
  if (gpus != 0 && !had) {
    Backing& backing = *mapping.backing;
    const Fill fill = backing.is_fresh ? Fill::kPoison : Fill::kZero;
    require(system.memory.map(address, mapping.bytes, backing.file, fill), kOutOfResources);
    backing.is_fresh = false;
  } else if (gpus == 0 && had) {
    require(system.memory.unmap(address, mapping.bytes), kError);
  }
  if (gpus != 0 && system.device.num_gpus() > 1) system.memory.show_to(address, gpus);
  mapping.gpus = gpus;
}

// Whether a descriptor is of such memory: its size, or 0.
u64 bytes_of_file(int file, struct stat* facts) {
  char name[64] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  if (readlink(link.c_str(), name, sizeof name - 1) < 0) return 0;
  const std::string expected = std::string("/memfd:") + kFileName;
  if (std::string_view(name).substr(0, expected.size()) != expected) return 0;
  return fstat(file, facts) == 0 ? static_cast<u64>(facts->st_size) : 0;
}

}  // namespace

std::optional<VmemPointer> vmem_pointer(System& system, u64 address) {
  VirtualMemory& own = VirtualMemory::get();
  std::lock_guard lock(own.mutex);
  auto it = own.mappings.upper_bound(address);
  if (it != own.mappings.begin() && address - std::prev(it)->first < std::prev(it)->second.bytes) {
    --it;
    const u32 gpu = system.gpu_of(it->second.backing->pool).value_or(0);
    return VmemPointer{it->first, it->second.bytes, true, gpu};
  }
  if (const auto range = system.memory.reserved_range(address)) {
    return VmemPointer{range->first, range->second, false, 0};
  }
  return std::nullopt;
}

u64 vmem_bytes_of(const System& system, u32 gpu) {
  VirtualMemory& own = VirtualMemory::get();
  std::lock_guard lock(own.mutex);
  u64 bytes = 0;
  for (const auto& [number, known] : own.backings)
    if (const auto backing = known.lock(); backing && system.gpu_of(backing->pool) == gpu)
      bytes += backing->bytes;
  return bytes;
}

// A wish for an address is not granted, which the specification leaves open.
HSA_API hsa_amd_vmem_address_reserve_align(void** address, size_t bytes, u64, u64 alignment,
                                           u64 flags) {
  return api([&](System& system) {
    require(address != nullptr && bytes != 0 && bytes % kMemoryPage == 0);
    require(alignment == 0 || (alignment >= kMemoryPage && (alignment & (alignment - 1)) == 0));
    require(flags <= 1);  // 1: without registering it with the driver
    const auto base = system.memory.reserve(bytes, std::max(alignment, kMemoryPage));
    require(base.has_value(), kOutOfResources);
    *address = reinterpret_cast<void*>(*base);
    return kSuccess;
  });
}

HSA_API hsa_amd_vmem_address_reserve(void** address, size_t bytes, u64 wish, u64 flags) {
  return hsa_amd_vmem_address_reserve_align(address, bytes, wish, 0, flags);
}

HSA_API hsa_amd_vmem_address_free(void* address, size_t bytes) {
  return api([&](System& system) {
    VirtualMemory& own = VirtualMemory::get();
    std::lock_guard lock(own.mutex);
    const u64 base = reinterpret_cast<u64>(address);
    const auto range = system.memory.reserved_range(base);
    require(range && range->first == base, kInvalidAllocation);
    require(bytes == range->second);
    const auto mapped = own.mappings.lower_bound(base);
    require(mapped == own.mappings.end() || mapped->first - base >= bytes, kResourceFree);
    return system.memory.release(base) ? kSuccess : kResourceFree;
  });
}

HSA_API hsa_amd_vmem_handle_create(Pool pool, size_t bytes, u32 type, u64 flags,
                                   VmemHandle* handle) {
  return api([&](System& system) {
    require(handle != nullptr && bytes != 0 && bytes % granule_of(system, pool) == 0 && flags == 0);
    require(type <= 1);
    const int file = memfd_create(kFileName, MFD_CLOEXEC);
    require(file >= 0, kOutOfResources);
    if (ftruncate(file, static_cast<off_t>(bytes)) != 0) {
      close(file);
      return kOutOfResources;
    }
    VirtualMemory& own = VirtualMemory::get();
    std::lock_guard lock(own.mutex);
    *handle = own.hold(system.memory, file, bytes, pool, type, true);
    return kSuccess;
  });
}

HSA_API hsa_amd_vmem_handle_release(VmemHandle handle) {
  return api([&](System&) {
    VirtualMemory& own = VirtualMemory::get();
    std::lock_guard lock(own.mutex);
    if (--own.find(handle)->num_handles == 0) own.held.erase(handle.handle);
    return kSuccess;
  });
}

HSA_API hsa_amd_vmem_map(void* address, size_t bytes, size_t offset, VmemHandle handle, u64 flags) {
  return api([&](System& system) {
    VirtualMemory& own = VirtualMemory::get();
    std::lock_guard lock(own.mutex);
    const auto found = own.held.find(handle.handle);
    require(found != own.held.end() && bytes == found->second->bytes);
    require(offset == 0 && flags == 0);
    const u64 base = reinterpret_cast<u64>(address);
    const auto range = system.memory.reserved_range(base);
    require(range && base % kMemoryPage == 0 && bytes <= range->second &&
            base - range->first <= range->second - bytes);
    const auto above = own.mappings.lower_bound(base);
    require(above == own.mappings.end() || above->first - base >= bytes);
    if (above != own.mappings.begin()) {
      const auto below = std::prev(above);
      require(base - below->first >= below->second.bytes);
    }
    own.mappings[base] = Mapping{bytes, found->second, {}};
    return kSuccess;
  });
}

HSA_API hsa_amd_vmem_unmap(void* address, size_t bytes) {
  return api([&](System& system) {
    VirtualMemory& own = VirtualMemory::get();
    std::lock_guard lock(own.mutex);
    const auto it = own.mappings.find(reinterpret_cast<u64>(address));
    require(it != own.mappings.end(), kInvalidAllocation);
    require(bytes == it->second.bytes);
    show_to(system, it->first, it->second, 0);
    own.mappings.erase(it);
    return kSuccess;
  });
}

// Over whole mappings, one or several in a row.
HSA_API hsa_amd_vmem_set_access(void* address, size_t bytes, const AccessDesc* descs,
                                size_t count) {
  return api([&](System& system) {
    require(address != nullptr && bytes != 0 && descs != nullptr && count != 0);
    for (size_t i = 0; i < count; ++i) check_access(system, descs[i]);
    VirtualMemory& own = VirtualMemory::get();
    std::lock_guard lock(own.mutex);
    const u64 base = reinterpret_cast<u64>(address);
    const auto first = own.mappings.find(base);
    require(first != own.mappings.end(), kInvalidAllocation);
    auto last = first;
    u64 end = base;
    for (; last != own.mappings.end() && last->first == end && end - base < bytes; ++last)
      end += last->second.bytes;
    require(end - base == bytes);
    for (size_t i = 0; i < count; ++i) {
      const auto gpu = system.gpu_of(descs[i].agent);
      if (!gpu) continue;
      const u64 bit = u64{1} << *gpu;
      for (auto it = first; it != last; ++it) {
        const u64 others = it->second.gpus.value_or(0) & ~bit;
        const u64 own_bit = descs[i].permissions == kReadWrite ? bit : 0;
        show_to(system, it->first, it->second, others | own_bit);
      }
    }
    return kSuccess;
  });
}

HSA_API hsa_amd_vmem_get_access(void* address, u32* permission, Agent agent) {
  return api([&](System& system) {
    require(permission != nullptr);
    const auto gpu = system.gpu_of(agent);
    require(agent.handle == kCpuAgent || gpu, kInvalidAgent);
    VirtualMemory& own = VirtualMemory::get();
    std::lock_guard lock(own.mutex);
    const Mapping& mapping = own.at(reinterpret_cast<u64>(address))->second;
    require(gpu && mapping.gpus.has_value(), kInvalidAllocation);
    *permission = *mapping.gpus >> *gpu & 1 ? kReadWrite : kNoAccess;
    return kSuccess;
  });
}

HSA_API hsa_amd_vmem_retain_alloc_handle(VmemHandle* handle, void* address) {
  return api([&](System&) {
    require(handle != nullptr);
    VirtualMemory& own = VirtualMemory::get();
    std::lock_guard lock(own.mutex);
    const auto& backing = own.at(reinterpret_cast<u64>(address))->second.backing;
    own.held[backing->number] = backing;
    ++backing->num_handles;
    *handle = {backing->number};
    return kSuccess;
  });
}

HSA_API hsa_amd_vmem_get_alloc_properties_from_handle(VmemHandle handle, Pool* pool, u32* type) {
  return api([&](System&) {
    require(pool != nullptr && type != nullptr);
    VirtualMemory& own = VirtualMemory::get();
    std::lock_guard lock(own.mutex);
    const auto backing = own.find(handle);
    *pool = backing->pool;
    *type = backing->type;
    return kSuccess;
  });
}

HSA_API hsa_amd_vmem_export_shareable_handle(int* file, VmemHandle handle, u64 flags) {
  return api([&](System&) {
    require(file != nullptr && flags == 0);
    VirtualMemory& own = VirtualMemory::get();
    std::lock_guard lock(own.mutex);
    const int copy = fcntl(own.find(handle)->file, F_DUPFD_CLOEXEC, 0);
    require(copy >= 0, kOutOfResources);
    *file = copy;
    return kSuccess;
  });
}

// The same handle where this process has the memory already.
HSA_API hsa_amd_vmem_import_shareable_handle(int file, VmemHandle* handle) {
  return api([&](System& system) {
    require(handle != nullptr);
    struct stat facts{};
    const u64 bytes = bytes_of_file(file, &facts);
    require(bytes != 0, kInvalidAllocation);
    VirtualMemory& own = VirtualMemory::get();
    std::lock_guard lock(own.mutex);
    for (const auto& [number, known] : own.backings) {
      const auto backing = known.lock();
      struct stat its{};
      if (!backing || fstat(backing->file, &its) != 0 || its.st_ino != facts.st_ino) continue;
      own.held[number] = backing;
      ++backing->num_handles;
      *handle = {number};
      return kSuccess;
    }
    const int copy = fcntl(file, F_DUPFD_CLOEXEC, 0);
    require(copy >= 0, kOutOfResources);
    *handle = own.hold(system.memory, copy, bytes, {kFirstGpuCoarse}, 1, false);
    return kSuccess;
  });
}

}  // namespace vdev::hsa
