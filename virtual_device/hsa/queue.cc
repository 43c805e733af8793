#include "hsa/queue.h"

#include <bit>
#include <cstdio>
#include <cstring>
#include <thread>

#include "core/apertures.h"
#include "hsa/api.h"
#include "hsa/environment.h"

namespace vdev::hsa {
namespace {

std::atomic<u64> next_queue_id{0};
constexpr auto kAbortAgain = std::chrono::milliseconds(10);

Status status_of(FaultKind fault) {
  switch (fault) {
    case FaultKind::kNone:
      return kSuccess;
    case FaultKind::kIllegalAddress:
      return kMemoryFault;
    case FaultKind::kScratchBounds:
    case FaultKind::kLdsBounds:
    case FaultKind::kMisaligned:
      return kMemoryApertureViolation;
    case FaultKind::kOutsideCode:
    case FaultKind::kIllegalInstruction:
      return kIllegalInstruction;
    case FaultKind::kResources:
      return kOutOfResources;
    case FaultKind::kDeadlock:
    case FaultKind::kRunaway:
    case FaultKind::kTrap:
    case FaultKind::kAborted:
      return kException;
  }
  return kError;
}

u32 packet_type(u16 header) { return header & 0xff; }

// A kernel with as much scratch as the packet says, where that is more than the descriptor does:
// the depth of its calls is not known.
std::shared_ptr<const Kernel> kernel_of(Dispatchable& found, u32 scratch_bytes) {
  if (scratch_bytes <= found.kernel->scratch_bytes) return {found.code, found.kernel};
  auto& kernel = found.with_scratch[scratch_bytes];
  if (kernel == nullptr) {
    auto copy = std::make_shared<Kernel>(*found.kernel);
    copy->scratch_bytes = scratch_bytes;
    kernel = std::move(copy);
  }
  return kernel;
}

// A launch, and what keeps its kernel.
struct Dispatch {
  Launch launch;
  std::shared_ptr<const Kernel> kernel;
};

std::string text_of(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

// The launch that a packet asks for; what is wrong with it in `wrong`.
std::optional<Dispatch> launch_of(System& system, const DispatchPacket& packet,
                                  std::string& wrong) {
  Dispatch dispatch;
  Launch& launch = dispatch.launch;
  {
    std::lock_guard lock(system.code_mutex);
    const auto it = system.dispatchable.find(packet.kernel_object);
    if (it == system.dispatchable.end()) {
      wrong = text_of("no kernel has its descriptor at 0x%llx",
                      static_cast<unsigned long long>(packet.kernel_object));
      return std::nullopt;
    }
    launch.code = it->second.code;
    dispatch.kernel = kernel_of(it->second, packet.private_segment_size);
    launch.kernel = dispatch.kernel.get();
  }
  const Kernel& kernel = *launch.kernel;
  const u32 dimensions = packet.setup & 3;
  launch.workgroup_size = {packet.workgroup_size_x, dimensions > 1 ? packet.workgroup_size_y : 1u,
                           dimensions > 2 ? packet.workgroup_size_z : 1u};
  const Dim3 grid = {packet.grid_size_x, dimensions > 1 ? packet.grid_size_y : 1u,
                     dimensions > 2 ? packet.grid_size_z : 1u};
  const Dim3 size = launch.workgroup_size;
  if (size.count() == 0 || grid.count() == 0) {
    wrong = "a grid or a workgroup without lanes";
    return std::nullopt;
  }
  launch.num_workgroups = workgroups_of(grid, size);
  launch.remainder = {grid.x % size.x, grid.y % size.y, grid.z % size.z};
  // What the kernel was compiled for does not matter: AMD's own blit kernels have twice as many.
  const u64 most = system.device.limits().workgroup_lanes;
  if (size.count() > most) {
    wrong = text_of("a workgroup of %llu lanes, of which a CU takes %llu",
                    static_cast<unsigned long long>(size.count()),
                    static_cast<unsigned long long>(most));
    return std::nullopt;
  }
  if (packet.group_segment_size < kernel.lds_bytes) {
    wrong = text_of("%u bytes of LDS, of which the kernel alone has %u", packet.group_segment_size,
                    kernel.lds_bytes);
    return std::nullopt;
  }
  launch.dynamic_lds_bytes = packet.group_segment_size - kernel.lds_bytes;
  if (wrong = system.device.unsupported(kernel); !wrong.empty()) return std::nullopt;
  launch.kernarg.resize(kernel.kernarg_bytes);
  if (kernel.kernarg_bytes != 0) {
    const auto segment = system.memory.find(packet.kernarg_address);
    if (!segment || !segment->contains(packet.kernarg_address, kernel.kernarg_bytes)) {
      wrong =
          text_of("its %u bytes of arguments at 0x%llx are not the device's", kernel.kernarg_bytes,
                  static_cast<unsigned long long>(packet.kernarg_address));
      return std::nullopt;
    }
    std::memcpy(launch.kernarg.data(), segment->host(packet.kernarg_address), kernel.kernarg_bytes);
  }
  return dispatch;
}

bool is_zero(const System& system, Signal signal) {
  const SignalBlock* block = system.signals.find(signal);
  return block == nullptr || Signals::load(*block) == 0;
}

std::shared_ptr<Queue> find_queue(System& system, const QueueHeader* queue) {
  std::lock_guard lock(system.queues_mutex);
  const auto it = system.queues.find(reinterpret_cast<u64>(queue));
  if (it == system.queues.end()) throw Refused{kInvalidQueue};
  return it->second;
}

// Indices are in the application's reach: as on hardware, nothing is looked up.
QueueBlock& block_of(const QueueHeader* queue) {
  return *reinterpret_cast<QueueBlock*>(const_cast<QueueHeader*>(queue));
}

}  // namespace

Queue::Queue(System& system, u32 gpu, const Places& places, u32 num_packets, u32 type,
             QueueErrorHandler on_error, void* data)
    : system_(system), gpu_(gpu), places_(places), on_error_(on_error), data_(data) {
  QueueBlock& b = block();
  b = {};
  b.queue = {type,
             1,
             reinterpret_cast<void*>(places.ring.base),
             {reinterpret_cast<u64>(places.doorbell)},
             num_packets,
             0,
             next_queue_id++};
  b.group_segment_aperture_base_hi = static_cast<u32>(kSharedBase >> 32);
  b.private_segment_aperture_base_hi = static_cast<u32>(kPrivateBase >> 32);
  auto* packet = reinterpret_cast<std::byte*>(places.ring.base);
  for (u32 i = 0; i < num_packets; ++i, packet += kPacketBytes) {
    const u16 header = kInvalid;
    std::memcpy(packet, &header, sizeof header);
  }
}

void Queue::start() {
  std::thread([self = shared_from_this()] { self->main(); }).detach();
}

void Queue::ring() {
  {
    std::lock_guard lock(mutex_);
    ++num_rings_;
    idle_ = false;
  }
  rung_.notify_one();
}

bool Queue::drain(Signals::Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return idle_changed_.wait_until(lock, deadline, [&] { return idle_ || ended_ || failed_; });
}

bool Queue::on_own_thread() {
  std::lock_guard lock(mutex_);
  return thread_ == std::this_thread::get_id();
}

void Queue::close() {
  closing_ = true;
  system_.signals.notify();
  std::unique_lock lock(mutex_);
  rung_.notify_one();
  do {  // again, of a launch that was about to begin
    system_.device.abort("its queue is destroyed", places_.block.base);
  } while (!idle_changed_.wait_for(lock, kAbortAgain, [&] { return ended_; }));
}

void Queue::main() {
  std::unique_lock lock(mutex_);
  thread_ = std::this_thread::get_id();
  u64 seen = 0;
  while (!closing_) {
    if (seen == num_rings_) {
      idle_ = true;
      idle_changed_.notify_all();
      rung_.wait(lock, [&] { return closing_ || seen != num_rings_; });
      continue;
    }
    seen = num_rings_;
    lock.unlock();
    while (!closing_ && !failed_ && process_next()) {
    }
    lock.lock();
  }
  ended_ = true;
  idle_changed_.notify_all();
}

bool Queue::process_next() {
  QueueBlock& b = block();
  const u64 index = b.read_dispatch_id;
  auto* const packet =
      static_cast<std::byte*>(b.queue.base_address) + index % b.queue.size * kPacketBytes;
  auto& header = *reinterpret_cast<u16*>(packet);
  if (packet_type(std::atomic_ref(header).load(std::memory_order_acquire)) == kInvalid) {
    return false;
  }
  try {
    process(packet, index);
  } catch (const std::bad_alloc&) {
    fail(kOutOfResources, "no host memory for a packet");
  }
  if (failed_) return false;
  std::atomic_ref(header).store(kInvalid, std::memory_order_release);
  std::atomic_ref(b.read_dispatch_id).store(index + 1, std::memory_order_release);
  return true;
}

bool Queue::wait_for(const std::function<bool()>& ready) {
  system_.signals.wait([&] { return closing_ || ready(); });
  return !closing_;
}

// Packets are processed one after the other, so that the barrier bit asks for nothing more.
void Queue::process(std::byte* packet, u64 index) {
  const u64 start = system_.now_ns();
  u16 header = 0;
  std::memcpy(&header, packet, sizeof header);
  switch (packet_type(header)) {
    case kKernelDispatch: {
      DispatchPacket dispatched;
      std::memcpy(&dispatched, packet, sizeof dispatched);
      dispatch(dispatched, reinterpret_cast<u64>(packet));
      return;
    }
    case kBarrierAnd:
    case kBarrierOr: {
      BarrierPacket barrier;
      std::memcpy(&barrier, packet, sizeof barrier);
      const bool any = packet_type(header) == kBarrierOr;
      const bool open = wait_for([&] {
        bool all = true, one = false, none = true;
        for (const Signal signal : barrier.dep_signal) {
          if (signal.handle == 0) continue;
          none = false;
          const bool zero = is_zero(system_, signal);
          all &= zero;
          one |= zero;
        }
        return none || (any ? one : all);
      });
      if (open) finish(barrier.completion_signal, start);
      return;
    }
    case kVendorSpecific: {
      BarrierValuePacket barrier;
      std::memcpy(&barrier, packet, sizeof barrier);
      if (barrier.format != kBarrierValueFormat) {
        return fail(kInvalidPacketFormat,
                    text_of("packet %llu has the vendor's format %u, which is not supported",
                            static_cast<unsigned long long>(index), u32{barrier.format}));
      }
      const bool open = wait_for([&] {
        const SignalBlock* signal = system_.signals.find(barrier.signal);
        return signal == nullptr || holds(static_cast<Condition>(barrier.condition),
                                          Signals::load(*signal) & barrier.mask, barrier.value);
      });
      if (open) finish(barrier.completion_signal, start);
      return;
    }
  }
  fail(kInvalidPacketFormat, text_of("packet %llu has type %u, which is not supported",
                                     static_cast<unsigned long long>(index), packet_type(header)));
}

void Queue::dispatch(const DispatchPacket& packet, u64 address) {
  const u64 start = system_.now_ns();
  std::string wrong;
  auto dispatch = launch_of(system_, packet, wrong);
  if (!dispatch) return fail(kInvalidPacketFormat, "a dispatch is refused: " + wrong);
  dispatch->launch.gpu = gpu_;
  dispatch->launch.queued = {address, packet.kernarg_address, places_.block.base};
  const LaunchResult result = system_.device.execute(dispatch->launch);
  if (result.fault != FaultKind::kNone) return fail(status_of(result.fault), result.report);
  finish(packet.completion_signal, start);
}

void Queue::finish(Signal completion, u64 start_ns) {
  if (completion.handle == 0) return;
  SignalBlock* const signal = system_.signals.find(completion);
  if (signal == nullptr) return;
  signal->start_ts = start_ns;
  signal->end_ts = std::max(start_ns + 1, system_.now_ns());
  system_.signals.add(*signal, -1);
}

void Queue::fail(Status status, const std::string& report) {
  const bool told = !system_.ends && !closing_;
  if (!closing_) std::fprintf(stderr, "amdattn: %s\n", report.c_str());
  std::fflush(stderr);
  {
    std::lock_guard lock(mutex_);
    failed_ = true;
  }
  idle_changed_.notify_all();
  if (!told) return;
  write_results_of_fault(system_.process);  // whoever is told may end the process
  const SystemEventHandler on_event = system_.event_handler;
  if (status == kMemoryFault && on_event != nullptr) {
    const MemoryFaultEvent event{0, gpu_agent(gpu_), 0, 1};
    on_event(&event, system_.event_data);
  }
  if (on_error_ != nullptr) on_error_(status, &block().queue, data_);
}

HSA_API hsa_queue_create(Agent agent, u32 num_packets, u32 type, QueueErrorHandler on_error,
                         void* data, u32, u32, QueueHeader** queue) {
  return api([&](System& system) {
    const auto gpu = system.gpu_of(agent);
    require(gpu.has_value(), kInvalidAgent);
    require(queue != nullptr && std::has_single_bit(num_packets));
    require(type <= kQueueCooperative, kInvalidQueueCreation);
    Queue::Places places;
    const auto place = [&](u64 bytes) {
      const auto found = system.memory.allocate(bytes, MemoryKind::kHost, 0, Fill::kZero);
      require(found.has_value(), kOutOfResources);
      return *found;
    };
    places.block = place(sizeof(QueueBlock));
    places.ring = place(u64{num_packets} * kPacketBytes);
    places.doorbell = system.signals.create(0, kDoorbell, places.block.base);
    require(places.doorbell != nullptr, kOutOfResources);
    const auto made =
        std::make_shared<Queue>(system, *gpu, places, num_packets, type, on_error, data);
    {
      std::lock_guard lock(system.queues_mutex);
      system.queues.emplace(places.block.base, made);
    }
    made->start();
    *queue = &made->block().queue;
    return kSuccess;
  });
}

HSA_API hsa_queue_destroy(QueueHeader* handle) {
  return api([&](System& system) {
    std::shared_ptr<Queue> queue;
    {
      std::lock_guard lock(system.queues_mutex);
      const auto it = system.queues.find(reinterpret_cast<u64>(handle));
      require(it != system.queues.end(), kInvalidQueue);
      queue = it->second;
      require(!queue->on_own_thread(), kInvalidQueue);  // its error handler cannot end it
      system.queues.erase(it);
    }
    queue->close();
    const Queue::Places& places = queue->places();
    system.signals.destroy({reinterpret_cast<u64>(places.doorbell)});
    system.memory.free(places.ring.base);
    system.memory.free(places.block.base);
    return kSuccess;
  });
}

HSA_EXPORT u64 hsa_queue_load_read_index_relaxed(const QueueHeader* queue) {
  return std::atomic_ref(block_of(queue).read_dispatch_id).load(std::memory_order_relaxed);
}

HSA_EXPORT u64 hsa_queue_load_read_index_scacquire(const QueueHeader* queue) {
  return std::atomic_ref(block_of(queue).read_dispatch_id).load(std::memory_order_acquire);
}

HSA_EXPORT u64 hsa_queue_load_write_index_relaxed(const QueueHeader* queue) {
  return std::atomic_ref(block_of(queue).write_dispatch_id).load(std::memory_order_relaxed);
}

HSA_EXPORT u64 hsa_queue_add_write_index_screlease(const QueueHeader* queue, u64 count) {
  return std::atomic_ref(block_of(queue).write_dispatch_id)
      .fetch_add(count, std::memory_order_release);
}

// The model has one kind of queue, and all CUs.
HSA_API hsa_amd_queue_set_priority(QueueHeader* handle, u32) {
  return api([&](System& system) {
    find_queue(system, handle);
    return kSuccess;
  });
}

HSA_API hsa_amd_queue_cu_set_mask(const QueueHeader* handle, u32, const u32*) {
  return api([&](System& system) {
    find_queue(system, handle);
    return refuse_call("hsa_amd_queue_cu_set_mask");
  });
}

HSA_API hsa_amd_profiling_set_profiler_enabled(QueueHeader* handle, int) {
  return api([&](System& system) {
    find_queue(system, handle);
    return kSuccess;  // every packet is timed
  });
}

}  // namespace vdev::hsa
