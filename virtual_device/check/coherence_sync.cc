// Stores, loads and atomics that order others: release and observation.
#include <algorithm>
#include <new>

#include "check/coherence.h"

namespace vdev {

bool Coherence::synchronises(const Accessor& by, const FootprintPart& part) const {
  if (by.group.publishes || by.view.observed) return true;
  int changes = 0;
  u64 last = 0;
  for (u64 lanes = part.mask; lanes && changes <= kSignalDwords; lanes &= lanes - 1) {
    const u64 dword = part.address.lane[std::countr_zero(lanes)] / 4;
    changes += dword != last;
    last = dword;
  }
  return changes <= kSignalDwords;
}

void Coherence::release(Accessor& by, const FootprintPart& part) {
  if (!synchronises(by, part)) return;
  Group& group = by.group;
  View& view = by.view;
  const u32 wave = by.step.wave.wave_idx;
  if (group.views.size() > 1) {
    for_lanes(part.mask, [&](int lane) {
      WaveNumbers& known = group.local_sync[part.address.lane[lane] / 4];
      for (u32 i = 0; i < group.views.size(); ++i)
        known[i] = std::max(known[i], i == wave ? view.issued : view.known[i]);
    });
    view.merge_floor = view.issued;
  }
  if (by.scope != Scope::kAgent) return;
  auto* point = new (arena_.take(sizeof(ReleasePoint))) ReleasePoint{
      .workgroup = group.id,
      .sequence = ++group.releases,
      .own = by.view.number,
      .wave = static_cast<u8>(wave),
      .before = view.known,
      .completed = view.completed,
      .written = view.written,
  };
  point->before[wave] = view.issued;
  ++group.epoch;
  const ClockRef clock = Clock::with(view.observed, point);
  for_lanes(part.mask, [&](int lane) {
    const u64 address = part.address.lane[lane];
    ShadowPage* page = pages_.page(address);
    if (!page) return;
    sync_.release(address / 4, clock);
    page->has_sync.store(true, std::memory_order_release);
  });
}

void Coherence::observe(Accessor& by, const FootprintPart& part) {
  Observation seen{by.scalar ? by.view.smem_number : by.view.number, by.scalar, nullptr, false, {}};
  for_lanes(part.mask, [&](int lane) {
    const u64 address = part.address.lane[lane];
    if (by.scope == Scope::kAgent) {
      const ShadowPage* page = pages_.page(address);
      if (page && page->has_sync.load(std::memory_order_acquire))
        seen.clock = Clock::join(seen.clock, sync_.observe(address / 4));
    }
    if (by.group.local_sync.empty()) return;
    const auto it = by.group.local_sync.find(address / 4);
    if (it == by.group.local_sync.end()) return;
    seen.local = true;
    for (u32 i = 0; i < kMaxWaves; ++i) seen.known[i] = std::max(seen.known[i], it->second[i]);
  });
  if (seen.clock || seen.local) by.view.observations.push_back(std::move(seen));
}

}  // namespace vdev
