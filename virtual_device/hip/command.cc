// Execution of commands, alone and as part of a graph.
#include <variant>

#include "hip/api.h"
#include "hip/capture.h"
#include "hip/event.h"
#include "hip/transfer.h"

namespace vdev::hip {
namespace {

template <class... Fs>
struct Overload : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overload(Fs...) -> Overload<Fs...>;

bool is_host_function(const Command& command) {
  return std::holds_alternative<HostCommand>(command);
}

// As on a GPU, a copy that touches pageable host memory is over when the call returns: the caller
// may use that memory at once.
bool touches_pageable_memory(const Command& command) {
  const auto* copy = std::get_if<CopyCommand>(&command);
  return copy != nullptr && !(copy->dst.device && copy->src.device);
}

}  // namespace

LaunchResult run(Runtime& runtime, const Command& command) {
  return std::visit(
      Overload{
          [&](const KernelCommand& kernel) {
            if (runtime.null_launches != Runtime::NullLaunches::kOff) return LaunchResult{};
            return runtime.device.execute(kernel.launch);
          },
          [&](const CopyCommand& copy) { return run_copy(runtime.device.memory(), copy); },
          [&](const FillCommand& fill) { return run_fill(runtime.device.memory(), fill); },
          [&](const HostCommand& host) {
            host.function(host.user_data);
            return LaunchResult{};
          },
          // Child graphs, markers and events have no work of their own: they are order.
          [&](const auto&) { return LaunchResult{}; },
      },
      command);
}

hipError_t Runtime::enqueue(const std::shared_ptr<Stream>& stream, Command command, bool wait) {
  if (num_captures.load(std::memory_order_acquire) > 0) {
    if (wait && !capturing(*stream)) forbid_in_capture();
    if (capture_command(*this, *stream, command)) return hipSuccess;
  }
  if (null_launches == NullLaunches::kInCall && std::holds_alternative<KernelCommand>(command)) {
    return hipSuccess;
  }
  wait = wait || touches_pageable_memory(command);
  if (wait) require(!on_stream_thread(), hipErrorIllegalState);
  Task task;
  task.always = is_host_function(command);
  task.run = [this, command = std::move(command)] { return hip::run(*this, command); };
  const Point point = submit(stream, std::move(task));
  if (!wait) return hipSuccess;
  // The calling thread goes on failing until it synchronizes: which of the copies that it makes are
  // of results that a fault has spoiled, nobody knows.
  this->wait(point);
  return tell({point.stream.get()}, !kTold);
}

}  // namespace vdev::hip
