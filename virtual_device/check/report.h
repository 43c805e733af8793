// The findings of one launch.
#pragma once

#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "check/finding.h"
#include "core/program.h"
#include "core/wave.h"

namespace vdev {

// Thread-safe. One finding for a kind and a pair of places; further ones are counted.
class Report {
 public:
  // `code`: of the launch, for addresses of instructions. After `max_errors` different errors the
  // launch is ended (0: never).
  Report(const DecodedCode& code, u32 max_errors) : code_(code), max_errors_(max_errors) {}

  // Adds a finding at `inst`, which `wave` executes. describe(Finding&) fills in lane, where and
  // message, and is called for the first of its kind and places only.
  template <class Describe>
  void add(const Wave& wave, const Inst& inst, FindingKind kind, u64 producer_pc,
           Describe&& describe) {
    const u64 pc = code_.pc(&inst);
    if (count_again(kind, pc, producer_pc)) return;
    Finding finding;
    finding.kind = kind;
    finding.pc = pc;
    finding.producer_pc = producer_pc;
    finding.workgroup = wave.workgroup->id;
    finding.wave = wave.wave_idx;
    describe(finding);
    insert(std::move(finding));
  }
  // A finding that is complete.
  void insert(Finding finding);

  u64 pc(const Inst& inst) const { return code_.pc(&inst); }
  const DecodedCode& code() const { return code_; }
  bool exhausted() const { return max_errors_ && num_errors_ >= max_errors_; }
  // Ordered by place, errors first.
  std::vector<Finding> take();

 private:
  bool count_again(FindingKind kind, u64 pc, u64 producer_pc);

  const DecodedCode& code_;
  const u32 max_errors_;
  std::atomic<u32> num_errors_{0};
  std::mutex mutex_;
  std::map<std::tuple<FindingKind, u64, u64>, Finding> findings_;
};

}  // namespace vdev
