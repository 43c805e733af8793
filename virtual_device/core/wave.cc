#include "core/wave.h"

#include <bit>
#include <cstdio>

#include "core/launch_state.h"
#include "core/observer.h"
#include "core/worker.h"
#include "numerics/float_rules_mxcsr.h"

namespace vdev {

void raise(FaultKind kind, std::string message, int lane, u64 address) {
  throw Fault{kind, std::move(message), lane, address};
}

void Wave::set_mode(u32 value) {
  mode = value;
  mxcsr = mxcsr_f32(fp = fp_mode_from_register(mode));
  mxcsr64 = mxcsr_f64(fp);
  special = (mode & (kModeGprIdxEnable | kModeVskip)) != 0;
}

std::byte* Workgroup::try_global(u64 address, u64 bytes) {
  return worker->translate(address, bytes);
}

void Workgroup::global_fault(u64 address, u64 bytes, Access access, int lane) {
  const Memory& memory = worker->memory();
  const char* verb = access == Access::kRead    ? "read"
                     : access == Access::kWrite ? "write"
                                                : "atomic";
  char text[256];
  std::snprintf(text, sizeof text, "%s of %llu bytes at 0x%llx is outside every allocation", verb,
                static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(address));
  std::string message = text;
  if (memory.is_unmapped(address))
    message += memory.was_freed(address) ? " (what was mapped there has been unmapped)"
                                         : " (nothing is mapped there in a reserved range)";
  else if (memory.was_freed(address))
    message += " (the allocation there was freed)";
  if (const auto near = memory.nearest(address)) {
    const bool above = address >= near->base;
    std::snprintf(
        text, sizeof text, "; nearest: [0x%llx, 0x%llx), %llu bytes %s it",
        static_cast<unsigned long long>(near->base),
        static_cast<unsigned long long>(near->base + near->size),
        static_cast<unsigned long long>(above ? address - near->base : near->base - address),
        above ? "past the start of" : "before");
    message += text;
  }
  const u32 gpu = launch->launch.gpu;
  if (const auto found = memory.find(address); found && !found->is_seen_by(gpu))
    message = std::string(verb) + " by GPU " + std::to_string(gpu) +
              " of memory to which it has no access, as GPU " +
              std::to_string(std::countr_zero(found->gpus)) + " has";
  raise(FaultKind::kIllegalAddress, std::move(message), lane, address);
}

void Workgroup::local_fault(u32 address, u32 bytes, Access access, int lane) {
  char text[160];
  std::snprintf(text, sizeof text, "LDS %s of %u bytes at 0x%x, beyond the %zu bytes allocated",
                access == Access::kRead ? "read" : "write", bytes, address, lds.size());
  raise(FaultKind::kLdsBounds, text, lane, address);
}

void Workgroup::progress() { launch->progress.fetch_add(1, std::memory_order_relaxed); }

void Workgroup::arrive(Wave& wave) {
  wave.state = WaveState::kAtBarrier;
  ++waves_at_barrier;
  if (waves_at_barrier + waves_done == num_waves) release_barrier();
}

void Workgroup::finish(Wave& wave) {
  wave.state = WaveState::kDone;
  ++waves_done;
  progress();
  // Waves that ended no longer count: the others may already be waiting for nobody.
  if (waves_at_barrier && waves_at_barrier + waves_done == num_waves) release_barrier();
}

void Workgroup::release_barrier() {
  for (Wave* wave : waves)
    if (wave->state == WaveState::kAtBarrier) wave->state = WaveState::kRunning;
  waves_at_barrier = 0;
  if (launch->observer) launch->observer->barrier_released(*this);
}

}  // namespace vdev
