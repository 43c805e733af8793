// The shadow of device memory: stores and loads against what is recorded there.
#include <algorithm>

#include "check/coherence.h"

namespace vdev {

// Contiguous bytes within one page.
struct Coherence::Span {
  ShadowPage& page;
  u64 address;
  u32 bytes;

  u32 first() const { return static_cast<u32>(address % kMemoryPage) / 4; }
  u32 last() const { return static_cast<u32>((address + bytes - 1) % kMemoryPage) / 4; }
  u32 count() const { return last() - first() + 1; }
  bool whole_dwords() const { return (address | bytes) % 4 == 0; }
  u64 address_of(u32 dword) const { return address / kMemoryPage * kMemoryPage + 4 * dword; }
  // The bytes of a dword that belong to the span.
  u32 mask(u32 dword) const {
    u32 mask = 15;
    if (dword == first()) mask &= 15u << address % 4;
    if (dword == last()) mask &= 15u >> (3 - (address + bytes - 1) % 4);
    return mask;
  }
};

namespace {

// Merges the lanes' data and calls visit(address, bytes) for each contiguous piece of a page.
template <class Visit>
void for_spans(const FootprintPart& part, Visit visit) {
  u64 begin = 0, end = 0;
  const auto flush = [&] {
    while (begin < end) {
      const u64 stop = std::min(end, (begin / kMemoryPage + 1) * kMemoryPage);
      visit(begin, static_cast<u32>(stop - begin));
      begin = stop;
    }
  };
  const u64 bytes = part.bytes;
  for_lanes(part.mask, [&](int lane) {
    const u64 at = part.address.lane[lane];
    if (at == end) {
      end += bytes;
    } else if (at + bytes == begin) {
      begin = at;
    } else if (at < begin || at + bytes > end) {
      flush();
      begin = at;
      end = at + bytes;
    }
  });
  flush();
}

u32 spread(u32 mask) {  // a bit for each byte to the bytes
  return (mask & 1) * 0xffu | (mask >> 1 & 1) * 0xff00u | (mask >> 2 & 1) * 0xff0000u |
         (mask >> 3 & 1) * 0xff000000u;
}

u32 any(const Slot* slots, u32 count) {
  u32 bits = 0;
  for (u32 i = 0; i < count; ++i) bits |= slots[i];
  return bits;
}
bool uniform(const Slot* slots, u32 count) {
  u32 bits = 0;
  for (u32 i = 0; i < count; ++i) bits |= slots[i] ^ slots[0];
  return bits == 0;
}

}  // namespace

void Coherence::store(Accessor& by, const FootprintPart& part) {
  for_spans(part, [&](u64 address, u32 bytes) {
    if (ShadowPage* page = pages_.page(address)) write_span(by, {*page, address, bytes}, part);
  });
}

void Coherence::write_span(const Accessor& by, const Span& span, const FootprintPart& part) {
  // Execution reports what lies outside; without an event nothing is recorded.
  const std::byte* host = by.step.wave.workgroup->try_global(span.address, span.bytes);
  if (!host || !by.id) return;
  const u32 first = span.first(), count = span.count();
  const u64 offset = span.address % 4;
  ShadowPage& page = span.page;
  ShadowPage::Writes& writes = pages_.writes(page);
  if (span.whole_dwords() && write_alike(by, span, part)) {
    const Slot last = seen_once(writes.last[first]);
    if (last == 0 || last == kSplitSlot || !keeps_before(by, last))
      std::memcpy(writes.before + first, host, span.bytes);
    std::fill_n(writes.last + first, count, make_slot(by.id, 15));
    return;
  }
  for (u32 i = 0; i < count; ++i) {
    u32 memory;  // a dword never straddles what the host has mapped
    std::memcpy(&memory, host - offset + 4 * i, 4);
    write_dword(by, page, first + i, span.mask(first + i), memory, part,
                span.address_of(first + i));
  }
}

// Whether all dwords of a span were accessed alike before; if so, checks the first for all of them
// and forgets the readers.
bool Coherence::write_alike(const Accessor& by, const Span& span, const FootprintPart& part) {
  const u32 first = span.first(), count = span.count();
  ShadowPage& page = span.page;
  const Slot* const last = pages_.writes(page).last + first;
  Slot* const read = page.read + first;
  Slot* others = page.other.load(std::memory_order_acquire);
  if (others) others += first;
  if (!uniform(last, count) || !uniform(read, count) || (others && !uniform(others, count)))
    return false;
  const Slot writer = seen_once(*last);
  if (writer == kSplitSlot || (writer && slot_mask(writer) != 15)) return false;
  if (writer && !write_is_ordered(by, events_.at(slot_id(writer))))
    report_race(by, part, span.address, span.bytes, events_.at(slot_id(writer)), false);
  for (Slot* slots : {read, others}) {
    const Slot reader = slots ? seen_once(*slots) : 0;
    if (!reader) continue;
    if (!read_is_ordered(by, events_.at(slot_id(reader))))
      report_race(by, part, span.address, span.bytes, events_.at(slot_id(reader)), true);
    std::fill_n(slots, count, 0);
  }
  return true;
}

// Whether the older value of what was stored last stands: nothing since could have made it known.
bool Coherence::keeps_before(const Accessor& by, Slot last) const {
  const Event& e = events_.at(slot_id(last));
  return e.workgroup == by.group.id && e.releases == by.group.releases && by.scope == Scope::kNone;
}

void Coherence::write_dword(const Accessor& by, ShadowPage& page, u32 dword, u32 mask, u32 memory,
                            const FootprintPart& part, u64 address) {
  ShadowPage::Writes& writes = pages_.writes(page);
  const Slot last = seen_once(writes.last[dword]);
  const auto check_write = [&](u32 id) {
    const Event& e = events_.at(id);
    if (write_is_ordered(by, e)) return;
    const u32 low = static_cast<u32>(std::countr_zero(mask));
    report_race(by, part, address + low, static_cast<u32>(std::bit_width(mask)) - low, e, false);
  };
  u32 kept = 0;  // bytes whose older value stands
  if (last == kSplitSlot) {
    const SplitDword& split = pages_.split(page, dword);
    for (u32 i = 0; i < 4; ++i)
      if (const u32 id = seen_once(split.id[i]); mask >> i & 1 && id) check_write(id);
  } else if (last) {
    if (slot_mask(last) & mask) check_write(slot_id(last));
    if (keeps_before(by, last)) kept = slot_mask(last);
  }
  const u32 fresh = spread(mask & ~kept);
  writes.before[dword] = (writes.before[dword] & ~fresh) | (memory & fresh);

  Slot* const others = page.other.load(std::memory_order_acquire);
  for (Slot* slot : {&page.read[dword], others ? others + dword : nullptr}) {
    const Slot reader = slot ? seen_once(*slot) : 0;
    if (!(slot_mask(reader) & mask)) continue;
    const Event& e = events_.at(slot_id(reader));
    if (!read_is_ordered(by, e)) report_race(by, part, address, 4, e, true);
    if (!(slot_mask(reader) & ~mask)) *slot = 0;
  }

  const u32 left = last == kSplitSlot ? 15 & ~mask : slot_mask(last) & ~mask;
  if (left == 0) {
    writes.last[dword] = make_slot(by.id, mask);
  } else if (last != kSplitSlot && may_merge(by, events_.at(slot_id(last)))) {
    writes.last[dword] = make_slot(by.id, mask | left);
  } else {
    SplitDword& split = pages_.split(page, dword);
    for (u32 i = 0; i < 4; ++i) {
      if (mask >> i & 1)
        split.id[i] = by.id;
      else if (last != kSplitSlot)
        split.id[i] = left >> i & 1 ? slot_id(last) : 0;
    }
    writes.last[dword] = kSplitSlot;
  }
}

// Whether what orders one of two stores to different bytes of a dword orders the other.
bool Coherence::may_merge(const Accessor& by, const Event& last) const {
  if (&last == &events_.at(by.id)) return true;
  return same_wave(by, last) && last.releases == by.group.releases && last.scope == Scope::kNone &&
         by.scope == Scope::kNone && last.number > by.view.merge_floor;
}

void Coherence::load(Accessor& by, const FootprintPart& part) {
  by.group.conflicts.clear();
  for_spans(part, [&](u64 address, u32 bytes) {
    if (ShadowPage* page = pages_.page(address)) read_span(by, {*page, address, bytes});
  });
  if (!by.group.conflicts.empty()) report_stale(by, part);
}

void Coherence::read_span(const Accessor& by, const Span& span) {
  ShadowPage& page = span.page;
  const u32 first = span.first(), count = span.count();
  ShadowPage::Writes* const writes = page.writes.load(std::memory_order_acquire);
  if (writes && any(writes->last + first, count)) {
    Slot ordered = 0;  // one that was found to be, and so is the next
    for (u32 dword = first; dword < first + count; ++dword) {
      const Slot last = seen_once(writes->last[dword]);
      if (last == 0 || (last == ordered && last != kSplitSlot)) continue;
      const size_t conflicts = by.group.conflicts.size();
      check_read(by, page, *writes, dword, span.mask(dword), span.address_of(dword));
      if (by.group.conflicts.size() == conflicts && span.mask(dword) == 15) ordered = last;
    }
  }
  if (!by.id) return;
  Slot* const read = page.read + first;
  if (span.whole_dwords() && uniform(read, count)) {
    const Slot slot = make_slot(by.id, 15);
    if (read[0] == slot) return;
    const Slot reader = seen_once(read[0]);
    const bool own = !reader || same_wave(by, events_.at(slot_id(reader)));
    std::fill_n(own ? read : pages_.other_readers(page) + first, count, slot);
  } else {
    for (u32 dword = first; dword < first + count; ++dword)
      record_read(by, page, dword, span.mask(dword));
  }
}

void Coherence::check_read(const Accessor& by, ShadowPage& page, ShadowPage::Writes& writes,
                           u32 dword, u32 mask, u64 address) {
  const Slot last = seen_once(writes.last[dword]);
  const auto check = [&](u32 id, u32 bytes) {
    const Event& e = events_.at(id);
    const bool ordered = write_is_ordered(by, e);
    if (!ordered || is_delayed(by, e))
      by.group.conflicts.push_back({address, bytes, writes.before[dword], id, ordered});
  };
  if (last != kSplitSlot) {
    if (const u32 bytes = slot_mask(last) & mask) check(slot_id(last), bytes);
    return;
  }
  const SplitDword& split = pages_.split(page, dword);
  for (u32 i = 0; i < 4; ++i)
    if (const u32 id = seen_once(split.id[i]); mask >> i & 1 && id) check(id, 1u << i);
}

void Coherence::record_read(const Accessor& by, ShadowPage& page, u32 dword, u32 mask) {
  Slot* slot = &page.read[dword];
  const Slot reader = seen_once(*slot);
  if (reader && slot_id(reader) != by.id && !same_wave(by, events_.at(slot_id(reader))))
    slot = pages_.other_readers(page) + dword;
  *slot = make_slot(by.id, slot_id(*slot) == by.id ? slot_mask(*slot) | mask : mask);
}

}  // namespace vdev
