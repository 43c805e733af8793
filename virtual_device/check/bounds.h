// Checks of single memory accesses: alignment, lanes against each other, buffer range, read-only
// operands, kernarg segment.
#pragma once

#include <vector>

#include "check/session.h"
#include "check/step.h"

namespace vdev {

class Bounds {
 public:
  Bounds(std::vector<Contract> contracts, u64 kernarg_address, u32 kernarg_bytes)
      : contracts_(std::move(contracts)),
        kernarg_address_(kernarg_address),
        kernarg_bytes_(kernarg_bytes) {}
  void step(const Step& step) const;
  // Memory that the host declared to be left zero, after the launch.
  void finish(Memory& memory, Report& report) const;

 private:
  void check_alignment(const Step& step, const FootprintPart& part) const;
  void check_lds_base(const Step& step) const;
  void check_contracts(const Step& step, const FootprintPart& part) const;
  void check_kernarg(const Step& step, const FootprintPart& part) const;
  void check_overlap(const Step& step, const FootprintPart& part) const;

  const std::vector<Contract> contracts_;
  const u64 kernarg_address_;
  const u32 kernarg_bytes_;
};

}  // namespace vdev
