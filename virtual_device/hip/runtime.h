// The state behind the API: one device, its streams and every live handle.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hip/handle_table.h"
#include "hip/objects.h"
#include "hip/stream_queue.h"
#include "host/process.h"

namespace vdev::hip {

inline constexpr bool kTold = true;  // of Runtime::tell

class Runtime {
 public:
  // Created by the first call. Null in a child of fork(): threads do not survive one, so a child
  // cannot use the device of its parent (as on a GPU).
  static Runtime* get();

  Process& process = Process::get();
  Device& device = process.device;
  HandleTable<hipStream_t, Stream> streams{0x51};
  HandleTable<hipEvent_t, Event> events{0x52};
  HandleTable<hipModule_t, Module> modules{0x53};
  HandleTable<hipFunction_t, Function> functions{0x54};
  HandleTable<hipLibrary_t, Library> libraries{0x55};
  HandleTable<hipMemPool_t, MemPool> pools{0x56};
  HandleTable<hipGraph_t, Graph> graphs{0x57};
  HandleTable<hipGraphNode_t, Node> nodes{0x58};
  HandleTable<hipGraphExec_t, GraphExec> graph_execs{0x59};

  // ---- streams -------------------------------------------------------------------------------
  // The stream of a handle: 0 and 1 are the null stream, 2 the calling thread's own one.
  std::shared_ptr<Stream> stream(hipStream_t handle);
  const std::shared_ptr<Stream>& null_stream() const { return null_stream_; }
  std::shared_ptr<Stream> make_stream(u32 flags, int priority);
  void destroy_stream(const std::shared_ptr<Stream>& stream);
  // Every stream but the null stream.
  std::vector<std::shared_ptr<Stream>> live_streams() const;

  // Appends a task with the implicit order of the null stream: work there waits for earlier work
  // of every blocking stream, and later work of blocking streams waits for it.
  Point submit(const std::shared_ptr<Stream>& stream, Task task);
  // Waits for work on the device. An interruption of the process (SIGINT) during the wait aborts
  // the launches that are running and cancels those that are queued, so that the application can
  // answer it.
  void wait(const Point& point);
  // Waits, and tells the calling thread of the faults that it has not been told of.
  hipError_t synchronize(const Point& point);
  hipError_t synchronize(const std::shared_ptr<Stream>& stream);
  // The same for every stream.
  hipError_t synchronize_device();
  // Waits for every stream and tells of nothing: what frees memory must not swallow a fault.
  void drain();
  // The error of faults in these streams that the calling thread has not been told of, with their
  // report. Only who synchronizes is `told`.
  hipError_t tell(const std::vector<const Stream*>& streams, bool told);
  // Nobody is told of what has faulted until now, but for those who queued it.
  void forget_faults();

  // Captures the command if the stream is capturing, else submits it. `wait`: a synchronous call.
  hipError_t enqueue(const std::shared_ptr<Stream>& stream, Command command, bool wait = false);

  // ---- capture (capture.cc) ------------------------------------------------------------------
  // Refuses calls that are not permitted while this thread or, in global mode, any thread is
  // capturing, and invalidates the captures concerned.
  void forbid_in_capture();
  // Refuses to use the null stream while a blocking stream is capturing.
  void forbid_legacy_in_capture();
  bool capturing(const Stream& stream);
  std::mutex capture_mutex;
  std::vector<std::shared_ptr<CaptureSession>> captures;  // active ones, under capture_mutex
  std::atomic<int> num_captures{0};

  // ---- memory pools (pool.cc) ----------------------------------------------------------------
  std::shared_ptr<MemPool> default_pool, current_pool;  // current_pool under pool_mutex
  std::mutex pool_mutex;
  struct PoolBlock {
    std::shared_ptr<MemPool> pool;
    u64 bytes = 0;
    bool freeing = false;  // hipFreeAsync was called
  };
  std::map<u64, PoolBlock> pool_blocks;  // by address, under pool_mutex
  // Frees an allocation of any origin; false when `address` is not the base of one.
  bool release(u64 address);

  // ---- null device (options.cc) --------------------------------------------------------------
  // Launches are accepted and never executed: they complete in stream order, or inside the call.
  enum class NullLaunches : u32 { kOff, kInStreamOrder, kInCall };
  std::atomic<NullLaunches> null_launches{NullLaunches::kOff};

  // ---- reports -------------------------------------------------------------------------------
  // `set_report` is of an error of the calling thread, and lasts until its next call;
  // `report` of that, else of the latest error of any thread.
  void set_report(std::string text);
  std::string report() const;
  static void begin_call();

 private:
  Runtime();
  static Runtime* create();
  static void shut_down();
  FaultPtr on_fault(const LaunchResult& result, u64 submitter);
  void cancel(const std::string& why);  // device work that is queued

  std::shared_ptr<Stream> null_stream_;
  mutable std::mutex streams_mutex_;
  std::vector<std::shared_ptr<Stream>> live_;  // all but the null stream
  std::atomic<u64> next_stream_id_{0};
  FaultLog orphans_;  // of streams that are gone: any memory may be of theirs
  mutable std::mutex report_mutex_;
  std::string report_;
};

// Runs one command to its end on the calling (stream's) thread.
LaunchResult run(Runtime& runtime, const Command& command);

}  // namespace vdev::hip
