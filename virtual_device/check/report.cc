#include "check/report.h"

#include <algorithm>

namespace vdev {
namespace {

struct KindInfo {
  const char* name;
  Severity severity;
};
constexpr KindInfo kKinds[] = {
    {"use_before_wait", Severity::kError},
    {"overwrite_before_wait", Severity::kError},
    {"counter_saturated", Severity::kError},
    {"over_wait", Severity::kAdvice},
    {"hazard", Severity::kError},
    {"hazard_advice", Severity::kAdvice},
    {"clause_overwrite", Severity::kError},
    {"lds_race", Severity::kError},
    {"global_race", Severity::kError},
    {"stale_read", Severity::kError},
    {"same_value_race", Severity::kCounted},
    {"illegal_address", Severity::kError},
    {"use_after_free", Severity::kError},
    {"misaligned", Severity::kError},
    {"ambiguous_range", Severity::kError},
    {"range_swallowed", Severity::kCounted},
    {"uninitialised_store", Severity::kError},
    {"uninitialised_address", Severity::kError},
    {"uninitialised_branch", Severity::kError},
    {"unwritten_output", Severity::kError},
    {"read_only_write", Severity::kError},
    {"kernarg_overread", Severity::kError},
    {"barrier_mismatch", Severity::kError},
    {"no_active_lane", Severity::kError},
    {"runaway", Severity::kError},
    {"deadlock", Severity::kError},
    {"dirty_memory", Severity::kError},
    {"scratch_bounds", Severity::kError},
    {"lds_bounds", Severity::kError},
    {"outside_kernel", Severity::kError},
    {"illegal_instruction", Severity::kError},
    {"trap", Severity::kError},
    {"unchecked", Severity::kAdvice},
};
static_assert(std::size(kKinds) == static_cast<size_t>(FindingKind::kUnchecked) + 1);

}  // namespace

const char* finding_kind_name(FindingKind kind) { return kKinds[static_cast<int>(kind)].name; }
Severity severity_of(FindingKind kind) { return kKinds[static_cast<int>(kind)].severity; }

namespace {

void add_producer(Finding& finding, u64 producer_pc) {
  auto& others = finding.other_producers;
  if (producer_pc != finding.producer_pc && producer_pc != kNoPc &&
      others.size() < kOtherProducers &&
      std::find(others.begin(), others.end(), producer_pc) == others.end())
    others.push_back(producer_pc);
}

void count(Finding& finding, u64 producer_pc) {
  ++finding.count;
  add_producer(finding, producer_pc);
}

}  // namespace

void Finding::see_again(const Finding& again) {
  count += again.count;
  add_producer(*this, again.producer_pc);
  for (const u64 pc : again.other_producers) add_producer(*this, pc);
}

bool Report::count_again(const Key& key, u64 producer_pc) {
  std::lock_guard lock(mutex_);
  const auto found = findings_.find(key);
  if (found == findings_.end()) return false;
  count(found->second, producer_pc);
  return true;
}

void Report::insert(Key key, Finding finding) {
  std::lock_guard lock(mutex_);
  const auto [place, inserted] = findings_.try_emplace(std::move(key), std::move(finding));
  if (!inserted)
    count(place->second, finding.producer_pc);  // another thread was first
  else if (severity_of(place->second.kind) == Severity::kError)
    ++num_errors_;
}

std::vector<Finding> Report::take() {
  std::lock_guard lock(mutex_);
  std::vector<Finding> all;
  for (auto& [key, finding] : findings_) all.push_back(std::move(finding));
  findings_.clear();
  std::stable_sort(all.begin(), all.end(), [](const Finding& a, const Finding& b) {
    const auto rank = [](const Finding& f) { return std::pair(severity_of(f.kind), f.pc); };
    return rank(a) < rank(b);
  });
  return all;
}

}  // namespace vdev
