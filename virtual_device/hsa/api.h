// What every entry point of the HSA face is made of.
#pragma once

#include <exception>
#include <new>

#include "hsa/system.h"

#define HSA_EXPORT extern "C" __attribute__((visibility("default")))
#define HSA_API HSA_EXPORT ::vdev::hsa::Status

namespace vdev::hsa {

// Ends a call with a status.
struct Refused {
  Status status;
};

inline void require(bool condition, Status status = kInvalidArgument) {
  if (!condition) throw Refused{status};
}

// Runs the body of a call on the started system. No exception gets out of here.
template <class Body>
Status api(Body&& body) noexcept {
  try {
    System* const system = System::get();
    return system != nullptr ? body(*system) : kNotInitialized;
  } catch (const Refused& refused) {
    return refused.status;
  } catch (const std::bad_alloc&) {
    return kOutOfResources;
  } catch (const std::exception&) {
    return kError;
  }
}

// Answers a query: writes a value of the attribute's type.
template <class T>
Status answer(void* to, const T& value) {
  require(to != nullptr);
  *static_cast<T*>(to) = value;
  return kSuccess;
}

// Names the call that is not supported on stderr, once each.
Status refuse_call(const char* name);

}  // namespace vdev::hsa
