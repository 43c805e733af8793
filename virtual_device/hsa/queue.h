// A queue of AQL packets, and the thread that processes them in their order.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "hsa/system.h"

namespace vdev::hsa {

using QueueErrorHandler = void (*)(Status status, QueueHeader* queue, void* data);

class Queue : public std::enable_shared_from_this<Queue> {
 public:
  struct Places {
    Allocation block, ring;  // the QueueBlock and its packets: memory that the device sees
    SignalBlock* doorbell = nullptr;
  };

  Queue(System& system, u32 gpu, const Places& places, u32 num_packets, u32 type,
        QueueErrorHandler on_error, void* data);

  QueueBlock& block() const { return *reinterpret_cast<QueueBlock*>(places_.block.base); }
  const Places& places() const { return places_; }

  void start();  // its thread
  void ring();   // the doorbell: packets up to the first invalid one are ready
  // Waits until nothing is left to do; false: the deadline came first.
  bool drain(Signals::Clock::time_point deadline);
  void close();  // ends the packet that is being processed, as a GPU does
  bool on_own_thread();

 private:
  void main();
  bool process_next();  // false: the next packet is not there yet
  void process(std::byte* packet, u64 index);
  void dispatch(const DispatchPacket& packet, u64 address);
  void finish(Signal completion, u64 start_ns);
  // Prints what happened and tells who made the queue, as a GPU does: nothing runs any more.
  void fail(Status status, const std::string& report);
  bool wait_for(const std::function<bool()>& ready);  // false: the queue closes

  System& system_;
  const u32 gpu_;
  const Places places_;
  const QueueErrorHandler on_error_;
  void* const data_;
  std::mutex mutex_;
  std::condition_variable rung_, idle_changed_;
  u64 num_rings_ = 0;
  bool idle_ = true, ended_ = false;
  std::thread::id thread_;
  std::atomic<bool> closing_{false}, failed_{false};
};

}  // namespace vdev::hsa
