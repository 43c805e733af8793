// What the handles of the API stand for.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "core/code_object.h"
#include "core/device.h"
#include "core/transfer.h"
#include "hip/hip_abi.h"
#include "hip/stream_queue.h"

namespace vdev::hip {

struct Graph;
struct Node;

// One recording of an event: done when `at` is reached.
struct EventRecord {
  Point at;
  std::atomic<i64> time_ns{0};  // steady clock, set when the stream gets there
};

struct Event {
  explicit Event(u32 flags) : flags(flags) {}

  hipEvent_t handle{};
  const u32 flags;
  std::mutex mutex;                             // guards `last`
  std::shared_ptr<EventRecord> last;            // null: never recorded
  std::shared_ptr<CaptureSession> captured_in;  // Runtime::capture_mutex guards these two
  std::vector<std::shared_ptr<Node>> captured_nodes;
};

struct Function {
  hipFunction_t handle{};
  std::shared_ptr<CodeObject> code;
  const Kernel* kernel = nullptr;
  hipLibrary_t library{};  // null when it comes from a module
};

struct Module {
  hipModule_t handle{};
  std::shared_ptr<CodeObject> code;
  hipLibrary_t library{};
  std::mutex mutex;  // guards `functions`
  std::map<const Kernel*, std::shared_ptr<Function>> functions;
};

struct Library {
  hipLibrary_t handle{};
  std::shared_ptr<Module> module;
};

struct MemPool {
  hipMemPool_t handle{};
  u64 max_bytes = 0;  // 0: whatever the device has
  std::atomic<u64> release_threshold{0}, used{0}, used_high{0};
  std::atomic<int> reuse[3] = {1, 1, 1};
};

// Work for a stream or a node of a graph. The order is that of hipGraphNodeType.
struct KernelCommand {
  std::shared_ptr<Function> function;
  Launch launch;
};
struct CopyCommand : Copy {
  hipMemcpyKind kind = hipMemcpyDefault;
};
using FillCommand = FillRange;
struct HostCommand {
  hipHostFn_t function = nullptr;
  void* user_data = nullptr;
};
struct ChildCommand {
  std::shared_ptr<Graph> graph;
};
struct EmptyCommand {};
struct EventWaitCommand {
  std::shared_ptr<Event> event;
};
struct EventRecordCommand {
  std::shared_ptr<Event> event;
};
using Command = std::variant<KernelCommand, CopyCommand, FillCommand, HostCommand, ChildCommand,
                             EmptyCommand, EventWaitCommand, EventRecordCommand>;

struct Node {
  hipGraphNode_t handle{};
  Command command;
  std::vector<std::shared_ptr<Node>> dependencies;
  const Graph* graph = nullptr;      // the graph that owns this node
  hipGraphNode_t original{};         // the node that this one was cloned from
  std::vector<void*> kernel_params;  // what hipGraphKernelNodeGetParams hands out

  hipGraphNodeType type() const { return static_cast<hipGraphNodeType>(command.index()); }
};

struct Graph {
  hipGraph_t handle{};
  std::vector<std::shared_ptr<Node>> nodes;  // in the order of their creation
};

// An executable copy of a graph: nodes in an order that respects the dependencies, child graphs
// expanded in place.
struct GraphStep {
  hipGraphNode_t node{};
  Command command;
  std::vector<u32> after;  // indices of earlier steps
  bool enabled = true;
};
using GraphPlan = std::vector<GraphStep>;

struct GraphExec {
  hipGraphExec_t handle{};
  unsigned long long flags = 0;
  std::mutex mutex;                       // guards the following two
  std::shared_ptr<const GraphPlan> plan;  // replaced, never changed: launches in flight hold it
  Point last_launch;                      // launches of one executable graph never overlap
};

struct CaptureSession {
  u64 id = 0;
  hipStreamCaptureMode mode = hipStreamCaptureModeGlobal;
  std::thread::id owner;
  std::shared_ptr<Graph> graph;
  u64 origin = 0;          // id of the stream it began on
  bool owns_graph = true;  // the capture made the graph
  bool invalidated = false, ended = false;
};

}  // namespace vdev::hip
