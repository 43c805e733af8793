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

// Thread-safe. One finding for a kind and an instruction, so that a launch with many defects shows
// all of them and needs no more memory than its code is long; further ones are counted. Hazards are
// told apart by the first instruction of the pair, too: it is never far.
class Report {
 public:
  // `code`: of the launch, for addresses of instructions. After `max_errors` different errors the
  // launch is ended (0: never).
  Report(const DecodedCode& code, u32 max_errors) : code_(code), max_errors_(max_errors) {}

  // Adds a finding at `inst`, which `wave` executes. describe(Finding&) fills in lane, where and
  // message, and is called for the first of its kind and place only.
  template <class Describe>
  void add(const Wave& wave, const Inst& inst, FindingKind kind, u64 producer_pc,
           Describe&& describe) {
    const u64 pc = code_.pc(&inst);
    const Key key{kind, pc, is_hazard(kind) ? producer_pc : kNoPc, {}};
    if (count_again(key, producer_pc)) return;
    Finding finding;
    finding.kind = kind;
    finding.pc = pc;
    finding.producer_pc = producer_pc;
    finding.workgroup = wave.workgroup->id;
    finding.wave = wave.wave_idx;
    describe(finding);
    insert(key, std::move(finding));
  }
  // A finding that is complete: of no instruction, or one of several about an instruction, which
  // `where` tells apart.
  void insert(Finding finding) {
    Key key{finding.kind, finding.pc, kNoPc, finding.where};
    insert(std::move(key), std::move(finding));
  }

  u64 pc(const Inst& inst) const { return code_.pc(&inst); }
  const DecodedCode& code() const { return code_; }
  bool exhausted() const { return max_errors_ && num_errors_ >= max_errors_; }
  // Ordered by place, errors first.
  std::vector<Finding> take();

 private:
  using Key = std::tuple<FindingKind, u64, u64, std::string>;
  static bool is_hazard(FindingKind kind) {
    return kind == FindingKind::kHazard || kind == FindingKind::kHazardAdvice;
  }
  bool count_again(const Key& key, u64 producer_pc);
  void insert(Key key, Finding finding);

  const DecodedCode& code_;
  const u32 max_errors_;
  std::atomic<u32> num_errors_{0};
  std::mutex mutex_;
  std::map<Key, Finding> findings_;
};

}  // namespace vdev
