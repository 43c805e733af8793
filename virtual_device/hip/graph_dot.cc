// hipGraphDebugDotPrint: the graph in Graphviz' language.
#include <cstdio>

#include "hip/api.h"
#include "hip/graph.h"

namespace vdev::hip {
namespace {

constexpr unsigned kVerbose = 1, kKernelParams = 4, kMemcpyParams = 8, kMemsetParams = 16,
                   kDotFlags = 0x7fd;

std::string format(const char* pattern, unsigned long long a, unsigned long long b,
                   unsigned long long c) {
  char text[128];
  std::snprintf(text, sizeof text, pattern, a, b, c);
  return text;
}

struct Label {
  unsigned flags;
  bool wants(unsigned flag) const { return (flags & (flag | kVerbose)) != 0; }

  std::string operator()(const KernelCommand& command) const {
    const Launch& launch = command.launch;
    std::string text = launch.kernel->name;
    if (!wants(kKernelParams)) return text;
    const Dim3 &grid = launch.num_workgroups, &group = launch.workgroup_size;
    return text + format("\\ngrid %llux%llux%llu", grid.x, grid.y, grid.z) +
           format("\\nworkgroup %llux%llux%llu", group.x, group.y, group.z) +
           format("\\n%llu bytes of dynamic LDS", launch.dynamic_lds_bytes, 0, 0);
  }
  std::string operator()(const CopyCommand& copy) const {
    if (!wants(kMemcpyParams)) return "memcpy";
    return format("memcpy\\n0x%llx <- 0x%llx", copy.dst.address, copy.src.address, 0) +
           format("\\n%llux%llux%llu bytes", copy.width, copy.height, copy.depth);
  }
  std::string operator()(const FillCommand& fill) const {
    if (!wants(kMemsetParams)) return "memset";
    return format("memset\\n0x%llx = 0x%llx", fill.dst.address, fill.value, 0) +
           format("\\n%llux%llu of %llu bytes", fill.width, fill.height, fill.element_bytes);
  }
  std::string operator()(const HostCommand&) const { return "host function"; }
  std::string operator()(const ChildCommand&) const { return "graph"; }
  std::string operator()(const EmptyCommand&) const { return "empty"; }
  std::string operator()(const EventWaitCommand&) const { return "wait for event"; }
  std::string operator()(const EventRecordCommand&) const { return "record event"; }
};

void print(std::FILE* file, const Graph& graph, unsigned flags) {
  for (const auto& node : graph.nodes) {
    const auto id = reinterpret_cast<unsigned long long>(node->handle);
    std::fprintf(file, "  n%llx [label=\"%s\"];\n", id,
                 std::visit(Label{flags}, node->command).c_str());
    for (const auto& dependency : node->dependencies) {
      std::fprintf(file, "  n%llx -> n%llx;\n",
                   reinterpret_cast<unsigned long long>(dependency->handle), id);
    }
    if (const auto* child = std::get_if<ChildCommand>(&node->command)) {
      std::fprintf(file, "  subgraph cluster_%llx {\n", id);
      print(file, *child->graph, flags);
      std::fprintf(file, "  }\n");
    }
  }
}

}  // namespace

HIP_API hipGraphDebugDotPrint(hipGraph_t graph, const char* path, unsigned flags) {
  return api([&](Runtime& runtime) {
    require(is_text(path) && (flags & ~kDotFlags) == 0);
    const auto g = runtime.graphs.get(graph);
    std::FILE* file = std::fopen(path, "w");
    require(file != nullptr, hipErrorOperatingSystem);
    std::fprintf(file, "digraph graph_%llx {\n  node [shape=box];\n",
                 reinterpret_cast<unsigned long long>(g->handle));
    print(file, *g, flags);
    std::fprintf(file, "}\n");
    return std::fclose(file) == 0 ? hipSuccess : hipErrorOperatingSystem;
  });
}

}  // namespace vdev::hip
