// Device memory: an address range of its own, allocations fenced by guard zones.
//
// Device addresses lie in a reserved range that the host cannot dereference (PROT_NONE), as on a
// GPU. The bytes live in a second reserved range at a constant distance. Host memory that was
// registered or allocated through the runtime appears at its own host address (bias 0): allocated
// host and managed memory comes from a third range, where only live allocations are accessible.
// Device memory may also be a file, which is mapped into ranges of addresses that were reserved.
// Host memory that is borrowed for the length of a call appears at its own address as well: any
// number of borrowers may have ranges of it that overlap.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "core/memory_observer.h"
#include "core/types.h"

namespace vdev {

enum class MemoryKind : u8 { kDevice, kHost, kManaged };

// What a fresh allocation holds. kPoison: the 16-bit pattern kPoison16 in its first 64 KiB, and
// nothing to rely on after that; kZero: zeros throughout, without touching a page.
enum class Fill : u8 { kPoison, kZero };

// A NaN in binary16, in bfloat16 and, twice, in binary32.
inline constexpr u16 kPoison16 = 0x7fa5;
inline constexpr u64 kMemoryPage = 4096;
inline constexpr u64 kGuardBytes = 64 * 1024;  // least distance of two allocations of the ranges

struct Allocation {
  u64 base = 0;  // first device address
  u64 size = 0;  // bytes asked for; the byte after the last one is already out of bounds
  i64 bias = 0;  // host address = device address + bias
  MemoryKind kind = MemoryKind::kDevice;
  u32 flags = 0;            // as given to the allocating call
  u64 id = 0;               // unique, never reused
  bool registered = false;  // host memory of the application, which it may unmap at any time
  bool mapped = false;      // bytes of a file, in a range that was reserved
  u64 gpus = ~u64{0};       // which of the GPUs see it, a bit each
  bool is_seen_by(u32 gpu) const { return gpus >> gpu & 1; }
  bool contains(u64 address, u64 bytes) const {
    return address >= base && bytes <= size && address - base <= size - bytes;
  }
  std::byte* host(u64 address) const {
    return reinterpret_cast<std::byte*>(address + static_cast<u64>(bias));
  }
};

class Memory {
 public:
  // `capacity`: what hipMemGetInfo calls total. Pages are committed when first touched.
  // `range_bytes`: address space to reserve for device and for host memory each; halved until the
  // system grants it, and the capacity is cut to what was granted.
  explicit Memory(u64 capacity, u64 range_bytes = u64{1} << 40);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Returns nothing for size 0 and when the capacity (device) or the address range (host, managed)
  // is exhausted. Base is aligned to 4096.
  std::optional<Allocation> allocate(u64 size, MemoryKind kind, u32 flags = 0,
                                     Fill fill = Fill::kPoison);
  // Makes [host, host+size) visible at the same address. False when it is empty or overlaps
  // another allocation.
  bool register_host(void* host, u64 size, u32 flags);
  bool unregister_host(void* host);
  // Makes [host, host+size) visible at the same address until it is given back as often as it was
  // borrowed. False when it is empty or touches an allocation. `registered`: not for the length of
  // a call, so that the application may unmap it before it is given back.
  bool borrow(u64 host, u64 size, bool registered = false);
  bool give_back(u64 host, u64 size);
  // Registered host memory that the application has unmapped since, if any, or write-protected
  // unless it is borrowed.
  std::optional<Allocation> lost_registration() const;
  // `address` must be a base. False when it is not one (double free and registered host memory
  // included). The pages go back to the system; for host and managed memory the caller must have
  // drained the device first, because a later access by address faults.
  bool free(u64 address);
  // Which GPUs see the allocation at this base from now on; false when it is none.
  bool show_to(u64 address, u64 gpus);

  // Address space of the device, whole pages and fenced, in which there is nothing before something
  // is mapped there. Returns nothing when the address range is exhausted.
  std::optional<u64> reserve(u64 size, u64 alignment = kMemoryPage);
  // False: no range begins there, or something is mapped in it.
  bool release(u64 base);
  // The reserved range that holds `address`, as its base and its bytes.
  std::optional<std::pair<u64, u64>> reserved_range(u64 address) const;
  // Memory of the device that is a file has its bytes appear at `base`, where nothing may be mapped
  // yet, within one reserved range; `fill` says what the file holds. Neighbours are one allocation
  // for whoever looks for an address.
  bool map(u64 base, u64 size, int file, Fill fill);
  bool unmap(u64 base, u64 size);  // exactly what was mapped at once
  // Counts memory of files as used. False: so much is not left.
  bool charge(u64 bytes);
  void discharge(u64 bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  // The live allocation that holds `address`, if any; the nearest one below or above for reports.
  std::optional<Allocation> find(u64 address) const;
  std::optional<Allocation> nearest(u64 address) const;
  // True when `address` was inside an allocation that has been freed since, and not beside one
  // that has taken its place.
  bool was_freed(u64 address) const;
  // True in a reserved range where nothing is mapped.
  bool is_unmapped(u64 address) const;

  u64 capacity() const { return capacity_; }
  u64 used() const { return used_.load(std::memory_order_relaxed); }
  // Grows with every change of the table: per-worker caches of Allocation are valid for one epoch.
  u64 epoch() const { return epoch_.load(std::memory_order_acquire); }

  // Address range of device memory, and the allocations that exist.
  u64 device_base() const { return device_.base; }
  u64 device_bytes() const { return device_.size; }
  std::vector<Allocation> live() const;
  // Who watches; null: nobody. Not while another thread uses this Memory.
  void set_observer(MemoryObserver* observer) { observer_ = observer; }
  MemoryObserver* observer() const { return observer_; }

 private:
  // Reserved address space, handed out next-fit from a cursor that wraps around: a freed range
  // stays unused until the whole range has been walked, so that stale pointers are noticed.
  struct Range {
    u64 base = 0, size = 0, cursor = 0;
  };

  std::optional<u64> place(Range& range, u64 bytes);    // with mutex_ held
  void retire(std::map<u64, Allocation>::iterator it);  // with mutex_ held
  bool touches_live(u64 base, u64 last) const;          // with mutex_ held
  // With mutex_ held: end() where no reserved range holds `address`.
  std::map<u64, u64>::const_iterator range_at(u64 address) const;
  Allocation with_neighbours(std::map<u64, Allocation>::const_iterator it) const;  // the same
  // With mutex_ held: of what is borrowed there, that which reaches farthest.
  const Allocation* borrowed_at(u64 address) const;
  bool is_own(u64 first, u64 last) const;

  Range device_, host_;
  i64 bias_ = 0;  // of device memory
  u64 capacity_ = 0;
  MemoryObserver* observer_ = nullptr;
  std::atomic<u64> used_{0};
  std::atomic<u64> epoch_{1};
  std::atomic<u32> num_registered_{0};

  mutable std::shared_mutex mutex_;  // guards everything below, and the cursors
  std::map<u64, Allocation> live_;   // by base
  std::map<u64, u64> ranges_;        // that were reserved: bytes by base
  // Few, and only as long as calls last, so that looking through them is quick.
  std::vector<Allocation> borrowed_;
  std::deque<Allocation> freed_;  // newest last, bounded
  u64 next_id_ = 1;
};

}  // namespace vdev
