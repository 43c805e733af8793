// What every entry point of the library is made of.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "hip/host_memory.h"
#include "hip/refusal.h"
#include "hip/runtime.h"

#define VDEV_EXPORT extern "C" __attribute__((visibility("default")))
#define HIP_API VDEV_EXPORT hipError_t

namespace vdev::hip {

// Remembers the result of a call for hipGetLastError and returns it.
hipError_t note_result(hipError_t code);

// Runs a body. No exception gets out of here.
template <class Body>
hipError_t guarded(Body&& body) noexcept {
  hipError_t code = hipErrorNotInitialized;
  try {
    if (Runtime* runtime = Runtime::get()) {
      try {
        code = body(*runtime);
      } catch (Refusal& refusal) {
        code = refusal.code;
        if (!refusal.message.empty()) runtime->set_report(std::move(refusal.message));
      }
    }
  } catch (const std::bad_alloc&) {
    code = hipErrorOutOfMemory;
  } catch (const std::exception&) {
    code = hipErrorOperatingSystem;
  }
  return code;
}

// The body of an API call.
template <class Body>
hipError_t api(Body&& body) noexcept {
  Runtime::begin_call();
  return note_result(guarded(std::forward<Body>(body)));
}

// The same for calls that need no state.
template <class Body>
hipError_t stateless_api(Body&& body) noexcept {
  try {
    return note_result(body());
  } catch (const Refusal& refusal) {
    return note_result(refusal.code);
  }
}

inline void check_device(int device) { require(device == 0, hipErrorInvalidDevice); }

// The `_spt` variant of a call takes the null stream for the stream of the thread.
inline hipStream_t per_thread(hipStream_t stream) {
  return stream == nullptr ? reinterpret_cast<hipStream_t>(kStreamPerThread) : stream;
}

}  // namespace vdev::hip
