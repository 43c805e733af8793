// LDS bytes that two waves of a workgroup touch without a barrier between, or that one wave touches
// while its own load to LDS is under way.
//
// An access is ordered before what other waves do after a barrier when it was complete (waited for)
// as its wave arrived there. LDS instructions of one wave are in order among themselves. Two waves
// that write the same value, as compilers do with replicated data, have a finding of their own that
// is no error: kSameValueRace. What a load to LDS brings is known once it has been executed.
#pragma once

#include <vector>

#include "check/step.h"

namespace vdev {

class LdsRaces {
 public:
  void start(const Workgroup& workgroup);
  // One part, in LDS, of what an instruction is about to touch.
  void access(const Step& step, const FootprintPart& part);
  // The instruction has been executed, and what it loads is in LDS.
  void after(const Step& step);
  // The wave executes s_barrier, or has ended.
  void arrived(const Wave& wave, const MemoryOrder& order);
  // All waves have: what was complete then is ordered.
  void released();

 private:
  // Last access of a byte, packed: number of the operation, wave, kind.
  struct Tag {
    u32 number = 0;  // 0: none
    u16 wave = 0;
    bool dma = false;  // numbered as VMEM
    bool atomic = false;
    bool operator==(const Tag&) const = default;
  };
  struct Order {
    u32 lds = 0, vmem = 0;
    bool covers(const Tag& t) const { return t.number <= (t.dma ? vmem : lds); }
  };
  u8 written(const Workgroup& workgroup, u64 byte) const;
  bool stores_same(const Wave& wave, const FootprintPart& part, u32 byte, int lane) const;
  void check_write(const Step& step, const FootprintPart& part, u32 byte, int lane, const Tag& by);
  // An access without order behind another wave's write; `same`: it writes what is there.
  void report_race(const Step& step, const Tag& last, u32 byte, int lane, bool is_write, bool same);
  void check_readers(const Step& step, u32 byte, int lane, const Tag& by);
  u64 producer(const Report& report, const Tag& tag) const;
  void note(const Step& step, const Tag& tag);

  u32 num_waves_ = 0, num_bytes_ = 0;
  std::vector<Tag> writers_;               // by byte
  std::vector<u8> loaded_;                 // by byte: what its last load to LDS has brought
  std::vector<std::vector<u32>> readers_;  // by wave, by byte: number of its last read
  std::vector<Order> arrived_, ordered_;   // by wave
  // Loads to LDS that race with another wave's write, and what was there before.
  struct Raced {
    Tag last;
    u32 byte;
    int lane;
    std::vector<u8> before;
  };
  std::vector<Raced> raced_;
  // Who issued an operation, by wave and number, for reports: the last kHistory of them.
  static constexpr u32 kHistory = 4096;
  std::vector<const Inst*> lds_history_, vmem_history_;
};

}  // namespace vdev
