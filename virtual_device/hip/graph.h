// Building graphs and turning them into executable plans.
#pragma once

#include <optional>
#include <span>

#include "hip/runtime.h"

namespace vdev::hip {

std::shared_ptr<Graph> make_graph(Runtime& runtime);
// Takes the graph and its nodes out of the tables.
void destroy_graph(Runtime& runtime, const std::shared_ptr<Graph>& graph);

std::shared_ptr<Node> add_node(Runtime& runtime, Graph& graph, Command command,
                               std::vector<std::shared_ptr<Node>> dependencies);
std::vector<std::shared_ptr<Node>> node_list(Runtime& runtime, const hipGraphNode_t* handles,
                                             size_t count);

// Deep copy; every node remembers its original.
std::shared_ptr<Graph> clone_graph(Runtime& runtime, const Graph& graph);

// An order that respects the dependencies, earliest created first among the possible ones; nothing
// when the dependencies form a cycle.
std::optional<std::vector<std::shared_ptr<Node>>> topological_order(const Graph& graph);
// Refuses a graph with a cycle.
std::shared_ptr<GraphPlan> make_plan(const Graph& graph);

// Commands from the parameters of nodes.
KernelCommand kernel_command(Runtime& runtime, const hipKernelNodeParams* params);
CopyCommand copy_command(Runtime& runtime, void* dst, const void* src, size_t bytes,
                         hipMemcpyKind kind);
FillCommand fill_command(Runtime& runtime, const hipMemsetParams* params);
HostCommand host_command(const hipHostNodeParams* params);

}  // namespace vdev::hip
