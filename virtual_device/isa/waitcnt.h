// s_waitcnt: the counts that it waits for, as SIMM16 encodes them.
#pragma once

#include "isa/inst.h"

namespace vdev {

inline bool is_waitcnt(const Inst& inst) { return inst.row->is(Trait::kWaitcnt); }

struct WaitCounts {
  static constexpr u32 kMaxVm = 63, kMaxLgkm = 15;  // do not wait
  u32 vm, lgkm;

  explicit WaitCounts(const Inst& inst) {
    const u32 imm = static_cast<u32>(inst.imm) & 0xffff;
    vm = (imm & 15) | (imm >> 14 & 3) << 4;
    lgkm = imm >> 8 & 15;
  }
};

}  // namespace vdev
