// What the vector ALU and the matrix unit of a SIMD do at the same time: a table per architecture,
// a row per class of instruction (isa/inst.h, Unit), each with its evidence.
#pragma once

#include <array>
#include <span>
#include <string>

#include "isa/inst.h"
#include "timing/arch.h"

namespace vdev::timing {

enum class Beside : u8 {
  kOverlaps,   // issues while the matrix unit works
  kExclusive,  // waits until the matrix unit is free, and holds it as long as the VALU
  kOpen,       // undecided: overlaps or not, as the simulation is told
};

struct Coexecution {
  Unit unit;
  Beside beside;
  u32 Arch::* clk;  // of the VALU (of matrix instructions: none, their passes count)
  u8 after;         // exclusive: clk by which it stays behind the matrix unit's end
  const char* instructions;
  const char* evidence;
};

// A table as the simulation asks it.
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
