// What a set-associative cache holds or awaits, least recently used first out.
#pragma once

#include <algorithm>
#include <vector>

#include "core/types.h"

namespace vdev::timing {

class Cache {
 public:
  Cache(u64 bytes, u32 line_bytes, u32 ways)
      : ways_(ways),
        num_sets_(bytes / line_bytes / ways),
        tags_(num_sets_ * ways, kEmpty),
        used_(num_sets_ * ways),
        there_(num_sets_ * ways) {}
  struct Found {
    bool hit;
    double& there;  // clk at which the line arrives; after a miss, for the caller to set
  };
  // Looks a line (address / line size) up; gives it a place when it has none.
  Found access(u64 line) {
    const u64 first = line % num_sets_ * ways_;
    for (u64 i = first; i < first + ways_; ++i)
      if (tags_[i] == line) {
        used_[i] = ++uses_;
        return {true, there_[i]};
      }
    const auto oldest = std::min_element(used_.begin() + static_cast<i64>(first),
                                         used_.begin() + static_cast<i64>(first + ways_));
    const u64 at = static_cast<u64>(oldest - used_.begin());
    tags_[at] = line;
    used_[at] = ++uses_;
    return {false, there_[at] = 0};
  }
  // Nothing is under way any more: clk start anew.
  void settle() { std::fill(there_.begin(), there_.end(), 0.0); }

 private:
  static constexpr u64 kEmpty = ~u64{0};
  u32 ways_;
  u64 num_sets_, uses_ = 0;
  std::vector<u64> tags_, used_;  // by set; when each was used last
  std::vector<double> there_;
};

// A resource that serves one request after the other at a rate.
class Server {
 public:
  explicit Server(double units_per_clk) : clk_per_unit_(1 / units_per_clk) {}
  // When a request of `units` that arrives at `now` has been served.
  double serve(double now, double units) {
    const double start = now > free_ ? now : free_;
    free_ = start + units * clk_per_unit_;
    busy_ += units * clk_per_unit_;
    return free_;
  }
  double busy() const { return busy_; }

 private:
  double clk_per_unit_;
  double free_ = 0, busy_ = 0;
};

}  // namespace vdev::timing
