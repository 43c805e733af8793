// What may watch device memory from the host's side: allocations, and transfers that a kernel did
// not make. Fast mode pays a null check per host call.
#pragma once

#include "core/types.h"

namespace vdev {

struct Allocation;
enum class Fill : u8;

// `height` rows of `row_bytes` in each of `depth` planes.
struct StridedRange {
  u64 address = 0, row_bytes = 0;
  u64 height = 1, depth = 1, pitch = 0, slice = 0;
  u64 row(u64 y, u64 z) const { return address + z * slice + y * pitch; }
};

// Calls come from any thread, while the memory is still (allocated) or not yet (freed) in reach.
// Addresses may also be of host memory.
class MemoryObserver {
 public:
  virtual ~MemoryObserver() = default;
  virtual void allocated(const Allocation& allocation, Fill fill) = 0;
  virtual void freed(const Allocation& allocation) = 0;
  virtual void host_wrote(const StridedRange& range) = 0;  // a copy from the host, a fill
  virtual void host_read(const StridedRange& range) = 0;   // a copy to the host
  virtual void host_copied(const StridedRange& to, const StridedRange& from) = 0;
};

}  // namespace vdev
