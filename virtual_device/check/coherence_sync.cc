// Stores, loads and atomics that order others: release and observation.
#include <algorithm>
#include <new>

#include "check/coherence.h"

namespace vdev {
namespace {

// Calls visit(device address of a dword) for each dword of each lane's datum.
template <class Visit>
void for_dwords(const FootprintPart& part, Visit visit) {
  for_lanes(part.mask, [&](int lane) {
    const u64 at = part.address.lane[lane];
    for (u64 dword = at / 4 * 4; dword < at + part.bytes; dword += 4) visit(dword);
  });
}

}  // namespace

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
    for_dwords(part, [&](u64 address) {
      WaveNumbers& known = group.local_sync[address];
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
  for_dwords(part, [&](u64 address) {
    ShadowPage* page = pages_.page(address);
    if (!page) return;
    sync_.release(address, clock);
    page->has_sync.store(true, std::memory_order_release);
  });
}

void Coherence::observe(Accessor& by, const FootprintPart& part) {
  Observation seen{by.scalar ? by.view.smem_number : by.view.number, by.scalar, nullptr, false, {}};
  for_dwords(part, [&](u64 address) {
    if (by.scope == Scope::kAgent) {
      const ShadowPage* page = pages_.page(address);
      if (page && page->has_sync.load(std::memory_order_acquire))
        seen.clock = Clock::join(seen.clock, sync_.observe(address));
    }
    if (by.group.local_sync.empty()) return;
    const auto it = by.group.local_sync.find(address);
    if (it == by.group.local_sync.end()) return;
    seen.local = true;
    for (u32 i = 0; i < kMaxWaves; ++i) seen.known[i] = std::max(seen.known[i], it->second[i]);
  });
  if (seen.clock == by.view.latest) seen.clock = nullptr;
  if (seen.clock || seen.local) by.view.observations.push_back(std::move(seen));
}

}  // namespace vdev
