// What the last accesses of every dword of device memory were, in one launch. Pages appear as they
// are touched; everything is freed at the launch's end.
//
// Workers share the pages without locks. Slots are plain words, as device memory itself is in the
// core: a lost update loses a finding at worst, and accesses that the kernel orders are ordered
// here too, because its atomics are atomics of the host.
#pragma once

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "check/coherence_clock.h"

namespace vdev {

// Zeroed memory that lives as long as the arena. Thread-safe.
class Arena {
 public:
  Arena() = default;
  ~Arena() {
    for (void* chunk : chunks_) std::free(chunk);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  void* take(size_t bytes);

 private:
  static constexpr size_t kChunk = size_t{1} << 20;
  std::mutex mutex_;
  std::vector<void*> chunks_;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
};

// Accesses by id. Ids are handed out in blocks, so that workers do not meet.
class EventTable {
 public:
  static constexpr u32 kBlock = 16, kMaxEvents = 1u << 25;
  explicit EventTable(Arena& arena);
  // The first id of a block; 0 when the table is full.
  u32 take_block();
  Event& at(u32 id) { return chunks_[id / kChunk].load(std::memory_order_relaxed)[id % kChunk]; }
  const Event& at(u32 id) const {
    return chunks_[id / kChunk].load(std::memory_order_relaxed)[id % kChunk];
  }

 private:
  static constexpr u32 kChunk = 4096;
  Arena& arena_;
  std::mutex mutex_;
  std::atomic<u32> next_{kBlock};  // id 0 means none
  std::vector<std::atomic<Event*>> chunks_;
};

// Event id and the bytes of the dword that it touched; 0: nobody.
using Slot = u32;
constexpr Slot make_slot(u32 id, u32 mask) { return id << 4 | mask; }
constexpr u32 slot_id(Slot s) { return s >> 4; }
constexpr u32 slot_mask(Slot s) { return s & 15; }
// Other workers record without a lock: what a decision rests on is read once.
inline Slot seen_once(const Slot& slot) { return __atomic_load_n(&slot, __ATOMIC_RELAXED); }
// The bytes of the dword have different last writers: see ShadowPage::split.
inline constexpr Slot kSplitSlot = ~Slot{15};

struct SplitDword {
  u32 id[4];  // events, by byte
};

inline constexpr u32 kPageDwords = 1024;

struct ShadowPage {
  struct Writes {
    Slot last[kPageDwords];
    u32 before[kPageDwords];  // the dword without what its last writer's workgroup stored
  };
  Slot read[kPageDwords];          // first reader since the last write
  std::atomic<Slot*> other;        // kPageDwords: the last reader that is another wave
  std::atomic<Writes*> writes;     // null: not written in this launch
  std::atomic<SplitDword*> split;  // kPageDwords
  std::atomic<bool> has_sync;      // holds synchronisation locations
};

class PageTable {
 public:
  explicit PageTable(Arena& arena) : arena_(arena) {}
  // Null for addresses that no allocation can have.
  ShadowPage* page(u64 address);
  ShadowPage::Writes& writes(ShadowPage& page) { return *child(page.writes); }
  Slot* other_readers(ShadowPage& page) { return child<Slot, kPageDwords>(page.other); }
  SplitDword& split(ShadowPage& page, u32 dword) {
    return child<SplitDword, kPageDwords>(page.split)[dword];
  }

 private:
  static constexpr u32 kBits = 12;  // three levels of it above a page of 4096 bytes: 48 bits
  struct Leaf {
    std::atomic<ShadowPage*> at[1 << kBits];
  };
  struct Node {
    std::atomic<Leaf*> at[1 << kBits];
  };

  // What `link` points to; made, zeroed, if nothing yet.
  template <class T, size_t kCount = 1>
  T* child(std::atomic<T*>& link) {
    T* found = link.load(std::memory_order_acquire);
    if (found) [[likely]]
      return found;
    // The loser of a race leaves its piece unused.
    T* fresh = static_cast<T*>(arena_.take(sizeof(T) * kCount));
    return link.compare_exchange_strong(found, fresh) ? fresh : found;
  }

  Arena& arena_;
  std::atomic<Node*> roots_[1 << kBits]{};
};

}  // namespace vdev
