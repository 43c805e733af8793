#include "hip/launch.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <limits>

#include "hip/api.h"
#include "hip/event.h"
#include "hip/function.h"

namespace vdev::hip {
namespace {

// Kernarg bytes that the metadata gives to no argument never reach a kernel: show it garbage.
constexpr u8 kUncoveredByte = 0xa5;

struct Wrong {
  const Kernel& kernel;
  [[noreturn, gnu::format(printf, 3, 4)]] void operator()(hipError_t code, const char* format,
                                                          ...) const {
    char text[256];
    va_list values;
    va_start(values, format);
    std::vsnprintf(text, sizeof text, format, values);
    va_end(values);
    refuse(code, "launch of " + kernel.name + ": " + text);
  }
};

void check_shape(const Runtime& runtime, const Kernel& kernel, const LaunchShape& shape) {
  const Wrong wrong{kernel};
  const Dim3 grid = shape.num_workgroups, group = shape.workgroup_size;
  const Limits& limits = runtime.device.limits();
  const u64 lds_limit = limits.lds_bytes;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) {
    wrong(hipErrorInvalidValue, "grid %ux%ux%u has no workgroup", grid.x, grid.y, grid.z);
  }
  if (group.x == 0 || group.y == 0 || group.z == 0) {
    wrong(hipErrorInvalidValue, "workgroup %ux%ux%u has no lane", group.x, group.y, group.z);
  }
  if (grid.x > limits.grid_x || grid.y > limits.grid_yz || grid.z > limits.grid_yz) {
    wrong(hipErrorInvalidValue, "grid %ux%ux%u exceeds %ux%ux%u", grid.x, grid.y, grid.z,
          limits.grid_x, limits.grid_yz, limits.grid_yz);
  }
  const u32 most = limits.workgroup_lanes;
  if (group.x > most || group.y > most || group.z > most || group.count() > most) {
    wrong(hipErrorInvalidValue, "workgroup %ux%ux%u exceeds %u lanes", group.x, group.y, group.z,
          most);
  }
  constexpr u64 kMaxLanes = std::numeric_limits<u32>::max();
  if (u64{grid.x} * group.x > kMaxLanes || u64{grid.y} * group.y > kMaxLanes ||
      u64{grid.z} * group.z > kMaxLanes) {
    wrong(shape.too_long, "grid %ux%ux%u of workgroups %ux%ux%u exceeds 2^32-1 lanes along an axis",
          grid.x, grid.y, grid.z, group.x, group.y, group.z);
  }
  if (shape.dynamic_lds_bytes > lds_limit) {
    wrong(hipErrorInvalidValue, "%llu bytes of dynamic LDS exceed %llu",
          static_cast<unsigned long long>(shape.dynamic_lds_bytes),
          static_cast<unsigned long long>(lds_limit));
  }
  if (group.count() > kernel.max_workgroup_size) {
    wrong(hipErrorLaunchFailure, "workgroup of %llu lanes exceeds the kernel's %u",
          static_cast<unsigned long long>(group.count()), kernel.max_workgroup_size);
  }
  if (kernel.lds_bytes + shape.dynamic_lds_bytes > lds_limit) {
    wrong(hipErrorLaunchOutOfResources, "%u static + %llu dynamic bytes of LDS exceed %llu",
          kernel.lds_bytes, static_cast<unsigned long long>(shape.dynamic_lds_bytes),
          static_cast<unsigned long long>(lds_limit));
  }
}

// A hostile descriptor may ask for more than there are SGPRs.
void check_user_sgprs(const Limits& limits, const Kernel& kernel) {
  const u32 used = 4 * kernel.user_private_segment_buffer + 2 * kernel.user_dispatch_ptr +
                   2 * kernel.user_queue_ptr + 2 * kernel.user_kernarg_ptr +
                   2 * kernel.user_dispatch_id + 2 * kernel.user_flat_scratch +
                   kernel.user_private_segment_size + kernel.kernarg_preload_dwords;
  const u32 wanted = std::max(used, kernel.user_sgpr_count);
  if (wanted > limits.user_sgprs) {
    Wrong{kernel}(hipErrorLaunchFailure, "the descriptor asks for %u user SGPRs, there are %u",
                  wanted, limits.user_sgprs);
  }
}

void check_co_residency(const Runtime& runtime, const Kernel& kernel, const LaunchShape& shape) {
  const u64 resident =
      runtime.device.resident_workgroups(kernel, static_cast<u32>(shape.workgroup_size.count()),
                                         static_cast<u32>(shape.dynamic_lds_bytes));
  const u64 asked = shape.num_workgroups.count();
  if (asked > resident) {
    Wrong{kernel}(hipErrorCooperativeLaunchTooLarge,
                  "cooperative grid of %llu workgroups, %llu fit at a time",
                  static_cast<unsigned long long>(asked),
                  static_cast<unsigned long long>(resident));
  }
}

struct PackedArguments {
  const u8* data = nullptr;
  u64 size = 0;
};

PackedArguments read_extra(const Kernel& kernel, void** extra) {
  PackedArguments packed;
  const u64* size = nullptr;
  const int words = readable(extra, 5) ? 5 : readable(extra, 3) ? 3 : 0;  // an END may come early
  for (int i = 0; 2 * i < words; ++i) {
    switch (reinterpret_cast<std::uintptr_t>(extra[2 * i])) {
      case kLaunchParamBufferPointer:
        if (2 * i + 1 == words) break;
        packed.data = static_cast<u8*>(extra[2 * i + 1]);
        continue;
      case kLaunchParamBufferSize:
        if (2 * i + 1 == words) break;
        size = static_cast<u64*>(extra[2 * i + 1]);
        continue;
      case kLaunchParamEnd:
        if (packed.data != nullptr && readable(size)) {
          packed.size = *size;
          return packed;
        }
    }
    break;
  }
  Wrong{kernel}(hipErrorInvalidValue,
                "`extra` must be {1, buffer, 2, &size, 3} in memory that can be read");
}

// Bytes of the buffer that arguments are read from.
u64 bytes_used(const Kernel& kernel, u64 size) {
  u64 used = 0;
  for (const KernelArg& arg : kernel.args) {
    const u64 end = u64{arg.offset} + arg.size;
    if (!is_hidden(arg) && end <= size) used = std::max(used, end);
  }
  return used;
}

size_t num_explicit(const Kernel& kernel) {
  return static_cast<size_t>(std::count_if(kernel.args.begin(), kernel.args.end(),
                                           [](const KernelArg& arg) { return !is_hidden(arg); }));
}

// Whether values can be read: those of a launch mostly lie side by side.
class ReadableValues {
 public:
  bool contain(const void* value, u64 bytes) {
    const u64 first = reinterpret_cast<u64>(value), last = first + bytes;
    if (last >= first && first >= begin_ && last <= end_) return true;
    if (!readable(static_cast<const u8*>(value), bytes)) return false;
    begin_ = first / kMemoryPage * kMemoryPage;
    end_ = (last + kMemoryPage - 1) / kMemoryPage * kMemoryPage;
    return true;
  }

 private:
  u64 begin_ = 0, end_ = 0;
};

std::vector<u8> make_kernarg(const Kernel& kernel, void** params, void** extra) {
  const Wrong wrong{kernel};
  if (params != nullptr && extra != nullptr) {
    wrong(hipErrorInvalidValue, "both kernelParams and extra are given");
  }
  if (kernel.args.empty() && kernel.kernarg_bytes != 0) {
    wrong(hipErrorLaunchOutOfResources, "%u kernarg bytes, but the metadata lists no argument",
          kernel.kernarg_bytes);
  }
  std::vector<u8> kernarg(kernel.kernarg_bytes, kUncoveredByte);
  const PackedArguments packed = extra != nullptr ? read_extra(kernel, extra) : PackedArguments{};
  if (extra != nullptr && !readable(packed.data, bytes_used(kernel, packed.size))) {
    wrong(hipErrorInvalidValue, "the buffer of `extra` at %p cannot be read for %llu bytes",
          static_cast<const void*>(packed.data), static_cast<unsigned long long>(packed.size));
  }
  if (params != nullptr && !readable(params, num_explicit(kernel))) {
    wrong(hipErrorInvalidValue, "kernelParams at %p cannot be read for %zu pointers",
          static_cast<void*>(params), num_explicit(kernel));
  }
  ReadableValues values;
  size_t param_idx = 0;
  for (const KernelArg& arg : kernel.args) {
    const u64 end = u64{arg.offset} + arg.size;
    if (end > kernel.kernarg_bytes) {
      wrong(hipErrorInvalidValue, "argument at %u of %u bytes leaves the %u kernarg bytes",
            arg.offset, arg.size, kernel.kernarg_bytes);
    }
    u8* to = kernarg.data() + arg.offset;
    if (is_hidden(arg)) {
      std::memset(to, 0, arg.size);  // Device::execute fills in what the kernel is to see
    } else if (extra != nullptr) {
      // As in the real runtime, an argument that is not wholly inside the buffer reads as zero.
      if (end <= packed.size) {
        std::memcpy(to, packed.data + arg.offset, arg.size);
      } else {
        std::memset(to, 0, arg.size);
      }
    } else if (params != nullptr) {
      const void* from = params[param_idx++];
      if (from == nullptr) {
        wrong(hipErrorInvalidValue, "kernelParams[%zu] is null", param_idx - 1);
      }
      if (!values.contain(from, arg.size)) {
        wrong(hipErrorInvalidValue, "kernelParams[%zu] at %p cannot be read for %u bytes",
              param_idx - 1, from, arg.size);
      }
      std::memcpy(to, from, arg.size);
    } else {
      wrong(hipErrorInvalidValue, "neither kernelParams nor extra is given");
    }
  }
  return kernarg;
}

hipError_t launch(Runtime& runtime, std::shared_ptr<Function> function, const LaunchShape& shape,
                  void** params, void** extra, hipStream_t stream) {
  const auto s = runtime.stream(stream);
  return runtime.enqueue(s, make_kernel(runtime, std::move(function), shape, params, extra));
}

// A stream, and events that tell when a launch on it begins and ends, or null.
struct Timed {
  hipStream_t stream;
  hipEvent_t start, stop;
  int flags;
};

hipError_t launch_timed(Runtime& runtime, std::shared_ptr<Function> function,
                        const LaunchShape& shape, void** params, void** extra, const Timed& timed) {
  require(timed.flags == 0 || timed.flags == 1);  // hipExtAnyOrderLaunch: a permission, not used
  const auto s = runtime.stream(timed.stream);
  const auto start = timed.start == nullptr ? nullptr : runtime.events.get(timed.start);
  const auto stop = timed.stop == nullptr ? nullptr : runtime.events.get(timed.stop);
  auto command = make_kernel(runtime, std::move(function), shape, params, extra);
  if (start != nullptr) record_event(runtime, s, start);
  const hipError_t code = runtime.enqueue(s, std::move(command));
  if (stop != nullptr) record_event(runtime, s, stop);
  return code;
}

// hipLaunchKernel and its relatives take "the address of the kernel": here a hipFunction_t.
std::shared_ptr<Function> function_at(Runtime& runtime, const void* address) {
  return runtime.functions.get(address, hipErrorInvalidDeviceFunction);
}

Dim3 dims(dim3 d) { return {d.x, d.y, d.z}; }

// Launch attributes: cooperative counts, hints about caches and scheduling change nothing here.
bool is_cooperative(const hipLaunchAttribute* attributes, unsigned count) {
  bool cooperative = false;
  require(count == 0 || readable(attributes, count));
  for (unsigned i = 0; i < count; ++i) {
    const int id = attributes[i].id;
    if (id == hipLaunchAttributeCooperative) {
      cooperative = attributes[i].val.cooperative != 0;
    } else {
      const bool hint = id == hipLaunchAttributeIgnore ||
                        id == hipLaunchAttributeAccessPolicyWindow ||
                        id == hipLaunchAttributeSynchronizationPolicy ||
                        (id >= hipLaunchAttributePriority && id <= hipLaunchAttributePriority + 2);
      require(hint, hipErrorNotSupported);
    }
  }
  return cooperative;
}

}  // namespace

KernelCommand make_kernel(Runtime& runtime, std::shared_ptr<Function> function,
                          const LaunchShape& shape, void** params, void** extra) {
  const Kernel& kernel = *function->kernel;
  check_shape(runtime, kernel, shape);
  check_user_sgprs(runtime.device.limits(), kernel);
  if (std::string why = runtime.device.unsupported(kernel); !why.empty()) {
    refuse(hipErrorLaunchOutOfResources, "launch of " + kernel.name + ": " + std::move(why));
  }
  if (shape.cooperative) check_co_residency(runtime, kernel, shape);
  KernelCommand command;
  command.launch.code = function->code;
  command.launch.kernel = &kernel;
  command.launch.num_workgroups = shape.num_workgroups;
  command.launch.workgroup_size = shape.workgroup_size;
  command.launch.remainder = shape.remainder;
  command.launch.dynamic_lds_bytes = static_cast<u32>(shape.dynamic_lds_bytes);
  command.launch.kernarg = make_kernarg(kernel, params, extra);
  command.function = std::move(function);
  return command;
}

HIP_API hipModuleLaunchKernel(hipFunction_t f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                              unsigned group_x, unsigned group_y, unsigned group_z,
                              unsigned dynamic_lds, hipStream_t stream, void** params,
                              void** extra) {
  return api([&](Runtime& runtime) {
    const LaunchShape shape{{grid_x, grid_y, grid_z}, {group_x, group_y, group_z}, dynamic_lds};
    return launch(runtime, runtime.functions.get(f), shape, params, extra, stream);
  });
}

HIP_API hipModuleLaunchCooperativeKernel(hipFunction_t f, unsigned grid_x, unsigned grid_y,
                                         unsigned grid_z, unsigned group_x, unsigned group_y,
                                         unsigned group_z, unsigned dynamic_lds, hipStream_t stream,
                                         void** params) {
  return api([&](Runtime& runtime) {
    const LaunchShape shape{
        {grid_x, grid_y, grid_z}, {group_x, group_y, group_z}, dynamic_lds, true};
    return launch(runtime, runtime.functions.get(f), shape, params, nullptr, stream);
  });
}

HIP_API hipDrvLaunchKernelEx(const HIP_LAUNCH_CONFIG* config, hipFunction_t f, void** params,
                             void** extra) {
  return api([&](Runtime& runtime) {
    require(readable(config));
    const LaunchShape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                            {config->blockDimX, config->blockDimY, config->blockDimZ},
                            config->sharedMemBytes,
                            is_cooperative(config->attrs, config->numAttrs)};
    return launch(runtime, runtime.functions.get(f), shape, params, extra, config->hStream);
  });
}

HIP_API hipLaunchKernelExC(const hipLaunchConfig_t* config, const void* f, void** args) {
  return api([&](Runtime& runtime) {
    require(readable(config));
    const LaunchShape shape{dims(config->gridDim), dims(config->blockDim), config->dynamicSmemBytes,
                            is_cooperative(config->attrs, config->numAttrs),
                            hipErrorInvalidConfiguration};
    return launch(runtime, function_at(runtime, f), shape, args, nullptr, config->stream);
  });
}

HIP_API hipLaunchKernel(const void* f, dim3 grid, dim3 group, void** args, size_t dynamic_lds,
                        hipStream_t stream) {
  return api([&](Runtime& runtime) {
    const LaunchShape shape{dims(grid), dims(group), dynamic_lds, false,
                            hipErrorInvalidConfiguration};
    return launch(runtime, function_at(runtime, f), shape, args, nullptr, stream);
  });
}

HIP_API hipLaunchKernel_spt(const void* f, dim3 grid, dim3 group, void** args, size_t dynamic_lds,
                            hipStream_t stream) {
  return hipLaunchKernel(f, grid, group, args, dynamic_lds, per_thread(stream));
}

HIP_API hipLaunchCooperativeKernel(const void* f, dim3 grid, dim3 group, void** args,
                                   unsigned dynamic_lds, hipStream_t stream) {
  return api([&](Runtime& runtime) {
    const LaunchShape shape{dims(grid), dims(group), dynamic_lds, true,
                            hipErrorInvalidConfiguration};
    return launch(runtime, function_at(runtime, f), shape, args, nullptr, stream);
  });
}

HIP_API hipLaunchCooperativeKernel_spt(const void* f, dim3 grid, dim3 group, void** args,
                                       unsigned dynamic_lds, hipStream_t stream) {
  return hipLaunchCooperativeKernel(f, grid, group, args, dynamic_lds, per_thread(stream));
}

HIP_API hipExtLaunchKernel(const void* f, dim3 grid, dim3 group, void** args, size_t dynamic_lds,
                           hipStream_t stream, hipEvent_t start, hipEvent_t stop, int flags) {
  return api([&](Runtime& runtime) {
    const LaunchShape shape{dims(grid), dims(group), dynamic_lds, false,
                            hipErrorInvalidConfiguration};
    const Timed timed{stream, start, stop, flags};
    return launch_timed(runtime, function_at(runtime, f), shape, args, nullptr, timed);
  });
}

// The grid is in lanes; its last workgroups may be partial ones.
HIP_API hipExtModuleLaunchKernel(hipFunction_t f, uint32_t lanes_x, uint32_t lanes_y,
                                 uint32_t lanes_z, uint32_t group_x, uint32_t group_y,
                                 uint32_t group_z, size_t dynamic_lds, hipStream_t stream,
                                 void** params, void** extra, hipEvent_t start, hipEvent_t stop,
                                 uint32_t flags) {
  return api([&](Runtime& runtime) {
    auto function = runtime.functions.get(f);
    // As in CLR, a workgroup is no larger than the grid.
    const Dim3 lanes{lanes_x, lanes_y, lanes_z};
    const Dim3 group{std::min(group_x, lanes.x), std::min(group_y, lanes.y),
                     std::min(group_z, lanes.z)};
    LaunchShape shape{lanes, group, dynamic_lds};
    if (group.x != 0 && group.y != 0 && group.z != 0) {
      shape.num_workgroups = workgroups_of(lanes, group);
      shape.remainder = {lanes.x % group.x, lanes.y % group.y, lanes.z % group.z};
    }
    const Dim3& rest = shape.remainder;
    const bool partial = rest.x != 0 || rest.y != 0 || rest.z != 0;
    if (partial && function->kernel->uniform_workgroup_size) {
      refuse(hipErrorInvalidValue, "launch of " + function->kernel->name +
                                       ": it was compiled for whole workgroups, of which the grid "
                                       "is no multiple (clang: -fno-offload-uniform-block)");
    }
    const Timed timed{stream, start, stop, static_cast<int>(flags)};
    return launch_timed(runtime, std::move(function), shape, params, extra, timed);
  });
}

}  // namespace vdev::hip
