// Executable graphs: instantiation, launch, update.
#include <algorithm>
#include <utility>

#include "hip/api.h"
#include "hip/capture.h"
#include "hip/event.h"
#include "hip/graph.h"
#include "hip/transfer.h"

namespace vdev::hip {
namespace {

constexpr unsigned long long kInstantiateFlags = 0xf;

hipGraphExec_t instantiate(Runtime& runtime, hipGraph_t graph, unsigned long long flags) {
  require((flags & ~kInstantiateFlags) == 0);
  auto exec = std::make_shared<GraphExec>();
  exec->flags = flags;
  exec->plan = make_plan(*runtime.graphs.get(graph));
  return runtime.graph_execs.add(exec);
}

// Records of the events that a launch will record, by step.
using StepRecords = std::vector<std::pair<size_t, std::shared_ptr<EventRecord>>>;

LaunchResult run_plan(Runtime& runtime, const GraphPlan& plan, const StepRecords& records) {
  auto record = records.begin();
  for (size_t i = 0; i < plan.size(); ++i) {
    if (!plan[i].enabled) continue;
    if (record != records.end() && record->first == i) {
      stamp(runtime, *record->second);
      ++record;
      continue;
    }
    LaunchResult result = run(runtime, plan[i].command);
    if (result.fault != FaultKind::kNone) return result;
  }
  return {};
}

hipError_t launch(hipGraphExec_t exec, hipStream_t stream) {
  return api([&](Runtime& runtime) {
    const auto e = runtime.graph_execs.get(exec);
    const auto s = runtime.stream(stream);
    forbid_capturing_stream(runtime, *s);
    std::unique_lock lock(e->mutex);
    const std::shared_ptr<const GraphPlan> plan = e->plan;
    Task task;
    StepRecords records;
    std::vector<std::pair<std::shared_ptr<Event>, std::shared_ptr<EventRecord>>> recorded;
    for (size_t i = 0; i < plan->size(); ++i) {
      const Command& command = (*plan)[i].command;
      if (const auto* wait = std::get_if<EventWaitCommand>(&command)) {
        const auto record = last_record(*wait->event);
        if (record != nullptr && record->at.stream != s) task.after.push_back({record->at});
      } else if (const auto* record = std::get_if<EventRecordCommand>(&command)) {
        records.emplace_back(i, std::make_shared<EventRecord>());
        recorded.emplace_back(record->event, records.back().second);
      }
    }
    if (e->last_launch.stream != nullptr && e->last_launch.stream != s) {
      task.after.push_back({e->last_launch});
    }
    task.run = [&runtime, plan, records = std::move(records)] {
      return run_plan(runtime, *plan, records);
    };
    e->last_launch = runtime.submit(s, std::move(task));
    for (auto& [event, record] : recorded) set_record(*event, std::move(record), e->last_launch);
    return hipSuccess;
  });
}

// Replaces the step of `node` in a copy of the plan. `change` must keep the kind of command.
template <class Change>
hipError_t change_step(hipGraphExec_t exec, hipGraphNode_t node, Change&& change) {
  return api([&](Runtime& runtime) {
    const auto e = runtime.graph_execs.get(exec);
    std::unique_lock lock(e->mutex);
    auto plan = std::make_shared<GraphPlan>(*e->plan);
    const auto step = std::find_if(plan->begin(), plan->end(),
                                   [&](const GraphStep& s) { return s.node == node; });
    require(step != plan->end());
    change(runtime, *step);
    e->plan = std::move(plan);
    return hipSuccess;
  });
}

template <class T, class MakeCommand>
hipError_t set_step(hipGraphExec_t exec, hipGraphNode_t node, MakeCommand&& make_command) {
  return change_step(exec, node, [&](Runtime& runtime, GraphStep& step) {
    require(std::holds_alternative<T>(step.command));
    step.command = make_command(runtime);
  });
}

bool can_be_disabled(const GraphStep& step) {
  return std::holds_alternative<KernelCommand>(step.command) ||
         std::holds_alternative<CopyCommand>(step.command) ||
         std::holds_alternative<FillCommand>(step.command);
}

}  // namespace

HIP_API hipGraphInstantiate(hipGraphExec_t* exec, hipGraph_t graph, hipGraphNode_t* error_node,
                            char* log, size_t log_bytes) {
  return api([&](Runtime& runtime) {
    require(writable(exec));
    *exec = nullptr;
    if (wanted(error_node)) *error_node = nullptr;
    if (log_bytes > 0 && wanted(log)) log[0] = '\0';
    *exec = instantiate(runtime, graph, 0);
    return hipSuccess;
  });
}

HIP_API hipGraphInstantiateWithFlags(hipGraphExec_t* exec, hipGraph_t graph,
                                     unsigned long long flags) {
  return api([&](Runtime& runtime) {
    require(writable(exec));
    *exec = nullptr;
    *exec = instantiate(runtime, graph, flags);
    return hipSuccess;
  });
}

HIP_API hipGraphInstantiateWithParams(hipGraphExec_t* exec, hipGraph_t graph,
                                      hipGraphInstantiateParams* params) {
  return api([&](Runtime& runtime) {
    require(writable(exec) && writable(params));
    *exec = nullptr;
    params->errNode_out = nullptr;
    params->result_out = hipGraphInstantiateInvalidStructure;
    *exec = instantiate(runtime, graph, params->flags);
    params->result_out = hipGraphInstantiateSuccess;
    return hipSuccess;
  });
}

HIP_API hipGraphExecDestroy(hipGraphExec_t exec) {
  return api([&](Runtime& runtime) {
    require(runtime.graph_execs.remove(exec) != nullptr, hipErrorInvalidHandle);
    return hipSuccess;
  });
}

HIP_API hipGraphExecGetFlags(hipGraphExec_t exec, unsigned long long* flags) {
  return api([&](Runtime& runtime) {
    require(writable(flags));
    *flags = runtime.graph_execs.get(exec)->flags;
    return hipSuccess;
  });
}

HIP_API hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream) { return launch(exec, stream); }

HIP_API hipGraphLaunch_spt(hipGraphExec_t exec, hipStream_t stream) {
  return launch(exec, per_thread(stream));
}

// Nothing has to be moved to the device before the first launch.
HIP_API hipGraphUpload(hipGraphExec_t exec, hipStream_t stream) {
  return api([&](Runtime& runtime) {
    runtime.graph_execs.get(exec);
    runtime.stream(stream);
    return hipSuccess;
  });
}

HIP_API hipGraphExecUpdate(hipGraphExec_t exec, hipGraph_t graph, hipGraphNode_t* error_node,
                           hipGraphExecUpdateResult* result) {
  return api([&](Runtime& runtime) {
    require(writable(result) && writable(error_node));
    *error_node = nullptr;
    *result = hipGraphExecUpdateError;
    const auto e = runtime.graph_execs.get(exec);
    const auto updated = make_plan(*runtime.graphs.get(graph));
    std::unique_lock lock(e->mutex);
    const auto fail = [&](hipGraphExecUpdateResult why, size_t step) {
      *result = why;
      if (step < updated->size()) *error_node = (*updated)[step].node;
      return hipErrorGraphExecUpdateFailure;
    };
    if (updated->size() != e->plan->size()) {
      return fail(hipGraphExecUpdateErrorTopologyChanged, updated->size());
    }
    for (size_t i = 0; i < updated->size(); ++i) {
      const GraphStep& now = (*e->plan)[i];
      GraphStep& then = (*updated)[i];
      if (now.command.index() != then.command.index()) {
        return fail(hipGraphExecUpdateErrorNodeTypeChanged, i);
      }
      if (now.after != then.after) return fail(hipGraphExecUpdateErrorTopologyChanged, i);
    }
    for (size_t i = 0; i < updated->size(); ++i) {
      (*updated)[i].node = (*e->plan)[i].node;
      (*updated)[i].enabled = (*e->plan)[i].enabled;
    }
    e->plan = updated;
    *result = hipGraphExecUpdateSuccess;
    return hipSuccess;
  });
}

HIP_API hipGraphExecKernelNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                        const hipKernelNodeParams* params) {
  return set_step<KernelCommand>(exec, node,
                                 [&](Runtime& runtime) { return kernel_command(runtime, params); });
}

HIP_API hipGraphExecMemcpyNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                        hipMemcpy3DParms* params) {
  return set_step<CopyCommand>(exec, node,
                               [&](Runtime& runtime) { return make_copy(runtime, params); });
}

HIP_API hipGraphExecMemcpyNodeSetParams1D(hipGraphExec_t exec, hipGraphNode_t node, void* dst,
                                          const void* src, size_t bytes, hipMemcpyKind kind) {
  return set_step<CopyCommand>(
      exec, node, [&](Runtime& runtime) { return copy_command(runtime, dst, src, bytes, kind); });
}

HIP_API hipGraphExecMemsetNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                        const hipMemsetParams* params) {
  return set_step<FillCommand>(exec, node,
                               [&](Runtime& runtime) { return fill_command(runtime, params); });
}

HIP_API hipGraphExecHostNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                      const hipHostNodeParams* params) {
  return set_step<HostCommand>(exec, node, [&](Runtime&) { return host_command(params); });
}

HIP_API hipGraphExecEventRecordNodeSetEvent(hipGraphExec_t exec, hipGraphNode_t node,
                                            hipEvent_t event) {
  return set_step<EventRecordCommand>(
      exec, node, [&](Runtime& runtime) { return EventRecordCommand{runtime.events.get(event)}; });
}

HIP_API hipGraphExecEventWaitNodeSetEvent(hipGraphExec_t exec, hipGraphNode_t node,
                                          hipEvent_t event) {
  return set_step<EventWaitCommand>(
      exec, node, [&](Runtime& runtime) { return EventWaitCommand{runtime.events.get(event)}; });
}

HIP_API hipGraphNodeSetEnabled(hipGraphExec_t exec, hipGraphNode_t node, unsigned enabled) {
  return change_step(exec, node, [&](Runtime&, GraphStep& step) {
    require(can_be_disabled(step) && enabled <= 1);
    step.enabled = enabled != 0;
  });
}

HIP_API hipGraphNodeGetEnabled(hipGraphExec_t exec, hipGraphNode_t node, unsigned* enabled) {
  return change_step(exec, node, [&](Runtime&, GraphStep& step) {
    require(writable(enabled) && can_be_disabled(step));
    *enabled = step.enabled ? 1 : 0;
  });
}

}  // namespace vdev::hip
