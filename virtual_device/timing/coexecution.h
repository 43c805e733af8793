// What the vector ALU and the matrix unit of a SIMD do at the same time: the architecture's table
// (arch/timing.h, Coexecution) as the simulation asks it.
#pragma once

#include <array>

#include "arch/arch.h"

namespace vdev::timing {

class UnitTimes {
 public:
  struct Time {
    u32 clk = 0;
    u32 after = 0;
    bool exclusive = false;
  };
  // `trans_exclusive` decides the rows that are open.
  UnitTimes(const Arch& arch, bool trans_exclusive);
  const Time& operator[](Unit unit) const { return times_[static_cast<size_t>(unit)]; }

 private:
  std::array<Time, kNumUnits> times_{};
};

}  // namespace vdev::timing
