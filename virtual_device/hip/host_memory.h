// Pointers that callers give: refused where the memory behind them cannot be used.
#pragma once

#include "core/safe_read.h"
#include "hip/refusal.h"

namespace vdev::hip {

// Whether `count` values can be read there. False for null.
template <class T>
bool readable(const T* values, u64 count = 1) {
  u64 bytes = 0;
  return values != nullptr && !__builtin_mul_overflow(count, u64{sizeof(T)}, &bytes) &&
         is_accessible(values, bytes, HostAccess::kRead);
}

// Whether `count` values can be written there. False for null.
template <class T>
bool writable(T* values, u64 count = 1) {
  u64 bytes = 0;
  return values != nullptr && !__builtin_mul_overflow(count, u64{sizeof(T)}, &bytes) &&
         is_accessible(values, bytes, HostAccess::kWrite);
}

// Whether an optional result is wanted; refuses what cannot be written.
template <class T>
bool wanted(T* value) {
  if (value == nullptr) return false;
  require(writable(value));
  return true;
}

}  // namespace vdev::hip
