// Which bytes of device memory hold a value that somebody wrote.
//
// A byte of shadow per byte of the device's address range: 0xff when defined. A page whose bytes
// are all defined has a flag instead, so that memory which the host fills costs no shadow, and
// fresh shadow pages, which are zero, need no initialisation. Host memory counts as defined.
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
  // Whether all bytes of a datum are defined.
  bool defined(u64 address, u32 bytes) const {
    if (!covers(address, bytes)) return true;
    const u64 at = address - base_, page = at / kMemoryPage, last = (at + bytes - 1) / kMemoryPage;
    if (page_[page] & page_[last]) return true;
    u8 taint[64];
    if (page != last || page_[page]) return !read_shadow(address, taint, bytes);
    u64 all = ~u64{0};
    u32 i = 0;
    for (u64 word; i + 8 <= bytes; i += 8, all &= word) std::memcpy(&word, bytes_ + at + i, 8);
    u8 rest = 0xff;
    for (; i < bytes; ++i) rest &= bytes_[at + i];
    return all == ~u64{0} && rest == 0xff;
  }
  // Sets the bytes of `taint` (0xff: undefined) and returns whether any is set.
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
  void split(u64 page);    // from a flag to bytes
  void promote(u64 page);  // to a flag, if all bytes are defined

  Memory& memory_;
  const std::function<void(Finding)> report_;
  u64 base_ = 0, size_ = 0;
  u8* bytes_ = nullptr;  // by address - base_
  u8* page_ = nullptr;   // 1: the whole page is defined
};

}  // namespace vdev
