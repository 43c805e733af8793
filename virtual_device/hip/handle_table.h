// Live objects of one kind, by the opaque handle that the application holds.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "core/types.h"
#include "hip/refusal.h"

namespace vdev::hip {

// A handle is a number, not an address, and is never given out twice: a stale or foreign one is
// always recognised and nothing of the application's is ever dereferenced as an object.
// T has a member `Handle handle`.
template <class Handle, class T>
class HandleTable {
 public:
  explicit HandleTable(u8 kind) : next_((u64{kind} << 48) | kStep) {}

  Handle add(const std::shared_ptr<T>& object) {
    std::unique_lock lock(mutex_);
    const u64 key = next_;
    next_ += kStep;
    object->handle = reinterpret_cast<Handle>(key);
    live_.emplace(key, object);
    return object->handle;
  }

  // Null when the handle is not live.
  std::shared_ptr<T> find(const void* handle) const {
    std::shared_lock lock(mutex_);
    const auto it = live_.find(reinterpret_cast<u64>(handle));
    return it == live_.end() ? nullptr : it->second;
  }

  // Refuses the call when the handle is not live.
  std::shared_ptr<T> get(const void* handle, hipError_t code = hipErrorInvalidHandle) const {
    std::shared_ptr<T> object = find(handle);
    if (object == nullptr) refuse(code);
    return object;
  }

  // Takes the object out of the table; null when the handle is not live.
  std::shared_ptr<T> remove(const void* handle) {
    std::unique_lock lock(mutex_);
    const auto it = live_.find(reinterpret_cast<u64>(handle));
    if (it == live_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(it->second);
    live_.erase(it);
    return object;
  }

  std::vector<std::shared_ptr<T>> all() const {
    std::shared_lock lock(mutex_);
    std::vector<std::shared_ptr<T>> objects;
    objects.reserve(live_.size());
    for (const auto& [key, object] : live_) objects.push_back(object);
    return objects;
  }

 private:
  static constexpr u64 kStep = 16;

  mutable std::shared_mutex mutex_;
  std::unordered_map<u64, std::shared_ptr<T>> live_;
  u64 next_;
};

}  // namespace vdev::hip
