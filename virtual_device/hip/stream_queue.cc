#include "hip/stream_queue.h"

#include <pthread.h>
#include <signal.h>

#include <exception>
#include <thread>
#include <utility>

#include "hip/refusal.h"

namespace vdev::hip {
namespace {

thread_local bool is_stream_thread = false;

// Signals of the process belong to its own threads (Python handles them on the main one).
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }

 private:
  sigset_t saved_;
};

}  // namespace

bool on_stream_thread() { return is_stream_thread; }

u64 Stream::submit(Task task) {
  std::unique_lock lock(mutex_);
  if (closing_) refuse(hipErrorInvalidHandle);
  if (!has_thread_) {
    BlockSignals block;
    std::thread([self = shared_from_this()] { self->main(); }).detach();
    has_thread_ = true;
  }
  queue_.push_back(std::move(task));
  const u64 sequence = submitted_.load(std::memory_order_relaxed) + 1;
  submitted_.store(sequence, std::memory_order_release);
  lock.unlock();
  work_.notify_one();
  return sequence;
}

void Stream::wait(u64 sequence) {
  if (finished(sequence)) return;
  std::unique_lock lock(mutex_);
  ++num_waiting_;
  progress_.wait(lock, [&] { return finished(sequence); });
  --num_waiting_;
}

bool Stream::wait(u64 sequence, Clock::duration patience) {
  if (finished(sequence)) return true;
  std::unique_lock lock(mutex_);
  ++num_waiting_;
  const bool done = progress_.wait_for(lock, patience, [&] { return finished(sequence); });
  --num_waiting_;
  return done;
}

void Stream::cancel(FaultPtr fault) {
  std::unique_lock lock(mutex_);
  cancelled_until_ = submitted_.load(std::memory_order_relaxed);
  cancelled_by_ = std::move(fault);
}

void Stream::close(bool discard) {
  std::deque<Task> discarded;
  {
    std::unique_lock lock(mutex_);
    closing_ = true;
    if (discard) discarded.swap(queue_);
    if (!has_thread_) thread_ended_ = true;
  }
  work_.notify_one();
}

bool Stream::wait_closed(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  ++num_waiting_;
  const bool ended = progress_.wait_until(lock, deadline, [&] { return thread_ended_; });
  --num_waiting_;
  return ended;
}

bool Stream::closed() const {
  std::unique_lock lock(mutex_);
  return thread_ended_;
}

void Stream::execute(Task& task, u64 sequence) {
  for (const Dependency& after : task.after) {
    after.point.stream->wait(after.point.sequence);
    faults.take_over(after.point.stream->faults, after.implicit);
  }
  if (!task.run) return;
  if (!task.always) {
    std::unique_lock lock(mutex_);
    if (sequence <= cancelled_until_) return faults.add(cancelled_by_);
  }
  LaunchResult result;
  // Not catch (...): a host function may end its thread by force (pthread_exit when an interpreter
  // shuts down), and that unwinding must not be stopped.
  try {
    result = task.run();
  } catch (const std::exception& error) {
    result = {FaultKind::kAborted, std::string("out of host resources: ") + error.what()};
  }
  if (result.fault != FaultKind::kNone) faults.add(on_fault_(result, task.submitter));
}

void Stream::main() {
  is_stream_thread = true;
  for (u64 sequence = 1;; ++sequence) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [&] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) break;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    execute(task, sequence);
    task = {};  // what it holds is released before anybody sees it finished
    std::unique_lock lock(mutex_);
    completed_.store(sequence, std::memory_order_release);
    if (num_waiting_ > 0) progress_.notify_all();
  }
  std::unique_lock lock(mutex_);
  thread_ended_ = true;
  progress_.notify_all();
}

}  // namespace vdev::hip
