#include "hip/faults.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

namespace vdev::hip {
namespace {

constexpr size_t kKept = 64;             // faults of a log
constexpr size_t kToldKept = 4 * kKept;  // of a thread
constexpr size_t kLogsKept = 4096;       // of a thread
constexpr size_t kReportsTold = 4;       // at a time
constexpr const char* kElsewhere =
    "\n  queued by another thread; what this one has queued ran, with whatever that launch left "
    "of its results";

std::atomic<u64> num_threads{0}, num_faults{0}, num_logs{0};

// What the calling thread knows.
struct Knowledge {
  std::unordered_map<u64, u64> seen;  // by log, how many of its faults
  std::deque<u64> told;               // faults, as they may be in several logs

  bool has(u64 fault) const { return std::find(told.begin(), told.end(), fault) != told.end(); }
  void add(u64 fault) {
    told.push_back(fault);
    if (told.size() > kToldKept) told.pop_front();
  }
};
thread_local Knowledge knowledge;

}  // namespace

u64 this_thread() {
  thread_local const u64 number = ++num_threads;
  return number;
}

Fault::Fault(hipError_t code, std::string report, u64 submitter)
    : id(++num_faults), code(code), report(std::move(report)), submitter(submitter) {}

void News::add(hipError_t code, std::string report) {
  if (code_ == hipSuccess) code_ = code;
  const bool said = std::find(reports_.begin(), reports_.end(), report) != reports_.end();
  if (said || reports_.size() == kReportsTold) {
    ++untold_;
  } else {
    reports_.push_back(std::move(report));
  }
}

void News::add_unkept(hipError_t code, u64 count) {
  if (code_ == hipSuccess) code_ = code;
  untold_ += count;
}

std::string News::report() const {
  std::string all;
  for (const std::string& report : reports_) all += (all.empty() ? "" : "\n") + report;
  if (untold_ == 0) return all;
  const std::string count = std::to_string(untold_);
  if (all.empty()) return count + " launches faulted, whose reports are no longer kept";
  return all + "\nand " + count + " more that faulted";
}

FaultLog::FaultLog() : id_(++num_logs) {}

bool FaultLog::holds(const Fault& fault) const {
  return std::any_of(kept_.begin(), kept_.end(),
                     [&](const FaultPtr& kept) { return kept->id == fault.id; });
}

void FaultLog::add(FaultPtr fault) {
  std::unique_lock lock(mutex_);
  if (holds(*fault)) return;
  kept_.push_back(std::move(fault));
  total_.fetch_add(1, std::memory_order_release);
  if (kept_.size() <= kKept) return;
  evicted_code_ = kept_.front()->code;
  kept_.pop_front();
  evicted_ = total_ - kept_.size();
}

void FaultLog::take_over(const FaultLog& other, bool implicit) {
  if (other.total_.load(std::memory_order_acquire) == 0) return;
  std::vector<FaultPtr> found;
  {
    std::unique_lock lock(other.mutex_);
    for (const FaultPtr& fault : other.kept_) {
      if (!fault->forgotten && (!implicit || fault->open)) found.push_back(fault);
    }
  }
  for (FaultPtr& fault : found) add(std::move(fault));
}

FaultPtr FaultLog::latest_open() const {
  if (total_.load(std::memory_order_acquire) == 0) return nullptr;
  std::unique_lock lock(mutex_);
  const auto open = std::find_if(kept_.rbegin(), kept_.rend(), [](const FaultPtr& fault) {
    return fault->open && !fault->forgotten;
  });
  return open == kept_.rend() ? nullptr : *open;
}

void FaultLog::tell(News& news, bool told) const {
  if (total_.load(std::memory_order_acquire) == 0) return;
  const u64 thread = this_thread();
  std::unique_lock lock(mutex_);
  const auto known = knowledge.seen.find(id_);
  if (known != knowledge.seen.end() && known->second == total_) return;
  const u64 seen = std::max(known == knowledge.seen.end() ? 0 : known->second, forgotten_);
  for (const FaultPtr& fault : kept_) {
    const bool own = fault->submitter == thread;
    if (knowledge.has(fault->id) || (fault->forgotten && !own)) continue;
    news.add(fault->code, fault->report + (own ? "" : kElsewhere));
    if (!told) continue;
    knowledge.add(fault->id);
    if (own) fault->open = false;
  }
  if (seen < evicted_) news.add_unkept(evicted_code_, evicted_ - seen);
  if (!told) return;
  if (knowledge.seen.size() > kLogsKept) knowledge.seen.clear();
  knowledge.seen[id_] = total_;
}

void FaultLog::forget() {
  if (total_.load(std::memory_order_acquire) == 0) return;
  const u64 thread = this_thread();
  std::unique_lock lock(mutex_);
  std::erase_if(kept_, [&](const FaultPtr& fault) {
    if (fault->submitter == thread) fault->open = false;
    fault->forgotten = true;
    return !fault->open;
  });
  forgotten_ = total_;
}

}  // namespace vdev::hip
