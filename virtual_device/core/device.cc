#include "core/device.h"

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <cstdio>
#include <list>
#include <mutex>
#include <new>
#include <numeric>
#include <thread>

#include "core/apertures.h"
#include "core/launch_state.h"
#include "core/worker.h"

namespace vdev {
namespace {

constexpr u64 kScratchMemory = u64{4} << 30;   // of all workgroups that are resident
constexpr u64 kLeastAddresses = u64{1} << 40;  // of addresses, so that freed ones rest for long

// What an allocation in granules takes.
u64 granules(u64 count, u64 granule) { return (count + granule - 1) / granule * granule; }

// The size of the last workgroup along an axis.
u32 last(u32 workgroup_size, u32 remainder) { return remainder ? remainder : workgroup_size; }

}  // namespace

Dim3 workgroups_of(const Dim3& grid_lanes, const Dim3& workgroup_size) {
  const auto count = [](u32 lanes, u32 size) { return lanes / size + (lanes % size != 0); };
  return {count(grid_lanes.x, workgroup_size.x), count(grid_lanes.y, workgroup_size.y),
          count(grid_lanes.z, workgroup_size.z)};
}

Dim3 Launch::size_of(const Dim3& id) const {
  const Dim3 &count = num_workgroups, &size = workgroup_size;
  return {id.x + 1 == count.x ? last(size.x, remainder.x) : size.x,
          id.y + 1 == count.y ? last(size.y, remainder.y) : size.y,
          id.z + 1 == count.z ? last(size.z, remainder.z) : size.z};
}

Dim3 Launch::grid_lanes() const {
  const Dim3 &count = num_workgroups, &size = workgroup_size;
  return {(count.x - 1) * size.x + last(size.x, remainder.x),
          (count.y - 1) * size.y + last(size.y, remainder.y),
          (count.z - 1) * size.z + last(size.z, remainder.z)};
}

u64 LaunchState::workgroup_at(u64 position) const {
  if (!observer || !options.seed) return position;
  const u64 window = position / resident_limit;
  const u64 size = std::min(resident_limit, num_workgroups - window * resident_limit);
  u64 step = (options.seed * 0x9e3779b97f4a7c15 >> 33) % size + 1;
  while (std::gcd(step, size) != 1) ++step;
  return window * resident_limit + (position % resident_limit * step + options.seed) % size;
}

void LaunchState::fault(FaultKind kind, std::string report) {
  std::lock_guard lock(mutex);
  if (result.fault != FaultKind::kNone) return;
  result = {kind, std::move(report)};
  faulted = true;
}

// The pool: threads start with the first launch and sleep between launches.
class Device::Workers {
 public:
  explicit Workers(Device& device) : device_(device) {}
  ~Workers() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void run(const std::shared_ptr<LaunchState>& launch) {
    {
      std::lock_guard lock(mutex_);
      u32 wanted = launch->options.threads;
      if (wanted == 0) wanted = std::max(1u, std::thread::hardware_concurrency());
      active_threads_ = wanted;
      while (threads_.size() < wanted) {
        const u32 idx = static_cast<u32>(threads_.size());
        threads_.emplace_back([this, idx] { work(idx); });
      }
      launches_.push_back(launch);
    }
    wake_.notify_all();
    std::unique_lock lock(launch->mutex);
    launch->condition.wait(lock, [&] { return launch->finished; });
  }

 private:
  // Concurrent launches take turns: each worker starts one workgroup of each in rotation.
  std::shared_ptr<LaunchState> pick(Worker& worker) {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < launches_.size(); ++i) {
      launches_.splice(launches_.end(), launches_, launches_.begin());
      if (worker.start(launches_.back())) return launches_.back();
    }
    return nullptr;
  }

  void finish_launches() {
    std::lock_guard lock(mutex_);
    for (auto it = launches_.begin(); it != launches_.end();) {
      LaunchState& launch = **it;
      const bool all_done = launch.done == launch.num_workgroups;
      if (all_done || (launch.faulted && launch.resident == 0)) {
        {
          std::lock_guard launch_lock(launch.mutex);
          launch.finished = true;
          launch.condition.notify_all();
        }
        it = launches_.erase(it);
      } else {
        ++it;
      }
    }
  }

  void work(u32 idx) {
    Worker worker(device_);
    for (;;) {
      // A slice that expired means that somebody may wait for a workgroup that has not started.
      pick(worker);
      const bool ran = worker.run_slice();
      finish_launches();
      if (ran) continue;
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || (idx < active_threads_ && has_work()); });
      if (stopping_) return;
    }
  }
  bool has_work() const {
    for (const auto& launch : launches_)
      if (!launch->faulted && launch->next < launch->num_workgroups &&
          launch->resident < launch->resident_limit)
        return true;
    return false;
  }

  Device& device_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<std::shared_ptr<LaunchState>> launches_;
  std::vector<std::thread> threads_;
  u32 active_threads_ = 0;
  bool stopping_ = false;
};

Device::Device(const Machine& machine, u32 num_gpus)
    : machine_(machine),
      num_gpus_(num_gpus),
      memory_(machine.memory_bytes() * num_gpus,
              std::max(kLeastAddresses, std::bit_ceil(2 * machine.memory_bytes() * num_gpus))),
      workers_(std::make_unique<Workers>(*this)) {}
Device::~Device() = default;

u32 Device::resident_workgroups_per_cu(const Kernel& kernel, u32 workgroup_lanes,
                                       u32 dynamic_lds) const {
  const Limits& have = limits();
  const u32 waves = (workgroup_lanes + kLanes - 1) / kLanes;
  const u64 lds = granules(u64{kernel.lds_bytes} + dynamic_lds, have.lds_granule);
  const u64 vgprs = std::max(u64{have.vgpr_granule},
                             granules(u64{kernel.num_vgprs} + kernel.num_agprs, have.vgpr_granule));
  if (waves == 0 || workgroup_lanes > have.workgroup_lanes || lds > have.lds_bytes ||
      vgprs > have.vgprs_per_simd)
    return 0;
  const u32 waves_per_simd =
      std::min(have.waves_per_simd, have.vgprs_per_simd / static_cast<u32>(vgprs));
  u32 workgroups = waves_per_simd * have.simds_per_cu / waves;
  if (lds > 0) workgroups = std::min<u32>(workgroups, have.lds_bytes / lds);
  if (waves > 1) workgroups = std::min(workgroups, have.barriers);
  // As on a GPU, scratch is allocated for every CU alike.
  const u64 scratch = scratch_bytes_of_wave(kernel.scratch_bytes) * waves * machine_.num_cus();
  if (scratch) workgroups = std::min<u64>(workgroups, std::max(u64{1}, kScratchMemory / scratch));
  return workgroups;
}

u64 Device::resident_workgroups(const Kernel& kernel, u32 workgroup_lanes, u32 dynamic_lds) const {
  const u64 all =
      u64{resident_workgroups_per_cu(kernel, workgroup_lanes, dynamic_lds)} * machine_.num_cus();
  const u32 waves = (workgroup_lanes + kLanes - 1) / kLanes;
  const u64 scratch = scratch_bytes_of_wave(kernel.scratch_bytes) * waves;
  return scratch ? std::min(all, kScratchMemory / scratch) : all;
}

std::string Device::unsupported(const Kernel& kernel) const {
  const auto more = [](u32 bytes, const char* what, u32 limit) {
    return std::to_string(bytes) + " bytes of " + what + ", at most " + std::to_string(limit) +
           " are supported";
  };
  if (kernel.scratch_bytes > kMaxScratchBytes)
    return more(kernel.scratch_bytes, "scratch per lane", kMaxScratchBytes);
  if (kernel.kernarg_bytes > kMaxKernargBytes)
    return more(kernel.kernarg_bytes, "kernel arguments", kMaxKernargBytes);
  if (kernel.lds_bytes > limits().lds_bytes)
    return more(kernel.lds_bytes, "LDS", limits().lds_bytes);
  if (kernel.wavefront_size != kLanes)
    return "waves of " + std::to_string(kernel.wavefront_size) + " lanes; they have 64";
  if (kernel.tg_split) return "workgroups split over several CUs are not supported";
  if (kernel.exception_mask) return "floating point exceptions are not supported";
  return {};
}

namespace {

// hsa_kernel_dispatch_packet_t
struct DispatchPacket {
  u16 header, setup, workgroup_size_x, workgroup_size_y, workgroup_size_z, reserved0;
  u32 grid_size_x, grid_size_y, grid_size_z, private_segment_size, group_segment_size;
  u64 kernel_object, kernarg_address, reserved2, completion_signal;
};
static_assert(sizeof(DispatchPacket) == kPacketBytes);

constexpr u64 kPacketOffset = 0, kQueueOffset = kPacketBytes,
              kKernargOffset = kQueueOffset + kQueueBytes;

// The kernarg segment, rounded up to what scalar loads may fetch beyond the last argument.
u64 segment_bytes(const Kernel& kernel) {
  return kKernargOffset + (u64{kernel.kernarg_bytes} + 63) / 64 * 64;
}

void write_packet(const LaunchState& state, std::byte* host) {
  const Launch& launch = state.launch;
  DispatchPacket packet{};
  packet.setup = 3;
  packet.workgroup_size_x = static_cast<u16>(launch.workgroup_size.x);
  packet.workgroup_size_y = static_cast<u16>(launch.workgroup_size.y);
  packet.workgroup_size_z = static_cast<u16>(launch.workgroup_size.z);
  const Dim3 grid = launch.grid_lanes();
  packet.grid_size_x = grid.x;
  packet.grid_size_y = grid.y;
  packet.grid_size_z = grid.z;
  packet.private_segment_size = launch.kernel->scratch_bytes;
  packet.group_segment_size = state.lds_bytes;
  packet.kernel_object = launch.kernel->descriptor_address;
  packet.kernarg_address = state.kernarg_address;
  std::memcpy(host + kPacketOffset, &packet, sizeof packet);
  u32 queue[kQueueBytes / 4] = {};
  queue[0x40 / 4] = static_cast<u32>(kSharedBase >> 32);   // group_segment_aperture_base_hi
  queue[0x44 / 4] = static_cast<u32>(kPrivateBase >> 32);  // private_segment_aperture_base_hi
  std::memcpy(host + kQueueOffset, queue, sizeof queue);
  std::memcpy(host + kKernargOffset, state.kernarg.data(), state.kernarg.size());
}

}  // namespace

void Device::abort(const std::string& why, u64 queue_address) {
  std::lock_guard lock(running_mutex_);
  for (LaunchState* state : running_) {
    if (queue_address && queue_address != state->queue_address) continue;
    state->fault(FaultKind::kAborted, "aborted: " + why + "\n  kernel " + state->kernel().name);
  }
}

// Says that a launch is running, while it is.
class Device::Running {
 public:
  Running(Device& device, LaunchState& state) : device_(device), state_(state) {
    std::lock_guard lock(device_.running_mutex_);
    device_.running_.push_back(&state_);
  }
  ~Running() {
    std::lock_guard lock(device_.running_mutex_);
    std::erase(device_.running_, &state_);
  }

 private:
  Device& device_;
  LaunchState& state_;
};

LaunchResult Device::execute(const Launch& launch) {
  try {
    return run(launch);
  } catch (const std::bad_alloc&) {
    return {FaultKind::kResources, "not enough resources: no host memory for the launch"};
  }
}

LaunchResult Device::run(const Launch& launch) {
  const Kernel& kernel = *launch.kernel;
  const u32 lanes = launch.workgroup_size.x * launch.workgroup_size.y * launch.workgroup_size.z;
  const u32 per_cu = resident_workgroups_per_cu(kernel, lanes, launch.dynamic_lds_bytes);
  if (per_cu == 0) {
    char text[256];
    std::snprintf(text, sizeof text,
                  "kernel %s cannot be resident: workgroup of %u lanes, %u + %u bytes of LDS (have "
                  "%u), %u VGPRs + %u AGPRs (have %u)",
                  kernel.name.c_str(), lanes, kernel.lds_bytes, launch.dynamic_lds_bytes,
                  limits().lds_bytes, kernel.num_vgprs, kernel.num_agprs, limits().vgprs_per_simd);
    return {FaultKind::kResources, text};
  }
  if (const auto lost = memory_.lost_registration()) {
    char text[160];
    std::snprintf(text, sizeof text,
                  "illegal address: registered host memory at 0x%llx of %llu bytes is no longer "
                  "mapped or writable",
                  static_cast<unsigned long long>(lost->base),
                  static_cast<unsigned long long>(lost->size));
    return {FaultKind::kIllegalAddress, text};
  }
  const DecodedCode& code = decoded(*launch.code, kernel);
  auto state = std::make_shared<LaunchState>(launch, code, machine_);
  // Firmware that knows kernarg preloading enters behind the 256 bytes that load the arguments.
  const u64 entry = kernel.entry_address + (kernel.kernarg_preload_dwords ? 256 : 0);
  state->entry = code.at(entry);
  if (!state->entry)
    return {FaultKind::kIllegalInstruction, "kernel " + kernel.name + " has no code at its entry"};
  state->options = options_;
  state->options.quantum = std::clamp(options_.quantum, 1u, 16u);
  state->lds_bytes = kernel.lds_bytes + launch.dynamic_lds_bytes;
  state->waves_per_workgroup = (lanes + kLanes - 1) / kLanes;
  state->num_workgroups = launch.num_workgroups.count();
  state->resident_limit = resident_workgroups(kernel, lanes, launch.dynamic_lds_bytes);
  if (options_.resident_workgroups)
    state->resident_limit = std::min(state->resident_limit, options_.resident_workgroups);

  std::optional<Allocation> segment;
  const struct Release {
    Memory& memory;
    const std::optional<Allocation>& segment;
    ~Release() {
      if (segment) memory.free(segment->base);
    }
  } release{memory_, segment};
  state->kernarg = launch.kernarg;
  if (launch.queued) {
    state->dispatch_packet_address = launch.queued->packet_address;
    state->queue_address = launch.queued->queue_address;
    state->kernarg_address = launch.queued->kernarg_address;
  } else {
    segment = memory_.allocate(segment_bytes(kernel), MemoryKind::kDevice);
    if (!segment) return {FaultKind::kResources, "no device memory for the kernarg segment"};
    state->dispatch_packet_address = segment->base + kPacketOffset;
    state->queue_address = segment->base + kQueueOffset;
    state->kernarg_address = segment->base + kKernargOffset;
    state->kernarg.resize((u64{kernel.kernarg_bytes} + 63) / 64 * 64);
    fill_hidden_arguments(*state);
    write_packet(*state, segment->host(segment->base));
  }

  const Running running(*this, *state);
  counters_.launches.fetch_add(1, std::memory_order_relaxed);
  if (observer_factory_) state->observer = observer_factory_(*state, observer_context_);
  state->descending_lanes = state->observer && options_.seed % 2 == 1;
  state->starves = state->observer && options_.seed % 3 == 2;
  if (state->starves) state->options.threads = 1;  // whoever can run does, before who stands still
  if (executor_)
    executor_(state, *this, executor_context_);
  else
    workers_->run(state);
  if (state->observer) state->observer->launch_finished(*state);
  return state->result;
}

}  // namespace vdev
