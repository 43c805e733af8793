#include "check/coherence_clock.h"

#include <algorithm>

namespace vdev {

bool Clock::includes(const Clock& a, const Clock& b) {
  if (a.points_.size() < b.points_.size()) return false;
  auto it = a.points_.begin();
  for (const ReleasePoint* p : b.points_) {
    it = std::lower_bound(it, a.points_.end(), thread(p),
                          [](const ReleasePoint* x, u64 key) { return thread(x) < key; });
    if (it == a.points_.end() || thread(*it) != thread(p) || (*it)->sequence < p->sequence)
      return false;
  }
  return true;
}

ClockRef Clock::join(const ClockRef& a, const ClockRef& b) {
  if (a == b || !b) return a;
  if (!a) return b;
  if (includes(*a, *b)) return a;
  if (includes(*b, *a)) return b;
  auto result = std::make_shared<Clock>();
  auto& out = result->points_;
  out.reserve(a->points_.size() + b->points_.size());
  auto x = a->points_.begin(), y = b->points_.begin();
  while (x != a->points_.end() && y != b->points_.end()) {
    if (thread(*x) < thread(*y)) {
      out.push_back(*x++);
    } else if (thread(*y) < thread(*x)) {
      out.push_back(*y++);
    } else {
      out.push_back((*x)->sequence >= (*y)->sequence ? *x : *y);
      ++x, ++y;
    }
  }
  out.insert(out.end(), x, a->points_.end());
  out.insert(out.end(), y, b->points_.end());
  return result;
}

ClockRef Clock::with(const ClockRef& clock, const ReleasePoint* point) {
  auto single = std::make_shared<Clock>();
  single->points_.push_back(point);
  return join(clock, single);
}

std::vector<const ReleasePoint*>::const_iterator Clock::find(u32 workgroup) const {
  return std::lower_bound(points_.begin(), points_.end(), workgroup,
                          [](const ReleasePoint* p, u32 id) { return p->workgroup < id; });
}

bool Clock::covers_write(const Event& e) const {
  for (auto it = find(e.workgroup); it != points_.end() && (*it)->workgroup == e.workgroup; ++it)
    if ((*it)->covers_write(e)) return true;
  return false;
}

bool Clock::follows(const Event& e) const {
  for (auto it = find(e.workgroup); it != points_.end() && (*it)->workgroup == e.workgroup; ++it)
    if (e.number <= (*it)->before[e.wave]) return true;
  return false;
}

bool Clock::covers_read(const Event& e) const {
  for (auto it = find(e.workgroup); it != points_.end() && (*it)->workgroup == e.workgroup; ++it)
    if ((*it)->sequence > e.releases) return true;
  return false;
}

const ReleasePoint* Clock::newest(u32 workgroup) const {
  const ReleasePoint* result = nullptr;
  for (auto it = find(workgroup); it != points_.end() && (*it)->workgroup == workgroup; ++it)
    if (!result || (*it)->sequence > result->sequence) result = *it;
  return result;
}

void SyncLocations::release(u64 address, const ClockRef& clock) {
  Shard& s = shards_[shard(address)];
  std::lock_guard lock(s.mutex);
  ClockRef& at = s.clocks[address];
  at = Clock::join(at, clock);
}

ClockRef SyncLocations::observe(u64 address) const {
  const Shard& s = shards_[shard(address)];
  std::lock_guard lock(s.mutex);
  const auto it = s.clocks.find(address);
  return it == s.clocks.end() ? nullptr : it->second;
}

}  // namespace vdev
