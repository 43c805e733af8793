// Error codes: the last one of each thread, their names and texts.
#include <dlfcn.h>

#include <cstring>
#include <utility>

#include "hip/api.h"

namespace vdev::hip {
namespace {

// `last_error` stays until it is asked for; `last_result` is that of the latest call.
thread_local hipError_t last_error = hipSuccess, last_result = hipSuccess;

struct ErrorText {
  const char *name, *text;
};

const ErrorText* find(hipError_t code) {
  switch (code) {
#define VDEV_CASE(error, value, text)                  \
  case error: {                                        \
    static constexpr ErrorText entry = {#error, text}; \
    return &entry;                                     \
  }
    VDEV_HIP_ERRORS(VDEV_CASE)
#undef VDEV_CASE
  }
  return nullptr;
}

const ErrorText& known_or_unknown(hipError_t code) {
  const ErrorText* entry = find(code);
  return entry != nullptr ? *entry : *find(hipErrorUnknown);
}

hipError_t give(hipError_t code, const char** to, const char* ErrorText::* member) {
  if (!writable(to)) return hipErrorInvalidValue;
  *to = known_or_unknown(code).*member;
  return find(code) != nullptr ? hipSuccess : hipErrorInvalidValue;
}

}  // namespace

// Not ready is an answer, not an error.
hipError_t note_result(hipError_t code) {
  last_result = code;
  if (code != hipSuccess && code != hipErrorNotReady) last_error = code;
  return code;
}

HIP_API hipGetLastError() { return std::exchange(last_error, hipSuccess); }

HIP_API hipPeekAtLastError() { return last_error; }

HIP_API hipExtGetLastError() { return std::exchange(last_result, hipSuccess); }

VDEV_EXPORT const char* hipGetErrorName(hipError_t code) { return known_or_unknown(code).name; }

VDEV_EXPORT const char* hipGetErrorString(hipError_t code) { return known_or_unknown(code).text; }

HIP_API hipDrvGetErrorName(hipError_t code, const char** name) {
  return give(code, name, &ErrorText::name);
}

HIP_API hipDrvGetErrorString(hipError_t code, const char** text) {
  return give(code, text, &ErrorText::text);
}

// The numbering of API calls belongs to the profiler of the real runtime.
VDEV_EXPORT const char* hipApiName(uint32_t) { return "unknown"; }

HIP_API hipGetProcAddress(const char* symbol, void** address, int, uint64_t,
                          hipDriverProcAddressQueryResult* status) {
  return stateless_api([&] {
    if (!is_text(symbol) || !writable(address)) return hipErrorInvalidValue;
    // Only this library: another HIP runtime may be loaded beside it.
    Dl_info self{};
    void* library = dladdr(reinterpret_cast<void*>(&hipGetErrorName), &self) != 0
                        ? dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD)
                        : nullptr;
    const bool ours = std::strncmp(symbol, "hip", 3) == 0;
    *address = library != nullptr && ours ? dlsym(library, symbol) : nullptr;
    if (library != nullptr) dlclose(library);
    const bool found = *address != nullptr;
    if (wanted(status)) {
      *status = found ? HIP_GET_PROC_ADDRESS_SUCCESS : HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    return found ? hipSuccess : hipErrorInvalidValue;
  });
}

}  // namespace vdev::hip
