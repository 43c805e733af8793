// Adding nodes to a graph, reading and replacing their parameters.
#include <utility>

#include "hip/api.h"
#include "hip/function.h"
#include "hip/graph.h"
#include "hip/launch.h"
#include "hip/transfer.h"

namespace vdev::hip {
namespace {

template <class MakeCommand>
hipError_t add(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* dependencies,
               size_t count, MakeCommand&& make_command) {
  return api([&](Runtime& runtime) {
    require(writable(node));
    const auto g = runtime.graphs.get(graph);
    auto nodes = node_list(runtime, dependencies, count);
    *node = add_node(runtime, *g, make_command(runtime), std::move(nodes))->handle;
    return hipSuccess;
  });
}

// The command of a node, which must be of that kind.
template <class T>
T& command_of(Node& node) {
  T* command = std::get_if<T>(&node.command);
  require(command != nullptr);
  return *command;
}

template <class T, class MakeCommand>
hipError_t set(hipGraphNode_t node, MakeCommand&& make_command) {
  return api([&](Runtime& runtime) {
    const auto n = runtime.nodes.get(node, hipErrorInvalidValue);
    command_of<T>(*n) = make_command(runtime);
    return hipSuccess;
  });
}

template <class T, class Read>
hipError_t get(hipGraphNode_t node, Read&& read) {
  return api([&](Runtime& runtime) {
    const auto n = runtime.nodes.get(node, hipErrorInvalidValue);
    read(*n, command_of<T>(*n));
    return hipSuccess;
  });
}

}  // namespace

KernelCommand kernel_command(Runtime& runtime, const hipKernelNodeParams* params) {
  require(readable(params));
  auto function = runtime.functions.get(params->func, hipErrorInvalidDeviceFunction);
  const dim3 grid = params->gridDim, group = params->blockDim;
  const LaunchShape shape{{grid.x, grid.y, grid.z},
                          {group.x, group.y, group.z},
                          params->sharedMemBytes,
                          false,
                          hipErrorInvalidConfiguration};
  return make_kernel(runtime, std::move(function), shape, params->kernelParams, params->extra);
}

CopyCommand copy_command(Runtime& runtime, void* dst, const void* src, size_t bytes,
                         hipMemcpyKind kind) {
  return make_copy(runtime, dst, bytes, 0, src, bytes, 0, bytes, 1, 1, kind);
}

FillCommand fill_command(Runtime& runtime, const hipMemsetParams* params) {
  require(readable(params));
  return make_fill(runtime, params->dst, params->pitch, 0, params->value, params->elementSize,
                   params->width, params->height, 1);
}

HostCommand host_command(const hipHostNodeParams* params) {
  require(readable(params) && params->fn != nullptr);
  return {params->fn, params->userData};
}

HIP_API hipGraphAddKernelNode(hipGraphNode_t* node, hipGraph_t graph,
                              const hipGraphNode_t* dependencies, size_t count,
                              const hipKernelNodeParams* params) {
  return add(node, graph, dependencies, count,
             [&](Runtime& runtime) { return kernel_command(runtime, params); });
}

HIP_API hipGraphKernelNodeSetParams(hipGraphNode_t node, const hipKernelNodeParams* params) {
  return set<KernelCommand>(node,
                            [&](Runtime& runtime) { return kernel_command(runtime, params); });
}

HIP_API hipGraphKernelNodeGetParams(hipGraphNode_t node, hipKernelNodeParams* params) {
  return get<KernelCommand>(node, [&](Node& n, KernelCommand& command) {
    require(writable(params));
    Launch& launch = command.launch;
    n.kernel_params.clear();  // points into the node's own copy of the arguments
    for (const KernelArg& arg : launch.kernel->args) {
      if (!is_hidden(arg)) n.kernel_params.push_back(launch.kernarg.data() + arg.offset);
    }
    *params = {};
    params->func = command.function->handle;
    const auto dims = [](const Dim3& d) { return dim3{d.x, d.y, d.z}; };
    params->gridDim = dims(launch.num_workgroups);
    params->blockDim = dims(launch.workgroup_size);
    params->sharedMemBytes = launch.dynamic_lds_bytes;
    params->kernelParams = n.kernel_params.empty() ? nullptr : n.kernel_params.data();
  });
}

HIP_API hipGraphAddMemcpyNode(hipGraphNode_t* node, hipGraph_t graph,
                              const hipGraphNode_t* dependencies, size_t count,
                              const hipMemcpy3DParms* params) {
  return add(node, graph, dependencies, count,
             [&](Runtime& runtime) { return make_copy(runtime, params); });
}

HIP_API hipGraphMemcpyNodeSetParams(hipGraphNode_t node, const hipMemcpy3DParms* params) {
  return set<CopyCommand>(node, [&](Runtime& runtime) { return make_copy(runtime, params); });
}

HIP_API hipGraphMemcpyNodeGetParams(hipGraphNode_t node, hipMemcpy3DParms* params) {
  return get<CopyCommand>(node, [&](Node&, CopyCommand& copy) {
    require(writable(params));
    const auto pitched = [&](const Side& side) {
      const u64 rows = side.pitch == 0 ? 0 : side.slice / side.pitch;
      return hipPitchedPtr{reinterpret_cast<void*>(side.address), side.pitch, copy.width, rows};
    };
    *params = {};
    params->dstPtr = pitched(copy.dst);
    params->srcPtr = pitched(copy.src);
    params->extent = {copy.width, copy.height, copy.depth};
    params->kind = copy.kind;
  });
}

HIP_API hipGraphAddMemcpyNode1D(hipGraphNode_t* node, hipGraph_t graph,
                                const hipGraphNode_t* dependencies, size_t count, void* dst,
                                const void* src, size_t bytes, hipMemcpyKind kind) {
  return add(node, graph, dependencies, count,
             [&](Runtime& runtime) { return copy_command(runtime, dst, src, bytes, kind); });
}

HIP_API hipGraphMemcpyNodeSetParams1D(hipGraphNode_t node, void* dst, const void* src, size_t bytes,
                                      hipMemcpyKind kind) {
  return set<CopyCommand>(
      node, [&](Runtime& runtime) { return copy_command(runtime, dst, src, bytes, kind); });
}

HIP_API hipGraphAddMemsetNode(hipGraphNode_t* node, hipGraph_t graph,
                              const hipGraphNode_t* dependencies, size_t count,
                              const hipMemsetParams* params) {
  return add(node, graph, dependencies, count,
             [&](Runtime& runtime) { return fill_command(runtime, params); });
}

HIP_API hipGraphMemsetNodeSetParams(hipGraphNode_t node, const hipMemsetParams* params) {
  return set<FillCommand>(node, [&](Runtime& runtime) { return fill_command(runtime, params); });
}

HIP_API hipGraphMemsetNodeGetParams(hipGraphNode_t node, hipMemsetParams* params) {
  return get<FillCommand>(node, [&](Node&, FillCommand& fill) {
    require(writable(params));
    *params = {};
    params->dst = reinterpret_cast<void*>(fill.dst.address);
    params->elementSize = fill.element_bytes;
    params->width = fill.width;
    params->height = fill.height;
    params->pitch = fill.dst.pitch;
    params->value = fill.value;
  });
}

HIP_API hipGraphAddHostNode(hipGraphNode_t* node, hipGraph_t graph,
                            const hipGraphNode_t* dependencies, size_t count,
                            const hipHostNodeParams* params) {
  return add(node, graph, dependencies, count, [&](Runtime&) { return host_command(params); });
}

HIP_API hipGraphHostNodeSetParams(hipGraphNode_t node, const hipHostNodeParams* params) {
  return set<HostCommand>(node, [&](Runtime&) { return host_command(params); });
}

HIP_API hipGraphHostNodeGetParams(hipGraphNode_t node, hipHostNodeParams* params) {
  return get<HostCommand>(node, [&](Node&, HostCommand& host) {
    require(writable(params));
    *params = {host.function, host.user_data};
  });
}

HIP_API hipGraphAddEmptyNode(hipGraphNode_t* node, hipGraph_t graph,
                             const hipGraphNode_t* dependencies, size_t count) {
  return add(node, graph, dependencies, count, [](Runtime&) { return EmptyCommand{}; });
}

HIP_API hipGraphAddChildGraphNode(hipGraphNode_t* node, hipGraph_t graph,
                                  const hipGraphNode_t* dependencies, size_t count,
                                  hipGraph_t child) {
  return add(node, graph, dependencies, count, [&](Runtime& runtime) {
    const auto original = runtime.graphs.get(child);
    require(child != graph);
    return ChildCommand{clone_graph(runtime, *original)};
  });
}

HIP_API hipGraphChildGraphNodeGetGraph(hipGraphNode_t node, hipGraph_t* graph) {
  return get<ChildCommand>(node, [&](Node&, ChildCommand& child) {
    require(writable(graph));
    *graph = child.graph->handle;
  });
}

HIP_API hipGraphAddEventRecordNode(hipGraphNode_t* node, hipGraph_t graph,
                                   const hipGraphNode_t* dependencies, size_t count,
                                   hipEvent_t event) {
  return add(node, graph, dependencies, count,
             [&](Runtime& runtime) { return EventRecordCommand{runtime.events.get(event)}; });
}

HIP_API hipGraphEventRecordNodeSetEvent(hipGraphNode_t node, hipEvent_t event) {
  return set<EventRecordCommand>(
      node, [&](Runtime& runtime) { return EventRecordCommand{runtime.events.get(event)}; });
}

HIP_API hipGraphEventRecordNodeGetEvent(hipGraphNode_t node, hipEvent_t* event) {
  return get<EventRecordCommand>(node, [&](Node&, EventRecordCommand& command) {
    require(writable(event));
    *event = command.event->handle;
  });
}

HIP_API hipGraphAddEventWaitNode(hipGraphNode_t* node, hipGraph_t graph,
                                 const hipGraphNode_t* dependencies, size_t count,
                                 hipEvent_t event) {
  return add(node, graph, dependencies, count,
             [&](Runtime& runtime) { return EventWaitCommand{runtime.events.get(event)}; });
}

HIP_API hipGraphEventWaitNodeSetEvent(hipGraphNode_t node, hipEvent_t event) {
  return set<EventWaitCommand>(
      node, [&](Runtime& runtime) { return EventWaitCommand{runtime.events.get(event)}; });
}

HIP_API hipGraphEventWaitNodeGetEvent(hipGraphNode_t node, hipEvent_t* event) {
  return get<EventWaitCommand>(node, [&](Node&, EventWaitCommand& command) {
    require(writable(event));
    *event = command.event->handle;
  });
}

}  // namespace vdev::hip
