// What the parts of checked mode see of one instruction, before and after it is executed.
#pragma once

#include "check/report.h"
#include "isa/footprint.h"
#include "isa/register_use.h"

namespace vdev {

// Memory operations of a wave in program order. An operation is complete when a wait has covered
// it: its number is then at most the number completed of its kind.
struct MemoryOrder {
  u32 vmem_issued = 0, vmem_completed = 0;  // MUBUF, MTBUF, FLAT, GLOBAL, SCRATCH: loads and stores
  u32 lds_issued = 0, lds_completed = 0;    // DS, and FLAT
  u32 smem_issued = 0, smem_completed = 0;
};

struct Step {
  Wave& wave;
  const Inst& inst;
  const RegisterUse& use;
  const Footprint* memory;   // null: touches none. As it was before the instruction ran.
  const MemoryOrder& order;  // before: without this instruction; after: with it
  Report& report;
  u64 pc() const { return report.pc(inst); }
};

}  // namespace vdev
