// What may watch a launch, instruction by instruction: checked mode and the performance model. The
// core knows no more of them than this; a launch without an observer runs another loop.
#pragma once

#include <memory>

#include "core/types.h"

namespace vdev {

struct Inst;
struct LaunchState;
struct Wave;
struct Workgroup;
struct Fault;

// One per launch. Calls for one workgroup come from one thread; workgroups run on several.
class Observer {
 public:
  virtual ~Observer() = default;
  // Registers and LDS hold what the wave starts with. May set Workgroup::shadow, Wave::shadow.
  virtual void workgroup_started(Workgroup& workgroup) = 0;
  // Around the execution of one instruction; `wave.ip` is `inst` before, its successor after.
  // May throw Fault. False: the wave goes on without executing it; the observer does that later.
  virtual bool before(Wave& wave, const Inst& inst) = 0;
  virtual void after(Wave& wave, const Inst& inst) = 0;
  // Every wave that is alive has arrived; they have not gone on yet.
  virtual void barrier_released(Workgroup& workgroup) = 0;
  // Instead of `after`; `wave` and `inst` are what ran last.
  virtual void faulted(Wave& wave, const Inst& inst, const Fault& fault) = 0;
  // Also after a fault. Frees the shadows.
  virtual void workgroup_finished(Workgroup& workgroup) = 0;
  // No workgroup runs any more.
  virtual void launch_finished(LaunchState& launch) = 0;
};

// Makes the observer of a launch that is about to start; null: nobody watches.
using ObserverFactory = std::shared_ptr<Observer> (*)(LaunchState& launch, void* context);

}  // namespace vdev
