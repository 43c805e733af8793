// Where the lines of a vector or scalar memory instruction and of code come from, and when they
// arrive: one L1 per CU, the L2 of the simulated XCD, its share of the MALL and of HBM. Who asks
// for a line that is under way waits for it.
#pragma once

#include <memory>
#include <vector>

#include "isa/footprint.h"
#include "timing/arch.h"
#include "timing/cache.h"

namespace vdev::timing {

struct Traffic {  // bytes of whole lines, by the level that served them
  u64 l1 = 0, l2 = 0, mall = 0, hbm = 0;
  u64 l2_writes = 0, scalar = 0, scalar_misses = 0;
};

// What outlives a launch: a kernel starts with its vector L1s and scalar caches invalidated. Code
// caches are not: the runtime invalidates them when it loads code (ROCr, on freezing an
// executable).
struct Caches {
  explicit Caches(const Arch& arch);
  void settle();

  Cache l2, mall;
  std::vector<Cache> code;  // by pair of CUs
};

class MemoryPath {
 public:
  // `clock_ghz` turns ns into clk.
  MemoryPath(const Arch& arch, double clock_ghz, Caches& kept);

  // Code that ran before, up to what a code cache holds.
  void preload(u64 pc, u64 end);

  // When everything that `memory` touches in device memory is there (loads) or written (stores).
  u64 vector(u32 cu, const Footprint& memory, u64 now);
  u64 scalar(u32 cu, const Footprint& memory, u64 now);
  // When the line of code is there, `now` at the earliest.
  u64 fetch(u32 cu, u64 pc, u64 now);
  const Traffic& traffic() const { return traffic_; }
  double l1_busy() const;
  double l2_busy() const { return l2_.busy(); }
  double hbm_busy() const { return hbm_.busy(); }

 private:
  struct PerCu {
    Cache l1;
    Server l1_out, from_l2, to_l2;
  };
  // When the L2 has a line of its own size.
  double in_l2(u64 line, double now);

  const Arch& arch_;
  const double clk_per_ns_;
  std::vector<PerCu> cus_;
  std::vector<Cache> scalar_;  // by pair of CUs
  Caches& kept_;
  Server l2_, l2_write_, mall_, hbm_;
  Traffic traffic_;
  std::vector<u64> lines_;  // of the access at hand
};

}  // namespace vdev::timing
