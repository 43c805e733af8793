// Streams.
#include <algorithm>

#include "hip/api.h"
#include "hip/capture.h"

namespace vdev::hip {
namespace {

constexpr int kLowest = 1, kHighest = -1;  // lower numbers are more urgent

hipError_t create(hipStream_t* stream, unsigned flags, int priority) {
  return api([&](Runtime& runtime) {
    require(writable(stream) && flags <= hipStreamNonBlocking);
    *stream =
        runtime.streams.add(runtime.make_stream(flags, std::clamp(priority, kHighest, kLowest)));
    return hipSuccess;
  });
}

template <class T, class Get>
hipError_t get(hipStream_t stream, T* value, Get&& read) {
  return api([&](Runtime& runtime) {
    require(writable(value));
    *value = read(*runtime.stream(stream));
    return hipSuccess;
  });
}

// Host functions run on the stream's thread, in its order, whatever became of the work before.
hipError_t add_callback(hipStream_t stream, hipStreamCallback_t callback, void* user_data,
                        unsigned flags) {
  return api([&](Runtime& runtime) {
    require(callback != nullptr && flags == 0);
    const auto s = runtime.stream(stream);
    forbid_capturing_stream(runtime, *s);
    Task task;
    task.always = true;
    task.run = [stream, callback, user_data, weak = std::weak_ptr<Stream>(s)] {
      const auto self = weak.lock();
      const FaultPtr fault = self == nullptr ? nullptr : self->faults.latest_open();
      callback(stream, fault == nullptr ? hipSuccess : fault->code, user_data);
      return LaunchResult{};
    };
    runtime.submit(s, std::move(task));
    return hipSuccess;
  });
}

}  // namespace

HIP_API hipStreamCreate(hipStream_t* stream) { return create(stream, 0, 0); }

HIP_API hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags) {
  return create(stream, flags, 0);
}

HIP_API hipStreamCreateWithPriority(hipStream_t* stream, unsigned flags, int priority) {
  return create(stream, flags, priority);
}

HIP_API hipStreamDestroy(hipStream_t stream) {
  return api([&](Runtime& runtime) {
    const auto s = runtime.streams.remove(stream);
    require(s != nullptr, hipErrorInvalidHandle);
    abandon_capture(runtime, *s);
    runtime.destroy_stream(s);
    return hipSuccess;
  });
}

HIP_API hipStreamSynchronize(hipStream_t stream) {
  return api([&](Runtime& runtime) {
    const auto s = runtime.stream(stream);
    forbid_capturing_stream(runtime, *s);
    return runtime.synchronize(s);
  });
}

HIP_API hipStreamSynchronize_spt(hipStream_t stream) {
  return hipStreamSynchronize(per_thread(stream));
}

HIP_API hipStreamQuery(hipStream_t stream) {
  return api([&](Runtime& runtime) {
    const auto s = runtime.stream(stream);
    forbid_capturing_stream(runtime, *s);
    const auto busy = [](const Stream& other) { return !other.finished(other.submitted()); };
    if (busy(*s)) return hipErrorNotReady;
    if (s != runtime.null_stream()) return runtime.tell({s.get()}, !kTold);
    std::vector<const Stream*> ordered{s.get()};
    const auto live = runtime.live_streams();
    for (const auto& other : live) {
      if (!other->blocking()) continue;
      if (busy(*other)) return hipErrorNotReady;
      ordered.push_back(other.get());
    }
    return runtime.tell(ordered, !kTold);
  });
}

HIP_API hipStreamQuery_spt(hipStream_t stream) { return hipStreamQuery(per_thread(stream)); }

HIP_API hipStreamGetFlags(hipStream_t stream, unsigned* flags) {
  return get(stream, flags, [](const Stream& s) { return s.flags; });
}

HIP_API hipStreamGetFlags_spt(hipStream_t stream, unsigned* flags) {
  return hipStreamGetFlags(per_thread(stream), flags);
}

HIP_API hipStreamGetPriority(hipStream_t stream, int* priority) {
  return get(stream, priority, [](const Stream& s) { return s.priority; });
}

HIP_API hipStreamGetPriority_spt(hipStream_t stream, int* priority) {
  return hipStreamGetPriority(per_thread(stream), priority);
}

HIP_API hipStreamGetDevice(hipStream_t stream, hipDevice_t* device) {
  return get(stream, device, [](const Stream&) { return 0; });
}

HIP_API hipStreamGetId(hipStream_t stream, unsigned long long* id) {
  return get(stream, id, [](const Stream& s) { return s.id; });
}

// No error code: -1 for what is not a stream.
VDEV_EXPORT int hipGetStreamDeviceId(hipStream_t stream) {
  int device = -1;
  hipStreamGetDevice(stream, &device);
  return device;
}

HIP_API hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return stateless_api([&] {
    if (wanted(least)) *least = kLowest;
    if (wanted(greatest)) *greatest = kHighest;
    return hipSuccess;
  });
}

HIP_API hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t callback, void* user_data,
                             unsigned flags) {
  return add_callback(stream, callback, user_data, flags);
}

HIP_API hipStreamAddCallback_spt(hipStream_t stream, hipStreamCallback_t callback, void* user_data,
                                 unsigned flags) {
  return add_callback(per_thread(stream), callback, user_data, flags);
}

HIP_API hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void* user_data) {
  return api([&](Runtime& runtime) {
    require(function != nullptr);
    return runtime.enqueue(runtime.stream(stream), HostCommand{function, user_data});
  });
}

HIP_API hipLaunchHostFunc_spt(hipStream_t stream, hipHostFn_t function, void* user_data) {
  return hipLaunchHostFunc(per_thread(stream), function, user_data);
}

}  // namespace vdev::hip
