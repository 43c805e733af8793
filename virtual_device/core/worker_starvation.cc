// How a worker treats waves that stand still; see Starvation.
#include "core/worker.h"

namespace vdev {

void Worker::run_until_starved(Starvation& starvation, Wave& wave, u32 quantum) {
  for (u32 i = 0; i < quantum && wave.state == WaveState::kRunning && !wave.sleeping &&
                  !starvation.stands_still(wave);
       ++i) {
    const Inst& inst = *wave.ip;
    run_wave(wave, 1);
    starvation.executed(inst);
  }
}

// When all workgroups have had a slice and nobody has made progress, somebody waits for a wave that
// stands still.
void Worker::end_a_starvation(LaunchState& launch) {
  const u64 progress = launch.progress;
  if (launch.progress_seen.exchange(progress) != progress) launch.idle_slices = 0;
  if (++launch.idle_slices <= residents_.size()) return;
  launch.idle_slices = 0;
  Starvation* least = nullptr;
  for (const auto& resident : residents_) {
    Starvation& one = resident->starvation;
    if (resident->launch.get() == &launch && one.begun() && (!least || one.rank() < least->rank()))
      least = &one;
  }
  if (least) least->end();
}

}  // namespace vdev
