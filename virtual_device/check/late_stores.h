// Stores with sc1 and atomics without return that are performed late: as late as the waits of their
// wave allow. Whoever relies on them without a wait or a barrier then meets what memory held
// before. They are coherent accesses, which never race (coherence.h), so that only a wrong result
// shows what is missing; plain stores are performed at once, because there the race is reported.
//
// What performs them:
//   - a wait of their wave that covers them; no atomic or store of the wave does, nor s_barrier;
//   - a wait that covers a buffer_wbl2 sc1 which any wave of the workgroup issued after them;
//   - an access of the workgroup to what they touch: its waves share an L1, which keeps the order;
//   - the end of the workgroup. That of the wave does not: s_endpgm waits for no store;
//   - kPatience instructions of the workgroup: others may poll, and memory is slow, not stuck.
#pragma once

#include <vector>

#include "check/step.h"

namespace vdev {

// Those of one workgroup.
class LateStores {
 public:
  // The seed and the workgroup choose which instructions are late; `on`: whether any is.
  void start(u64 seed, u64 workgroup, bool on);
  // When the waits before an instruction have been applied to `order`.
  void settle(const Wave& wave, const MemoryOrder& order) {
    if (!pending_.empty()) [[unlikely]]
      perform_waited(wave, order.vmem_completed);
  }
  // Before an instruction is executed. True: that is done later, by this.
  bool before(const Step& step);
  // The waves are still there.
  void finish() { perform_through(pending_.size()); }

 private:
  static constexpr u32 kPatience = 4096;
  // What touches no more bytes than this may be a signal. It overtakes late data.
  static constexpr u64 kSignalBytes = 16;
  // What an instruction reads.
  struct Registers {
    u64 exec = 0;
    std::vector<Reg> vectors;
    std::vector<u32> scalars;
    Registers() = default;
    Registers(const Wave& wave, const RegisterUse& use);
    void write_to(Wave& wave, const RegisterUse& use) const;
  };
  struct Pending {
    Wave* wave;
    const Inst* inst;       // null: a write-back
    u32 number;             // as in MemoryOrder, VMEM
    u64 low = 0, high = 0;  // device addresses: pending ones never overlap
    const RegisterUse* use = nullptr;
    Registers registers;
  };

  bool chosen(const Step& step, u64 bytes) const;
  void perform(const Pending& late);
  void perform_waited(const Wave& wave, u32 completed);
  void perform_overlapping(u64 low, u64 high);
  void perform_through(size_t count);  // the oldest ones
  template <class Which>
  void perform_if(Which which);

  bool on_ = false;
  u64 seed_ = 0, workgroup_ = 0;
  u32 age_ = 0;                   // instructions of the workgroup since something was pending
  std::vector<Pending> pending_;  // in issue order
};

}  // namespace vdev
