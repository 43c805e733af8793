// Clauses of one wave: runs of memory instructions of one unit (scalar, or vector: buffer, flat,
// global, scratch) with nothing between. Where page faults are retried (XNACK, as on MI300A) the
// unit may issue the instructions of a clause again, so that none may write a register that one of
// them reads, itself included; a single instruction is no clause. LLVM keeps this with every target
// that may have XNACK on (GCNHazardRecognizer, checkSoftClauseHazards). Objects that say "xnack-"
// are not held to it.
#pragma once

#include <bitset>
#include <vector>

#include "check/step.h"

namespace vdev {

class Clauses {
 public:
  void start(const Kernel& kernel, bool may_retry) {
    num_vgprs_ = kernel.num_vgprs;
    may_retry_ = may_retry;
    end();
  }
  // Before an instruction.
  void step(const Step& step);

 private:
  enum class Unit : u8 { kNone, kScalar, kVector };
  static constexpr size_t kRegisters = 512 + 132;
  struct Access {
    const Inst* inst;
    const RegisterUse* use;
  };

  static Unit unit_of(const Row& row);
  void end();
  // Reports the registers that `writer` writes and `reader` reads.
  bool conflict(const Step& step, const Access& writer, const Access& reader);

  u32 num_vgprs_ = 0;
  bool may_retry_ = true, reported_ = false;
  Unit unit_ = Unit::kNone;
  std::vector<Access> clause_;
  std::bitset<kRegisters> reads_, writes_;
};

}  // namespace vdev
