// Tags of a set-associative cache, least recently used first out.
#pragma once

#include <vector>

#include "core/types.h"

namespace vdev::timing {

class Cache {
 public:
  Cache(u64 bytes, u32 line_bytes, u32 ways)
      : ways_(ways), num_sets_(bytes / line_bytes / ways), tags_(num_sets_ * ways, kEmpty) {}
  // Looks a line (address / line size) up; brings it in when it is not there.
  bool access(u64 line) {
    u64* const set = &tags_[line % num_sets_ * ways_];
    u32 at = 0;
    while (at < ways_ && set[at] != line) ++at;
    const bool hit = at < ways_;
    if (!hit) at = ways_ - 1;
    for (; at > 0; --at) set[at] = set[at - 1];
    set[0] = line;
    return hit;
  }
  void clear() { tags_.assign(tags_.size(), kEmpty); }

 private:
  static constexpr u64 kEmpty = ~u64{0};
  u32 ways_;
  u64 num_sets_;
  std::vector<u64> tags_;  // by set, most recently used first
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
