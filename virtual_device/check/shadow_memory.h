// Which bytes of device memory hold a value that somebody wrote.
//
// A byte of shadow per byte of the device's address range: 0xff when defined. A page whose bytes are
// all defined has a flag instead, so that memory which the host fills costs no shadow, and fresh
// shadow pages, which are zero, need no initialisation. Host memory counts as defined.
#pragma once

#include <functional>

#include "check/finding.h"
#include "core/memory.h"
#include "core/memory_observer.h"

namespace vdev {

class ShadowMemory : public MemoryObserver {
 public:
  // Allocations that exist already count as defined. `report` gets the findings of host calls.
  ShadowMemory(Memory& memory, std::function<void(Finding)> report);
  ~ShadowMemory() override;
  ShadowMemory(const ShadowMemory&) = delete;
  ShadowMemory& operator=(const ShadowMemory&) = delete;

  // Whether [address, address + bytes) lies in the device's range; the other functions answer
  // "defined" for, and ignore, what does not.
  bool covers(u64 address, u64 bytes) const {
    return address - base_ < size_ && bytes <= size_ - (address - base_);
  }
  // True when every page of the range is known to be defined as a whole: a quick answer that may
  // be false for a defined range.
  bool whole_pages(u64 address, u64 bytes) const {
    if (!covers(address, bytes)) return true;
    const u64 first = (address - base_) / kMemoryPage;
    const u64 last = (address - base_ + bytes - 1) / kMemoryPage;
    u8 all = 1;
    for (u64 page = first; page <= last; ++page) all &= page_[page];
    return all != 0;
  }
  // Sets the bytes of `taint` (0xff: undefined) and returns whether any is set.
  template <u32 kBytes>
  bool read(u64 address, u8* taint) const {
    if (!covers(address, kBytes) || whole_pages(address, kBytes)) {
      std::memset(taint, 0, kBytes);
      return false;
    }
    return read_shadow(address, taint, kBytes);
  }
  bool read(u64 address, u8* taint, u32 bytes) const;
  // A kernel, or the host, wrote here.
  void define(u64 address, u64 bytes);
  void undefine(u64 address, u64 bytes);
  // First undefined byte of the range (bytes: none), and how many there are.
  u64 first_undefined(u64 address, u64 bytes, u64* count) const;

  void allocated(const Allocation& allocation, Fill fill) override;
  void freed(const Allocation& allocation) override;
  void host_wrote(const StridedRange& range) override;
  void host_read(const StridedRange& range) override;
  void host_copied(const StridedRange& to, const StridedRange& from) override;

 private:
  bool read_shadow(u64 address, u8* taint, u32 bytes) const;
  void split(u64 page);  // from a flag to bytes

  Memory& memory_;
  const std::function<void(Finding)> report_;
  u64 base_ = 0, size_ = 0;
  u8* bytes_ = nullptr;  // by address - base_
  u8* page_ = nullptr;   // 1: the whole page is defined
};

}  // namespace vdev
