#include "hip/event.h"

#include <bit>
#include <chrono>

#include "hip/api.h"
#include "hip/capture.h"

namespace vdev::hip {
namespace {

constexpr unsigned kRecordExternal = 1, kWaitExternal = 1;

// The recording that a query or wait from the host is about.
std::shared_ptr<EventRecord> awaited(Runtime& runtime, hipEvent_t handle) {
  const auto event = runtime.events.get(handle);
  forbid_captured_event(runtime, *event);
  return last_record(*event);
}

hipError_t create(hipEvent_t* event, unsigned flags) {
  return api([&](Runtime& runtime) {
    constexpr unsigned kRelease =
        hipEventReleaseToDevice | hipEventReleaseToSystem | hipEventDisableSystemFence;
    constexpr unsigned kKnown =
        hipEventBlockingSync | hipEventDisableTiming | hipEventInterprocess | kRelease;
    require(writable(event) && (flags & ~kKnown) == 0 && std::popcount(flags & kRelease) <= 1);
    require((flags & hipEventInterprocess) == 0, hipErrorNotSupported);
    *event = runtime.events.add(std::make_shared<Event>(flags));
    return hipSuccess;
  });
}

}  // namespace

std::shared_ptr<EventRecord> last_record(Event& event) {
  std::unique_lock lock(event.mutex);
  return event.last;
}

void set_record(Event& event, std::shared_ptr<EventRecord> record, const Point& point) {
  std::unique_lock lock(event.mutex);
  record->at = point;
  event.last = std::move(record);
}

void stamp(const Runtime& runtime, EventRecord& record) {
  if (runtime.process.timing) {  // modelled time
    record.time_ns = runtime.process.timings->now_ns();
    return;
  }
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  record.time_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void record_event(Runtime& runtime, const std::shared_ptr<Stream>& stream,
                  const std::shared_ptr<Event>& event) {
  if (capture_event_record(runtime, *stream, *event)) return;
  auto record = std::make_shared<EventRecord>();
  Task task;
  task.always = true;
  task.run = [record, &runtime] {
    stamp(runtime, *record);
    return LaunchResult{};
  };
  const Point point = runtime.submit(stream, std::move(task));
  set_record(*event, std::move(record), point);
}

void wait_for_event(Runtime& runtime, const std::shared_ptr<Stream>& stream,
                    const std::shared_ptr<Event>& event) {
  if (capture_event_wait(runtime, *stream, *event)) return;
  const auto record = last_record(*event);
  if (record == nullptr || record->at.stream == stream) return;
  Task marker;
  marker.after.push_back({record->at});
  runtime.submit(stream, std::move(marker));
}

HIP_API hipEventCreate(hipEvent_t* event) { return create(event, 0); }

HIP_API hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) { return create(event, flags); }

HIP_API hipEventDestroy(hipEvent_t event) {
  return api([&](Runtime& runtime) {
    require(runtime.events.remove(event) != nullptr, hipErrorContextIsDestroyed);
    return hipSuccess;
  });
}

HIP_API hipEventRecordWithFlags(hipEvent_t event, hipStream_t stream, unsigned flags) {
  return api([&](Runtime& runtime) {
    const auto e = runtime.events.get(event);
    const auto s = runtime.stream(stream);
    require(flags <= kRecordExternal);
    if (flags == kRecordExternal && runtime.capturing(*s)) {
      return runtime.enqueue(s, EventRecordCommand{e});
    }
    record_event(runtime, s, e);
    return hipSuccess;
  });
}

HIP_API hipEventRecord(hipEvent_t event, hipStream_t stream) {
  return hipEventRecordWithFlags(event, stream, 0);
}

HIP_API hipEventRecord_spt(hipEvent_t event, hipStream_t stream) {
  return hipEventRecordWithFlags(event, per_thread(stream), 0);
}

HIP_API hipEventSynchronize(hipEvent_t event) {
  return api([&](Runtime& runtime) {
    const auto record = awaited(runtime, event);
    return record == nullptr ? hipSuccess : runtime.synchronize(record->at);
  });
}

HIP_API hipEventQuery(hipEvent_t event) {
  return api([&](Runtime& runtime) {
    const auto record = awaited(runtime, event);
    if (record == nullptr) return hipSuccess;
    if (!record->at.stream->finished(record->at.sequence)) return hipErrorNotReady;
    return runtime.tell({record->at.stream.get()}, !kTold);
  });
}

HIP_API hipEventElapsedTime(float* ms, hipEvent_t start, hipEvent_t stop) {
  return api([&](Runtime& runtime) {
    require(writable(ms));
    const auto first = runtime.events.get(start), second = runtime.events.get(stop);
    require(((first->flags | second->flags) & hipEventDisableTiming) == 0, hipErrorInvalidHandle);
    const auto from = last_record(*first), to = last_record(*second);
    require(from != nullptr && to != nullptr, hipErrorInvalidHandle);
    if (!from->at.stream->finished(from->at.sequence) ||
        !to->at.stream->finished(to->at.sequence)) {
      return hipErrorNotReady;
    }
    *ms = static_cast<float>(static_cast<double>(to->time_ns - from->time_ns) * 1e-6);
    return hipSuccess;
  });
}

HIP_API hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags) {
  return api([&](Runtime& runtime) {
    const auto s = runtime.stream(stream);
    const auto e = runtime.events.get(event);
    require(flags <= kWaitExternal);
    if (flags == kWaitExternal && runtime.capturing(*s)) {
      return runtime.enqueue(s, EventWaitCommand{e});
    }
    wait_for_event(runtime, s, e);
    return hipSuccess;
  });
}

HIP_API hipStreamWaitEvent_spt(hipStream_t stream, hipEvent_t event, unsigned flags) {
  return hipStreamWaitEvent(per_thread(stream), event, flags);
}

}  // namespace vdev::hip
