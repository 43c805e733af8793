#include "hip/runtime.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "hip/interruption.h"

namespace vdev::hip {
namespace {

std::atomic<Runtime*> instance{nullptr};
std::atomic<bool> forked{false};
constexpr auto kExitPatience = std::chrono::seconds(2);
constexpr auto kAbortPatience = std::chrono::milliseconds(300);
constexpr auto kInterruptionPoll = std::chrono::milliseconds(50);

thread_local std::string own_report;  // of an error of the latest call

// The stream behind hipStreamPerThread; it goes when the thread goes.
struct ThreadStream {
  std::shared_ptr<Stream> stream;
  ~ThreadStream() {
    if (stream != nullptr && !forked.load()) stream->close(false);
  }
};
thread_local ThreadStream thread_stream;

hipError_t error_of(FaultKind fault) {
  switch (fault) {
    case FaultKind::kNone:
      return hipSuccess;
    case FaultKind::kIllegalAddress:
    case FaultKind::kScratchBounds:
    case FaultKind::kLdsBounds:
    case FaultKind::kOutsideCode:
      return hipErrorIllegalAddress;
    case FaultKind::kDeadlock:
    case FaultKind::kRunaway:
      return hipErrorLaunchTimeOut;
    case FaultKind::kResources:
      return hipErrorLaunchOutOfResources;
    case FaultKind::kIllegalInstruction:
    case FaultKind::kMisaligned:
    case FaultKind::kTrap:
    case FaultKind::kAborted:
      return hipErrorLaunchFailure;
  }
  return hipErrorLaunchFailure;
}

}  // namespace

Runtime::Runtime() {
  const auto on_fault = [this](const LaunchResult& result, u64 submitter) {
    return this->on_fault(result, submitter);
  };
  null_stream_ = std::make_shared<Stream>(next_stream_id_++, 0, 0, on_fault);
  default_pool = std::make_shared<MemPool>();
  pools.add(default_pool);
  current_pool = default_pool;
  process.add_drain([this] { drain(); });
}

Runtime* Runtime::get() {
  Runtime* runtime = instance.load(std::memory_order_acquire);
  return runtime != nullptr ? runtime : create();
}

Runtime* Runtime::create() {
  static std::mutex mutex;
  if (forked.load()) return nullptr;
  std::unique_lock lock(mutex);
  if (Runtime* runtime = instance.load()) return runtime;
  // Never destroyed: threads of the application may still be inside a call when the process ends.
  Runtime* runtime = new Runtime;
  pthread_atfork(nullptr, nullptr, [] {
    forked.store(true);
    instance.store(nullptr);
  });
  std::atexit(shut_down);
  keep_library_loaded();
  instance.store(runtime, std::memory_order_release);
  return runtime;
}

// Queued work is dropped. A launch that runs is given a moment and then aborted, so that no thread
// executes code of this library while the static objects of the process are destroyed.
void Runtime::shut_down() {
  Runtime* runtime = instance.load();
  if (runtime == nullptr) return;
  std::vector<std::shared_ptr<Stream>> streams = runtime->live_streams();
  streams.push_back(runtime->null_stream_);
  for (const auto& stream : streams) stream->close(true);
  const auto all_closed_within = [&](Stream::Clock::duration patience) {
    const auto deadline = Stream::Clock::now() + patience;
    return std::all_of(streams.begin(), streams.end(),
                       [&](const auto& stream) { return stream->wait_closed(deadline); });
  };
  if (all_closed_within(kExitPatience)) return;
  runtime->device.abort("the process ends");
  all_closed_within(kAbortPatience);  // not for work that waits for what was dropped
}

std::vector<std::shared_ptr<Stream>> Runtime::live_streams() const {
  std::unique_lock lock(streams_mutex_);
  return live_;
}

std::shared_ptr<Stream> Runtime::make_stream(u32 flags, int priority) {
  const auto on_fault = [this](const LaunchResult& result, u64 submitter) {
    return this->on_fault(result, submitter);
  };
  auto stream = std::make_shared<Stream>(next_stream_id_++, flags, priority, on_fault);
  std::unique_lock lock(streams_mutex_);
  std::erase_if(live_, [&](const auto& other) {  // of ended threads
    if (!other->closed()) return false;
    orphans_.take_over(other->faults, false);
    return true;
  });
  live_.push_back(stream);
  return stream;
}

std::shared_ptr<Stream> Runtime::stream(hipStream_t handle) {
  switch (reinterpret_cast<std::uintptr_t>(handle)) {
    case kStreamNull:
    case kStreamLegacy:
      return null_stream_;
    case kStreamPerThread:
      if (thread_stream.stream == nullptr) thread_stream.stream = make_stream(0, 0);
      return thread_stream.stream;
    default:
      return streams.get(handle);
  }
}

void Runtime::destroy_stream(const std::shared_ptr<Stream>& stream) {
  stream->close(false);
  if (!on_stream_thread()) wait({stream, stream->submitted()});
  orphans_.take_over(stream->faults, false);
  std::unique_lock lock(streams_mutex_);
  std::erase(live_, stream);
}

Point Runtime::submit(const std::shared_ptr<Stream>& stream, Task task) {
  const auto wait_for = [&](const std::shared_ptr<Stream>& other) {
    const u64 sequence = other->submitted();
    // A finished stream matters too while it holds a fault: who waits for it has to learn of it.
    if (!other->finished(sequence) || other->faults.latest_open() != nullptr) {
      task.after.push_back({{other, sequence}, true});
    }
  };
  if (stream == null_stream_) {
    forbid_legacy_in_capture();
    std::unique_lock lock(streams_mutex_);
    for (const auto& other : live_) {
      if (other->blocking()) wait_for(other);
    }
  } else if (stream->blocking()) {
    wait_for(null_stream_);
  }
  return {stream, stream->submit(std::move(task))};
}

void Runtime::wait(const Point& point) {
  if (point.stream->finished(point.sequence)) return;
  if (!Interruption::is_answered_here()) return point.stream->wait(point.sequence);
  constexpr const char* kWhy = "interrupted by SIGINT while the host waited";
  Interruption interruption;
  bool cancelled = false;
  while (!point.stream->wait(point.sequence, kInterruptionPoll)) {
    if (!interruption.occurred()) continue;
    if (!std::exchange(cancelled, true)) cancel(kWhy);
    device.abort(kWhy);
  }
}

void Runtime::cancel(const std::string& why) {
  const auto fault =
      std::make_shared<Fault>(error_of(FaultKind::kAborted), "cancelled: " + why, this_thread());
  for (const auto& stream : live_streams()) stream->cancel(fault);
  null_stream_->cancel(fault);
}

hipError_t Runtime::synchronize(const Point& point) {
  require(!on_stream_thread(), hipErrorIllegalState);
  wait(point);
  return tell({point.stream.get()}, kTold);
}

hipError_t Runtime::synchronize(const std::shared_ptr<Stream>& stream) {
  require(!on_stream_thread(), hipErrorIllegalState);
  // On the null stream a marker gathers the blocking streams.
  if (stream == null_stream_) return synchronize(submit(stream, Task{}));
  return synchronize(Point{stream, stream->submitted()});
}

void Runtime::drain() {
  require(!on_stream_thread(), hipErrorIllegalState);
  for (const auto& stream : live_streams()) wait({stream, stream->submitted()});
  wait({null_stream_, null_stream_->submitted()});
}

hipError_t Runtime::synchronize_device() {
  drain();
  const auto live = live_streams();
  std::vector<const Stream*> all{null_stream_.get()};
  for (const auto& stream : live) all.push_back(stream.get());
  return tell(all, kTold);
}

hipError_t Runtime::tell(const std::vector<const Stream*>& streams, bool told) {
  News news;
  for (const Stream* stream : streams) stream->faults.tell(news, told);
  orphans_.tell(news, told);
  if (news.code() == hipSuccess) return hipSuccess;
  set_report(news.report() + (told ? "" : "\n  so do copies of this thread until it synchronizes"));
  return news.code();
}

void Runtime::forget_faults() {
  for (const auto& stream : live_streams()) stream->faults.forget();
  null_stream_->faults.forget();
  orphans_.forget();
}

FaultPtr Runtime::on_fault(const LaunchResult& result, u64 submitter) {
  set_report(result.report);
  return std::make_shared<Fault>(error_of(result.fault), result.report, submitter);
}

void Runtime::begin_call() { own_report.clear(); }

void Runtime::set_report(std::string text) {
  own_report = text;
  std::unique_lock lock(report_mutex_);
  report_ = std::move(text);
}

std::string Runtime::report() const {
  if (!own_report.empty()) return own_report;
  std::unique_lock lock(report_mutex_);
  return report_;
}

}  // namespace vdev::hip
