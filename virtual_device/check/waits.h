// The wait counters of one wave: which memory operations may still be under way, what they will
// write, and when it is safe to touch that. Loads arrive as late as the waits allow.
//
// Rules (ISA manual 4.4; LLVM's SIInsertWaitcnts agrees):
//   vmcnt    VMEM loads, stores and atomics, in order; buffer_wbl2; not buffer_inv. 6 bits.
//   lgkmcnt  LDS in order among themselves; SMEM and messages in any order. 4 bits.
//   FLAT     counts in both, out of order in both: done when both have been waited down to 0.
//   expcnt   nothing on gfx942: stores read their data when they issue.
// An operation is certainly done after a wait for N when more than N operations that cannot finish
// before it (itself included) have been issued: not when the counter merely could be low. That no
// more operations are under way than a counter counts proves nothing: a counter at its maximum is
// said to hold up the issue, but compilers never rely on it. What does is a finding of its own.
#pragma once

#include <bitset>
#include <deque>
#include <map>
#include <vector>

#include "check/step.h"

namespace vdev {

enum class Counter : u8 { kVm, kLgkm };

// What the executions of one s_waitcnt had to wait for at most, for the advice on over-waiting.
struct WaitSite {
  static constexpr u32 kNothing = ~u32{0};
  u64 executed[2] = {0, 0};              // by Counter, where the field waits at all
  u32 needed[2] = {kNothing, kNothing};  // the largest count that would have done
  u32 field[2] = {kNothing, kNothing};
};
using WaitSites = std::map<const Inst*, WaitSite>;

class Waits {
 public:
  // `late`: loads arrive at the last moment.
  void start(const Kernel& kernel, bool late);
  // Before an instruction: applies s_waitcnt, checks registers.
  void before(const Step& step);
  // After it: takes note of what it began.
  void after(const Step& step);
  // The wave has ended.
  void finish();

  MemoryOrder order;
  WaitSites sites;

 private:
  enum class Queue : u8 { kVmem, kLds, kSmem, kFlat };
  struct Pending {
    Queue queue;
    bool vm_done = false, lgkm_done = false;  // FLAT
    bool reported = false;
    bool saturated = false;  // as many have been issued since as the counter counts
    u32 vmem_number = 0, lds_number = 0, smem_number = 0;
    const Inst* inst = nullptr;
    RegisterRange dst;  // count 0: none
    u64 mask = 0;
    std::vector<Reg> vector_data;  // arrived, not delivered
    std::vector<u32> scalar_data;
    std::vector<std::pair<u32, u32>> lds_data;  // LDS address, dword
  };
  // An operation that a wait has completed and nobody has needed yet.
  struct Fresh {
    RegisterRange dst;
    Counter counter;
    u32 position;  // operations of its queue issued after it
    const Inst* site;
  };

  void wait(const Step& step);
  // Completes what waits for these counts prove to be done; `site`: by which s_waitcnt, or null.
  void apply(Wave& wave, u32 vm, u32 lgkm, const Inst* site);
  bool complete(Pending& p, u32 vm, u32 lgkm, u32& vm_seen, u32& lds_seen, u32& position,
                Counter& counter) const;
  void saturate();
  template <class Which>
  void forget(Which which) {
    std::erase_if(pending_, [&](const Pending& p) {
      if (!which(p)) return false;
      num_vmem_ -= p.queue == Queue::kVmem;
      num_lds_ -= p.queue == Queue::kLds;
      return true;
    });
  }
  void deliver(Wave& wave, const Pending& p);
  void rebuild();
  void check_registers(const Step& step);
  void conflict(const Step& step, const RegisterRange& range, bool write);
  void need(const RegisterRange& range);
  void need_all();
  void withhold(Step const& step, Pending& p);
  static size_t bit(RegisterFile file, u32 index) {
    return file == RegisterFile::kVector ? index : 512 + index;
  }
  template <class Bits>
  static bool any(const Bits& bits, const RegisterRange& r) {
    for (u32 i = 0; i < r.count; ++i)
      if (bits[bit(r.file, r.first + i)]) return true;
    return false;
  }

  bool late_ = true;
  u32 num_vgprs_ = 0;
  std::deque<Pending> pending_;     // in issue order
  u32 num_vmem_ = 0, num_lds_ = 0;  // of them
  std::bitset<512 + 132> pending_bits_, fresh_bits_;
  std::vector<Fresh> fresh_;
};

}  // namespace vdev
