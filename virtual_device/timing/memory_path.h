// Where the lines of a vector or scalar memory instruction come from, and when they arrive: one L1
// per CU, the L2 of the simulated XCD, its share of the MALL and of HBM.
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

class MemoryPath {
 public:
  // `clock_ghz` turns ns into clk; `cus`: CUs of the XCD.
  MemoryPath(const Arch& arch, double clock_ghz, u32 cus);

  // When everything that `memory` touches in device memory is there (loads) or written (stores).
  u64 vector(u32 cu, const Footprint& memory, u64 now);
  u64 scalar(u32 cu, const Footprint& memory, u64 now);
  // Instruction fetch: 0, or how many clk later the line is there.
  u64 fetch(u32 cu, u64 pc, u64 now);
  const Traffic& traffic() const { return traffic_; }
  double l1_busy() const;
  double l2_busy() const { return l2_.busy(); }
  double hbm_busy() const { return hbm_.busy(); }

 private:
  struct PerCu {
    Cache l1;
    Server l1_out, from_l2;
  };
  struct PerPair {  // of CUs
    Cache scalar, code;
  };
  // From the L2 on: when a line arrives at the L2's door.
  double beyond_l1(u64 line, double now);

  const Arch& arch_;
  const double clk_per_ns_;
  std::vector<PerCu> cus_;
  std::vector<PerPair> pairs_;
  Cache l2_tags_, mall_tags_;
  Server l2_, l2_write_, mall_, hbm_;
  Traffic traffic_;
  std::vector<u64> lines_;  // of the access at hand
};

}  // namespace vdev::timing
