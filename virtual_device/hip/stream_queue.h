// A stream: an ordered queue of tasks, executed one after the other by a thread of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/device.h"
#include "hip/faults.h"
#include "hip/hip_abi.h"

namespace vdev::hip {

class Stream;
struct CaptureSession;
struct Node;

// A point in the order of a stream: reached when its first `sequence` tasks have finished.
struct Point {
  std::shared_ptr<Stream> stream;
  u64 sequence = 0;
};

// A point of another stream that a task waits for; `implicit`: by the rule of the null stream.
struct Dependency {
  Point point;
  bool implicit = false;
};

struct Task {
  std::function<LaunchResult()> run;  // empty: a marker
  std::vector<Dependency> after;
  // Device work can be cancelled. Host functions, event records and frees are not: somebody waits
  // for them.
  bool always = false;
  u64 submitter = this_thread();
};

// What a stream knows about the capture it takes part in; guarded by Runtime::capture_mutex.
struct StreamCapture {
  std::shared_ptr<CaptureSession> session;      // null: not capturing
  std::vector<std::shared_ptr<Node>> frontier;  // nodes that the next one depends on
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  using Clock = std::chrono::steady_clock;
  // Called on the stream's thread for every fault, before anybody can see it.
  using OnFault = std::function<FaultPtr(const LaunchResult&, u64 submitter)>;

  Stream(u64 id, u32 flags, int priority, OnFault on_fault)
      : id(id), flags(flags), priority(priority), on_fault_(std::move(on_fault)) {}

  hipStream_t handle{};
  const u64 id;
  const u32 flags;
  const int priority;
  StreamCapture capture;
  FaultLog faults;  // of its work, and of the work that this waited for

  bool blocking() const { return (flags & hipStreamNonBlocking) == 0; }

  // Appends a task and returns the sequence number at which it will have finished.
  u64 submit(Task task);
  u64 submitted() const { return submitted_.load(std::memory_order_acquire); }
  bool finished(u64 sequence) const {
    return completed_.load(std::memory_order_acquire) >= sequence;
  }
  // Blocks until the first `sequence` tasks have finished.
  void wait(u64 sequence);
  // As above for so long at most. False: they have not.
  bool wait(u64 sequence, Clock::duration patience);

  // Device work that was submitted before and has not begun will not run: it faults with this.
  void cancel(FaultPtr fault);

  // No further task is accepted; the thread ends after the last one (or, if `discard`, after the
  // one that runs now). Returns at once.
  void close(bool discard);
  // True when the thread has ended or was never needed; waits until the deadline at most.
  bool wait_closed(Clock::time_point deadline);
  bool closed() const;

 private:
  void main();
  void execute(Task& task, u64 sequence);

  const OnFault on_fault_;
  mutable std::mutex mutex_;
  std::condition_variable work_, progress_;
  std::deque<Task> queue_;
  std::atomic<u64> submitted_{0}, completed_{0};
  u64 cancelled_until_ = 0;  // sequence number
  FaultPtr cancelled_by_;
  int num_waiting_ = 0;
  bool has_thread_ = false, closing_ = false, thread_ended_ = false;
};

// True on a thread that executes a stream: there the API must not wait for a stream.
bool on_stream_thread();

}  // namespace vdev::hip
