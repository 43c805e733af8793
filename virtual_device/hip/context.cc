// Contexts: the primary one of the only device, always current.
#include "hip/api.h"

namespace vdev::hip {
namespace {

// Not an address either; the kind follows those of the tables in Runtime.
const hipCtx_t kPrimary = reinterpret_cast<hipCtx_t>(u64{0x5a} << 48);

std::atomic<int> retained{0};
std::atomic<unsigned> context_flags{0};

hipError_t give_primary(hipCtx_t* context) {
  return api([&](Runtime&) {
    require(writable(context));
    *context = kPrimary;
    return hipSuccess;
  });
}

// Making it current, in whatever way, changes nothing.
hipError_t accept_primary(hipCtx_t context, bool null_is_fine) {
  return api([&](Runtime&) {
    require(context == kPrimary || (null_is_fine && context == nullptr), hipErrorInvalidContext);
    return hipSuccess;
  });
}

template <class Body>
hipError_t with_device(int device, Body&& body) {
  return api([&](Runtime&) {
    check_device(device);
    return body();
  });
}

}  // namespace

HIP_API hipDevicePrimaryCtxRetain(hipCtx_t* context, hipDevice_t device) {
  return with_device(device, [&] {
    require(writable(context));
    ++retained;
    *context = kPrimary;
    return hipSuccess;
  });
}

HIP_API hipDevicePrimaryCtxRelease(hipDevice_t device) {
  return with_device(device, [] {
    if (retained > 0) --retained;
    return hipSuccess;
  });
}

HIP_API hipDevicePrimaryCtxReset(hipDevice_t device) {
  return with_device(device, [] { return hipSuccess; });
}

HIP_API hipDevicePrimaryCtxSetFlags(hipDevice_t device, unsigned flags) {
  return with_device(device, [&] {
    require((flags & ~(hipDeviceScheduleMask | hipDeviceMapHost | hipDeviceLmemResizeToMax)) == 0);
    context_flags = flags;
    return hipSuccess;
  });
}

HIP_API hipDevicePrimaryCtxGetState(hipDevice_t device, unsigned* flags, int* active) {
  return with_device(device, [&] {
    require(writable(flags) && writable(active));
    *flags = context_flags;
    *active = 1;
    return hipSuccess;
  });
}

HIP_API hipCtxGetCurrent(hipCtx_t* context) { return give_primary(context); }

HIP_API hipCtxSetCurrent(hipCtx_t context) { return accept_primary(context, true); }

HIP_API hipCtxPushCurrent(hipCtx_t context) { return accept_primary(context, false); }

HIP_API hipCtxPopCurrent(hipCtx_t* context) { return give_primary(context); }

HIP_API hipCtxGetDevice(hipDevice_t* device) {
  return api([&](Runtime&) {
    require(writable(device));
    *device = 0;
    return hipSuccess;
  });
}

HIP_API hipCtxGetFlags(unsigned* flags) {
  return api([&](Runtime&) {
    require(writable(flags));
    *flags = context_flags;
    return hipSuccess;
  });
}

// As AMD's runtime has it: contexts are CUDA's.
HIP_API hipCtxSynchronize() {
  return api([&](Runtime&) { return hipErrorNotSupported; });
}

}  // namespace vdev::hip
