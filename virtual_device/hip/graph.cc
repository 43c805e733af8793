#include "hip/graph.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "hip/api.h"

namespace vdev::hip {
namespace {

using NodeIndices = std::unordered_map<const Node*, std::vector<u32>>;

// Appends the steps of `graph`, which run after the steps `before`.
void append_steps(const Graph& graph, const std::vector<u32>& before, GraphPlan& plan) {
  const auto order = topological_order(graph);
  require(order.has_value());
  NodeIndices last_steps;  // of each node: a child graph has none of its own but its end
  for (const auto& node : *order) {
    std::vector<u32> after = node->dependencies.empty() ? before : std::vector<u32>{};
    for (const auto& dependency : node->dependencies) {
      const auto& steps = last_steps[dependency.get()];
      after.insert(after.end(), steps.begin(), steps.end());
    }
    if (const auto* child = std::get_if<ChildCommand>(&node->command)) {
      const auto first = static_cast<u32>(plan.size());
      append_steps(*child->graph, after, plan);
      for (u32 i = first; i < plan.size(); ++i) after.push_back(i);
      plan.push_back({node->handle, EmptyCommand{}, std::move(after)});
    } else {
      plan.push_back({node->handle, node->command, std::move(after)});
    }
    last_steps[node.get()] = {static_cast<u32>(plan.size() - 1)};
  }
}

// Writes handles into the caller's array. `count` says how many fit and receives how many there
// are; without an array only the latter. hip-python passes one slot and never sets `count`: no
// array of a caller is larger than kLargestArray, so such a count is taken for one slot.
void give_nodes(const std::vector<std::shared_ptr<Node>>& nodes, hipGraphNode_t* array,
                size_t* count) {
  constexpr size_t kLargestArray = size_t{1} << 20;
  require(writable(count));
  if (array != nullptr) {
    const size_t room = *count > kLargestArray ? 1 : *count;
    const size_t given = std::min(room, nodes.size());
    require(given == 0 || writable(array, given));
    for (size_t i = 0; i < given; ++i) array[i] = nodes[i]->handle;
  }
  *count = nodes.size();
}

std::vector<std::shared_ptr<Node>> dependents(const Node& node) {
  std::vector<std::shared_ptr<Node>> found;
  for (const auto& other : node.graph->nodes) {
    for (const auto& dependency : other->dependencies) {
      if (dependency.get() == &node) found.push_back(other);
    }
  }
  return found;
}

hipError_t change_edges(hipGraph_t graph, const hipGraphNode_t* from, const hipGraphNode_t* to,
                        size_t count, bool add) {
  return api([&](Runtime& runtime) {
    const auto g = runtime.graphs.get(graph);
    const auto sources = node_list(runtime, from, count), targets = node_list(runtime, to, count);
    const auto edge = [&](size_t i) {
      auto& list = targets[i]->dependencies;
      return std::find(list.begin(), list.end(), sources[i]);
    };
    for (size_t i = 0; i < count; ++i) {
      require(sources[i]->graph == g.get() && targets[i]->graph == g.get());
      const bool exists = edge(i) != targets[i]->dependencies.end();
      require(sources[i] != targets[i] && exists != add);
    }
    for (size_t i = 0; i < count; ++i) {
      auto& list = targets[i]->dependencies;
      if (add) {
        list.push_back(sources[i]);
      } else if (const auto it = edge(i); it != list.end()) {
        list.erase(it);
      }
    }
    return hipSuccess;
  });
}

}  // namespace

std::shared_ptr<Graph> make_graph(Runtime& runtime) {
  auto graph = std::make_shared<Graph>();
  runtime.graphs.add(graph);
  return graph;
}

void destroy_graph(Runtime& runtime, const std::shared_ptr<Graph>& graph) {
  runtime.graphs.remove(graph->handle);
  for (const auto& node : graph->nodes) {
    runtime.nodes.remove(node->handle);
    if (const auto* child = std::get_if<ChildCommand>(&node->command)) {
      destroy_graph(runtime, child->graph);
    }
    node->dependencies.clear();
    node->graph = nullptr;
  }
}

std::shared_ptr<Node> add_node(Runtime& runtime, Graph& graph, Command command,
                               std::vector<std::shared_ptr<Node>> dependencies) {
  for (const auto& dependency : dependencies) require(dependency->graph == &graph);
  auto node = std::make_shared<Node>();
  node->command = std::move(command);
  node->dependencies = std::move(dependencies);
  node->graph = &graph;
  runtime.nodes.add(node);
  graph.nodes.push_back(node);
  return node;
}

std::vector<std::shared_ptr<Node>> node_list(Runtime& runtime, const hipGraphNode_t* handles,
                                             size_t count) {
  require(count == 0 || readable(handles, count));
  std::vector<std::shared_ptr<Node>> nodes;
  for (size_t i = 0; i < count; ++i) {
    nodes.push_back(runtime.nodes.get(handles[i], hipErrorInvalidValue));
  }
  return nodes;
}

std::shared_ptr<Graph> clone_graph(Runtime& runtime, const Graph& graph) {
  auto copy = make_graph(runtime);
  std::unordered_map<const Node*, std::shared_ptr<Node>> copies;
  for (const auto& node : graph.nodes) {
    Command command = node->command;
    if (auto* child = std::get_if<ChildCommand>(&command)) {
      child->graph = clone_graph(runtime, *child->graph);
    }
    copies[node.get()] = add_node(runtime, *copy, std::move(command), {});
    copies[node.get()]->original = node->handle;
  }
  for (const auto& node : graph.nodes) {
    for (const auto& dependency : node->dependencies) {
      copies[node.get()]->dependencies.push_back(copies.at(dependency.get()));
    }
  }
  return copy;
}

std::optional<std::vector<std::shared_ptr<Node>>> topological_order(const Graph& graph) {
  std::vector<std::shared_ptr<Node>> order;
  std::unordered_map<const Node*, bool> placed;
  // Nodes are mostly created after what they depend on, so that one pass places them all.
  while (order.size() < graph.nodes.size()) {
    const size_t before = order.size();
    for (const auto& node : graph.nodes) {
      if (placed[node.get()]) continue;
      const bool ready = std::all_of(node->dependencies.begin(), node->dependencies.end(),
                                     [&](const auto& other) { return placed[other.get()]; });
      if (!ready) continue;
      placed[node.get()] = true;
      order.push_back(node);
    }
    if (order.size() == before) return std::nullopt;
  }
  return order;
}

std::shared_ptr<GraphPlan> make_plan(const Graph& graph) {
  auto plan = std::make_shared<GraphPlan>();
  append_steps(graph, {}, *plan);
  return plan;
}

HIP_API hipGraphCreate(hipGraph_t* graph, unsigned flags) {
  return api([&](Runtime& runtime) {
    require(writable(graph) && flags == 0);
    *graph = make_graph(runtime)->handle;
    return hipSuccess;
  });
}

HIP_API hipGraphDestroy(hipGraph_t graph) {
  return api([&](Runtime& runtime) {
    destroy_graph(runtime, runtime.graphs.get(graph, hipErrorIllegalState));
    return hipSuccess;
  });
}

HIP_API hipGraphClone(hipGraph_t* clone, hipGraph_t original) {
  return api([&](Runtime& runtime) {
    require(writable(clone));
    *clone = clone_graph(runtime, *runtime.graphs.get(original))->handle;
    return hipSuccess;
  });
}

HIP_API hipGraphNodeFindInClone(hipGraphNode_t* node, hipGraphNode_t original, hipGraph_t clone) {
  return api([&](Runtime& runtime) {
    require(writable(node));
    for (const auto& copy : runtime.graphs.get(clone)->nodes) {
      if (copy->original == original && original != nullptr) {
        *node = copy->handle;
        return hipSuccess;
      }
    }
    return hipErrorInvalidValue;
  });
}

HIP_API hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t* nodes, size_t* count) {
  return api([&](Runtime& runtime) {
    give_nodes(runtime.graphs.get(graph)->nodes, nodes, count);
    return hipSuccess;
  });
}

HIP_API hipGraphGetRootNodes(hipGraph_t graph, hipGraphNode_t* nodes, size_t* count) {
  return api([&](Runtime& runtime) {
    std::vector<std::shared_ptr<Node>> roots;
    for (const auto& node : runtime.graphs.get(graph)->nodes) {
      if (node->dependencies.empty()) roots.push_back(node);
    }
    give_nodes(roots, nodes, count);
    return hipSuccess;
  });
}

HIP_API hipGraphGetEdges(hipGraph_t graph, hipGraphNode_t* from, hipGraphNode_t* to,
                         size_t* count) {
  return api([&](Runtime& runtime) {
    require((from == nullptr) == (to == nullptr) && writable(count));
    std::vector<std::shared_ptr<Node>> sources, targets;
    for (const auto& node : runtime.graphs.get(graph)->nodes) {
      for (const auto& dependency : node->dependencies) {
        sources.push_back(dependency);
        targets.push_back(node);
      }
    }
    size_t room = *count;
    give_nodes(sources, from, &room);
    give_nodes(targets, to, count);
    return hipSuccess;
  });
}

HIP_API hipGraphAddDependencies(hipGraph_t graph, const hipGraphNode_t* from,
                                const hipGraphNode_t* to, size_t count) {
  return change_edges(graph, from, to, count, true);
}

HIP_API hipGraphRemoveDependencies(hipGraph_t graph, const hipGraphNode_t* from,
                                   const hipGraphNode_t* to, size_t count) {
  return change_edges(graph, from, to, count, false);
}

HIP_API hipGraphDestroyNode(hipGraphNode_t node) {
  return api([&](Runtime& runtime) {
    const auto removed = runtime.nodes.remove(node);
    require(removed != nullptr, hipErrorInvalidHandle);
    for (const auto& graph : runtime.graphs.all()) {
      if (graph.get() != removed->graph) continue;
      std::erase(graph->nodes, removed);
      for (const auto& other : graph->nodes) std::erase(other->dependencies, removed);
    }
    if (const auto* child = std::get_if<ChildCommand>(&removed->command)) {
      destroy_graph(runtime, child->graph);
    }
    return hipSuccess;
  });
}

HIP_API hipGraphNodeGetType(hipGraphNode_t node, hipGraphNodeType* type) {
  return api([&](Runtime& runtime) {
    require(writable(type));
    *type = runtime.nodes.get(node, hipErrorInvalidValue)->type();
    return hipSuccess;
  });
}

HIP_API hipGraphNodeGetDependencies(hipGraphNode_t node, hipGraphNode_t* nodes, size_t* count) {
  return api([&](Runtime& runtime) {
    give_nodes(runtime.nodes.get(node, hipErrorInvalidValue)->dependencies, nodes, count);
    return hipSuccess;
  });
}

HIP_API hipGraphNodeGetDependentNodes(hipGraphNode_t node, hipGraphNode_t* nodes, size_t* count) {
  return api([&](Runtime& runtime) {
    give_nodes(dependents(*runtime.nodes.get(node, hipErrorInvalidValue)), nodes, count);
    return hipSuccess;
  });
}

}  // namespace vdev::hip
