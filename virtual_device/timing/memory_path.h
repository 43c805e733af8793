// Where the lines of a vector or scalar memory instruction and of code come from, and when they
// arrive: one L1 per CU, the L2 of the simulated XCD, its share of the MALL and of HBM. Who asks
// for a line that is under way waits for it.
//
// What is written stays in the L2 until another line needs its place, a buffer_wbl2, or the end of
// the kernel; stores with sc1 (agent and system scope) go through it. The MALL takes all of it.
// Sooner or later each sector that is dirty there costs HBM a write: it is charged when the sector
// becomes dirty, as if the MALL were full of such lines, which do_bench's flush leaves there, and
// put one out for each it takes in. Reads and writes share HBM's rate.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "arch/arch.h"
#include "isa/footprint.h"
#include "timing/cache.h"
#include "timing/readings.h"

namespace vdev::timing {

struct Traffic {  // bytes of whole lines, by the level that served them
  u64 l1 = 0, l2 = 0, mall = 0, hbm = 0;
  u64 l2_writes = 0, mall_writes = 0, hbm_writes = 0;  // taken by the level
  u64 scalar = 0, scalar_misses = 0;
};

// What outlives a launch: a kernel starts with its vector L1s and scalar caches invalidated. Code
// caches are not: the runtime invalidates them when it loads code (ROCr, on freezing an
// executable).
struct Caches {
  explicit Caches(const Machine& machine);
  void settle();

  Cache l2, mall;
  std::vector<Cache> code;                     // by group of CUs that share one
  std::unordered_map<u64, double> translated;  // when, by number of 64 KiB

 private:
  Caches(const Machine& machine, const Timing& timing);
};

class MemoryPath {
 public:
  // `clock_ghz` turns ns into clk.
  MemoryPath(const Machine& machine, double clock_ghz, const Readings& readings, Caches& kept);

  // Code that ran before, up to what a code cache holds.
  void preload(u64 pc, u64 end);

  // When everything that `memory` touches in device memory is there (loads) or written (stores) as
  // far as the instruction's scope asks.
  u64 vector(u32 cu, const Inst& inst, const Footprint& memory, u64 now);
  // What another XCD writes through its L2 is in the MALL.
  void written_elsewhere(const Inst& inst, const Footprint& memory);
  // buffer_wbl2: when a wave that waits for it [T LLVM: it counts in vmcnt] knows that the L2 has
  // nothing that is newer than below. As of loads and stores, a trip to the L2, also when nothing
  // is, and of what is written back one beyond it.
  u64 write_back(u64 now);
  // The end of a kernel, whose last wave ended at `now`: when the L2 has nothing that is newer than
  // below.
  u64 release(u64 now);
  // buffer_inv
  void invalidate(u32 cu) { cus_[cu].l1.clear(); }
  u64 scalar(u32 cu, const Footprint& memory, u64 now);
  // When the line of code is there, `now` at the earliest.
  u64 fetch(u32 cu, u64 pc, u64 now);
  const Traffic& traffic() const { return traffic_; }
  double l1_busy() const;
  double l2_busy() const { return l2_.busy(); }
  double hbm_busy() const;

 private:
  struct PerCu {
    Cache l1;
    Server l1_out, from_l2, to_l2;
  };
  struct Line {
    u64 number;
    u8 sectors;  // bit per 64 bytes
  };
  void find_lines(const FootprintPart& part);
  // For how long the address of a line is not known yet.
  double translation(u64 line, double now);
  // When HBM has served bytes of a line.
  double in_hbm(u64 line, double bytes, double now);
  // When the L2 has a line of its own size.
  double in_l2(u64 line, double now);
  // When the memory side has taken sectors of a line from the L2.
  double below_l2(u64 line, u8 sectors, double now);
  double store(PerCu& from, const Line& line, double bytes, bool through, double now);
  double atomic(PerCu& from, const Line& line, double bytes, double now);

  const Timing& timing_;
  const double clk_per_ns_;
  const Readings readings_;
  std::vector<PerCu> cus_;
  std::vector<Cache> scalar_;  // by group of CUs that share one
  Caches& kept_;
  Server l2_, l2_write_, mall_;
  std::vector<Server> hbm_;  // its channels
  Traffic traffic_;
  std::vector<Line> lines_;  // of the access at hand
};

}  // namespace vdev::timing
