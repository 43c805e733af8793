// Control flow of a workgroup: barriers, lanes, the bounds of the kernel's code.
#pragma once

#include <vector>

#include "check/step.h"

namespace vdev {

class Control {
 public:
  void start(const Workgroup& workgroup);
  void step(const Step& step);
  // The workgroup ended without a fault.
  void finish(const Workgroup& workgroup, Report& report);

 private:
  struct WaveState {
    u64 first = 0, last = 0;  // code of the function it is in: device addresses
    bool jumped = false;      // the last instruction was a call, a return or a computed jump
    u32 barriers = 0;
    const Inst* last_barrier = nullptr;
    const Inst* end = nullptr;
  };
  void check_place(const Step& step, WaveState& state);

  std::vector<WaveState> waves_;
};

}  // namespace vdev
