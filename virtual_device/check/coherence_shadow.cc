#include "check/coherence_shadow.h"

#include <new>

namespace vdev {

void* Arena::take(size_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  std::lock_guard lock(mutex_);
  if (bytes > left_) {
    const size_t chunk = bytes > kChunk ? bytes : kChunk;
    void* fresh = std::calloc(1, chunk);
    if (!fresh) throw std::bad_alloc();
    chunks_.push_back(fresh);
    next_ = static_cast<std::byte*>(fresh);
    left_ = chunk;
  }
  void* result = next_;
  next_ += bytes;
  left_ -= bytes;
  return result;
}

EventTable::EventTable(Arena& arena) : arena_(arena), chunks_(kMaxEvents / kChunk) {}

u32 EventTable::take_block() {
  if (next_.load(std::memory_order_relaxed) >= kMaxEvents) return 0;
  const u32 first = next_.fetch_add(kBlock, std::memory_order_relaxed);
  if (first >= kMaxEvents) return 0;
  std::atomic<Event*>& chunk = chunks_[first / kChunk];
  if (!chunk.load(std::memory_order_acquire)) {
    std::lock_guard lock(mutex_);
    if (!chunk.load(std::memory_order_relaxed))
      chunk.store(static_cast<Event*>(arena_.take(sizeof(Event) * kChunk)),
                  std::memory_order_release);
  }
  return first;
}

ShadowPage* PageTable::page(u64 address) {
  if (address >> 48) return nullptr;
  constexpr u64 kMask = (1 << kBits) - 1;
  Node* node = child(roots_[address >> 36 & kMask]);
  Leaf* leaf = child(node->at[address >> 24 & kMask]);
  return child(leaf->at[address >> 12 & kMask]);
}

}  // namespace vdev
