#include "hip/capture.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "hip/api.h"
#include "hip/event.h"
#include "hip/graph.h"

namespace vdev::hip {
namespace {

// What this thread wants of potentially unsafe calls (hipThreadExchangeStreamCaptureMode).
thread_local hipStreamCaptureMode thread_mode = hipStreamCaptureModeGlobal;

void merge_frontier(StreamCapture& capture, const std::vector<std::shared_ptr<Node>>& nodes) {
  for (const auto& node : nodes) {
    if (std::find(capture.frontier.begin(), capture.frontier.end(), node) ==
        capture.frontier.end()) {
      capture.frontier.push_back(node);
    }
  }
}

// True when every node of the session's graph that nothing depends on is in the frontier of the
// stream the capture began on: forked streams have been joined.
bool is_joined(const CaptureSession& session, const StreamCapture& origin) {
  std::unordered_set<const Node*> has_successor;
  for (const auto& node : session.graph->nodes) {
    for (const auto& dependency : node->dependencies) has_successor.insert(dependency.get());
  }
  return std::all_of(session.graph->nodes.begin(), session.graph->nodes.end(), [&](const auto& n) {
    return has_successor.contains(n.get()) ||
           std::find(origin.frontier.begin(), origin.frontier.end(), n) != origin.frontier.end();
  });
}

void invalidate(CaptureSession& session) { session.invalidated = true; }

// With capture_mutex held: streams forget the session, and it is no longer active.
void end_session(Runtime& runtime, const std::shared_ptr<CaptureSession>& session,
                 const std::vector<std::shared_ptr<Stream>>& streams) {
  session->ended = true;
  std::erase(runtime.captures, session);
  runtime.num_captures = static_cast<int>(runtime.captures.size());
  for (const auto& stream : streams) {
    if (stream->capture.session == session) stream->capture = {};
  }
}

hipStreamCaptureStatus status_of(const CaptureSession* session) {
  if (session == nullptr) return hipStreamCaptureStatusNone;
  return session->invalidated ? hipStreamCaptureStatusInvalidated : hipStreamCaptureStatusActive;
}

hipError_t begin(hipStream_t stream, hipStreamCaptureMode mode, const hipGraph_t* into,
                 const hipGraphNode_t* dependencies, size_t num_dependencies) {
  return api([&](Runtime& runtime) {
    require(mode >= hipStreamCaptureModeGlobal && mode <= hipStreamCaptureModeRelaxed);
    const auto s = runtime.stream(stream);
    // The null stream waits for every other one: nothing else could run during its capture.
    require(s != runtime.null_stream(), hipErrorStreamCaptureUnsupported);
    auto session = std::make_shared<CaptureSession>();
    session->graph = into == nullptr ? make_graph(runtime) : runtime.graphs.get(*into);
    auto frontier = node_list(runtime, dependencies, num_dependencies);
    for (const auto& node : frontier) require(node->graph == session->graph.get());
    static std::atomic<u64> next_id{1};
    session->id = next_id++;
    session->mode = mode;
    session->owner = std::this_thread::get_id();
    session->origin = s->id;
    session->owns_graph = into == nullptr;
    std::unique_lock lock(runtime.capture_mutex);
    require(s->capture.session == nullptr, hipErrorIllegalState);
    s->capture = {session, std::move(frontier)};
    runtime.captures.push_back(session);
    runtime.num_captures = static_cast<int>(runtime.captures.size());
    return hipSuccess;
  });
}

}  // namespace

bool Runtime::capturing(const Stream& stream) {
  if (num_captures.load(std::memory_order_acquire) == 0) return false;
  std::unique_lock lock(capture_mutex);
  return stream.capture.session != nullptr;
}

void Runtime::forbid_in_capture() {
  if (num_captures.load(std::memory_order_acquire) == 0) return;
  if (thread_mode == hipStreamCaptureModeRelaxed) return;
  std::unique_lock lock(capture_mutex);
  bool forbidden = false;
  for (const auto& session : captures) {
    const bool own = session->owner == std::this_thread::get_id();
    const bool foreign =
        thread_mode == hipStreamCaptureModeGlobal && session->mode == hipStreamCaptureModeGlobal;
    if (session->mode != hipStreamCaptureModeRelaxed && (own || foreign)) {
      invalidate(*session);
      forbidden = true;
    }
  }
  require(!forbidden, hipErrorStreamCaptureUnsupported);
}

void Runtime::forbid_legacy_in_capture() {
  if (num_captures.load(std::memory_order_acquire) == 0) return;
  std::unique_lock lock(capture_mutex);
  bool forbidden = false;
  for (const auto& stream : live_streams()) {
    if (stream->blocking() && stream->capture.session != nullptr) {
      invalidate(*stream->capture.session);
      forbidden = true;
    }
  }
  require(!forbidden, hipErrorStreamCaptureImplicit);
}

bool capture_command(Runtime& runtime, Stream& stream, Command& command) {
  std::unique_lock lock(runtime.capture_mutex);
  StreamCapture& capture = stream.capture;
  if (capture.session == nullptr) return false;
  require(!capture.session->invalidated, hipErrorStreamCaptureInvalidated);
  auto node = add_node(runtime, *capture.session->graph, std::move(command), capture.frontier);
  capture.frontier = {std::move(node)};
  return true;
}

bool capture_event_record(Runtime& runtime, Stream& stream, Event& event) {
  std::unique_lock lock(runtime.capture_mutex);
  const StreamCapture& capture = stream.capture;
  if (capture.session == nullptr) {
    event.captured_in = nullptr;
    event.captured_nodes.clear();
    return false;
  }
  require(!capture.session->invalidated, hipErrorStreamCaptureInvalidated);
  event.captured_in = capture.session;
  event.captured_nodes = capture.frontier;
  return true;
}

bool capture_event_wait(Runtime& runtime, Stream& stream, Event& event) {
  std::unique_lock lock(runtime.capture_mutex);
  StreamCapture& capture = stream.capture;
  const std::shared_ptr<CaptureSession>& from = event.captured_in;
  if (capture.session == nullptr && from == nullptr) return false;
  if (from == nullptr) {
    if (last_record(event) != nullptr) {
      invalidate(*capture.session);
      refuse(hipErrorStreamCaptureIsolation);
    }
    return true;  // never recorded: nothing to wait for
  }
  require(!from->ended, hipErrorCapturedEvent);
  require(!from->invalidated, hipErrorStreamCaptureInvalidated);
  if (capture.session != nullptr && capture.session != from) {
    invalidate(*capture.session);
    invalidate(*from);
    refuse(hipErrorStreamCaptureMerge);
  }
  if (&stream == runtime.null_stream().get()) {
    invalidate(*from);
    refuse(hipErrorStreamCaptureImplicit);
  }
  capture.session = from;  // the stream joins the capture
  merge_frontier(capture, event.captured_nodes);
  return true;
}

void forbid_captured_event(Runtime& runtime, const Event& event) {
  std::unique_lock lock(runtime.capture_mutex);
  if (event.captured_in == nullptr) return;
  if (!event.captured_in->ended) invalidate(*event.captured_in);
  refuse(hipErrorCapturedEvent);
}

void forbid_capturing_stream(Runtime& runtime, const Stream& stream) {
  if (runtime.num_captures.load(std::memory_order_acquire) == 0) return;
  std::unique_lock lock(runtime.capture_mutex);
  if (stream.capture.session == nullptr) return;
  invalidate(*stream.capture.session);
  refuse(hipErrorStreamCaptureUnsupported);
}

void abandon_capture(Runtime& runtime, Stream& stream) {
  std::unique_lock lock(runtime.capture_mutex);
  const auto session = stream.capture.session;
  if (session == nullptr) return;
  if (session->origin == stream.id) {
    end_session(runtime, session, runtime.live_streams());
    if (session->owns_graph) destroy_graph(runtime, session->graph);
  } else {
    invalidate(*session);
    stream.capture = {};
  }
}

HIP_API hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode) {
  return begin(stream, mode, nullptr, nullptr, 0);
}

HIP_API hipStreamBeginCapture_spt(hipStream_t stream, hipStreamCaptureMode mode) {
  return begin(per_thread(stream), mode, nullptr, nullptr, 0);
}

HIP_API hipStreamBeginCaptureToGraph(hipStream_t stream, hipGraph_t graph,
                                     const hipGraphNode_t* dependencies, const void* edges,
                                     size_t num_dependencies, hipStreamCaptureMode mode) {
  if (edges != nullptr) return note_result(hipErrorNotSupported);
  return begin(stream, mode, &graph, dependencies, num_dependencies);
}

HIP_API hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
  return api([&](Runtime& runtime) {
    require(writable(graph));
    *graph = nullptr;
    const auto s = runtime.stream(stream);
    std::unique_lock lock(runtime.capture_mutex);
    const auto session = s->capture.session;
    require(session != nullptr, hipErrorIllegalState);
    require(session->origin == s->id, hipErrorStreamCaptureUnmatched);
    require(session->mode == hipStreamCaptureModeRelaxed ||
                session->owner == std::this_thread::get_id(),
            hipErrorStreamCaptureWrongThread);
    const bool joined = is_joined(*session, s->capture);
    end_session(runtime, session, runtime.live_streams());
    if (session->owns_graph && (session->invalidated || !joined)) {
      destroy_graph(runtime, session->graph);
    }
    require(!session->invalidated, hipErrorStreamCaptureInvalidated);
    require(joined, hipErrorStreamCaptureUnjoined);
    *graph = session->graph->handle;
    return hipSuccess;
  });
}

HIP_API hipStreamEndCapture_spt(hipStream_t stream, hipGraph_t* graph) {
  return hipStreamEndCapture(per_thread(stream), graph);
}

HIP_API hipStreamGetCaptureInfo_v2(hipStream_t stream, hipStreamCaptureStatus* status,
                                   unsigned long long* id, hipGraph_t* graph,
                                   const hipGraphNode_t** dependencies, size_t* num_dependencies) {
  return api([&](Runtime& runtime) {
    require(writable(status));
    const auto s = runtime.stream(stream);
    std::unique_lock lock(runtime.capture_mutex);
    const StreamCapture& capture = s->capture;
    *status = status_of(capture.session.get());
    if (wanted(id)) *id = capture.session == nullptr ? 0 : capture.session->id;
    if (wanted(graph)) {
      *graph = capture.session == nullptr ? nullptr : capture.session->graph->handle;
    }
    // The array stays valid until the same thread asks again.
    static thread_local std::vector<hipGraphNode_t> handles;
    handles.clear();
    for (const auto& node : capture.frontier) handles.push_back(node->handle);
    if (wanted(dependencies)) *dependencies = handles.data();
    if (wanted(num_dependencies)) *num_dependencies = handles.size();
    return hipSuccess;
  });
}

HIP_API hipStreamGetCaptureInfo_v2_spt(hipStream_t stream, hipStreamCaptureStatus* status,
                                       unsigned long long* id, hipGraph_t* graph,
                                       const hipGraphNode_t** dependencies,
                                       size_t* num_dependencies) {
  return hipStreamGetCaptureInfo_v2(per_thread(stream), status, id, graph, dependencies,
                                    num_dependencies);
}

HIP_API hipStreamGetCaptureInfo(hipStream_t stream, hipStreamCaptureStatus* status,
                                unsigned long long* id) {
  return hipStreamGetCaptureInfo_v2(stream, status, id, nullptr, nullptr, nullptr);
}

HIP_API hipStreamGetCaptureInfo_spt(hipStream_t stream, hipStreamCaptureStatus* status,
                                    unsigned long long* id) {
  return hipStreamGetCaptureInfo(per_thread(stream), status, id);
}

HIP_API hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status) {
  return hipStreamGetCaptureInfo(stream, status, nullptr);
}

HIP_API hipStreamIsCapturing_spt(hipStream_t stream, hipStreamCaptureStatus* status) {
  return hipStreamGetCaptureInfo(per_thread(stream), status, nullptr);
}

HIP_API hipStreamUpdateCaptureDependencies(hipStream_t stream, hipGraphNode_t* dependencies,
                                           size_t num_dependencies, unsigned flags) {
  return api([&](Runtime& runtime) {
    require(flags <= hipStreamSetCaptureDependencies);
    const auto s = runtime.stream(stream);
    auto nodes = node_list(runtime, dependencies, num_dependencies);
    std::unique_lock lock(runtime.capture_mutex);
    const auto session = s->capture.session;
    require(session != nullptr, hipErrorIllegalState);
    require(!session->invalidated, hipErrorStreamCaptureInvalidated);
    for (const auto& node : nodes) require(node->graph == session->graph.get());
    if (flags == hipStreamSetCaptureDependencies) {
      s->capture.frontier = std::move(nodes);
    } else {
      merge_frontier(s->capture, nodes);
    }
    return hipSuccess;
  });
}

HIP_API hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode) {
  return stateless_api([&] {
    if (!writable(mode) || *mode < hipStreamCaptureModeGlobal ||
        *mode > hipStreamCaptureModeRelaxed) {
      return hipErrorInvalidValue;
    }
    *mode = std::exchange(thread_mode, *mode);
    return hipSuccess;
  });
}

}  // namespace vdev::hip
