// What is ordered before what, and what the findings say.
#include <algorithm>
#include <cstdio>

#include "check/coherence.h"
#include "core/worker.h"

namespace vdev {
namespace {

std::string hex(u64 address) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

// A lane whose datum touches the dword of an address.
int lane_of(const FootprintPart& part, u64 address) {
  const u64 dword = address & ~u64{3};
  for (u64 lanes = part.mask; lanes; lanes &= lanes - 1) {
    const int lane = std::countr_zero(lanes);
    const u64 at = part.address.lane[lane];
    if (at < dword + 4 && dword < at + part.bytes) return part.scalar ? -1 : lane;
  }
  return -1;
}

// Whether an address is of the buffer through which kernels call the host. It is a list without
// locks: AMD's device library reads an entry that others may have taken meanwhile, and asks
// afterwards whether they have.
bool is_of_hostcall(const LaunchState& launch, const Step& step, u64 address) {
  const u64 buffer = hostcall_buffer(launch);
  if (buffer == 0) return false;
  const auto allocation = step.wave.workgroup->worker->memory().find(buffer);
  return allocation && allocation->contains(address, 1);
}

}  // namespace

bool Coherence::coherent(const Accessor& by, const Event& e) const {
  const Scope least = e.workgroup == by.group.id ? Scope::kWorkgroup : Scope::kAgent;
  return by.scope >= least && e.scope >= least;
}

bool Coherence::guesses(const Inst& load) const {
  constexpr u32 kLongestLoop = 128;  // instructions of the loop's body
  const auto same = [](const Operand& a, const Operand& b) {
    return a.kind == b.kind && a.index == b.index && a.lo == b.lo;
  };
  const std::vector<Inst>& insts = launch_.code.insts;
  const Inst* inst = &load;
  for (u32 i = 0; i < kLongestLoop; ++i) {
    inst += inst->size;
    if (inst >= insts.data() + insts.size() || !inst->row || inst->row->effects & kEndsProgram)
      return false;
    if (inst->row->effects & kAtomic && inst->row->format == load.row->format &&
        inst->row->is(Trait::kComparesFirst))
      return inst->offset == load.offset && same(inst->src[0], load.src[0]) &&
             same(inst->src[2], load.src[2]) && same(inst->src[3], load.src[3]);
  }
  return false;
}

// Whether a write is ordered before the access at hand.
bool Coherence::write_is_ordered(const Accessor& by, const Event& e) const {
  const View& view = by.view;
  if (by.load && by.scalar) {
    if (e.workgroup == by.group.id) return e.number <= view.scalar_completed[e.wave];
    return view.scalar_acquired && view.scalar_acquired->covers_write(e);
  }
  if (same_wave(by, e) || coherent(by, e)) return true;
  if (e.workgroup == by.group.id) {
    if (e.number <= view.known[e.wave]) return true;
  } else {
    const ClockRef& clock = by.load && by.scope != Scope::kAgent ? view.acquired : view.observed;
    if (clock && clock->covers_write(e)) return true;
  }
  return by.load && e.atomic && guesses(by.step.inst);
}

// Whether a read is ordered before the store or atomic at hand.
bool Coherence::read_is_ordered(const Accessor& by, const Event& e) const {
  if (same_wave(by, e) || coherent(by, e)) return true;
  if (e.workgroup == by.group.id) {
    if (e.number <= by.view.known[e.wave]) return true;
  } else if (by.view.observed && by.view.observed->covers_read(e)) {
    return true;
  }
  return by.atomic && guesses(launch_.code.insts[e.inst]);
}

std::string Coherence::name(const Event& e) const {
  const Dim3& grid = launch_.launch.num_workgroups;
  const u32 x = e.workgroup % grid.x, y = e.workgroup / grid.x % grid.y;
  const u32 z = static_cast<u32>(e.workgroup / (u64{grid.x} * grid.y));
  char text[80];
  std::snprintf(text, sizeof text, "wave %u of workgroup (%u, %u, %u)", e.wave, x, y, z);
  return text;
}

// What is missing between a write of another wave and the access at hand.
std::string Coherence::why(const Accessor& by, const Event& e) const {
  const View& view = by.view;
  if (e.workgroup == by.group.id) {
    if (!by.scalar || !by.load) return "no s_barrier orders the two waves";
    return e.number <= view.completed[e.wave]
               ? "no s_dcache_inv after the completed store"
               : "the store is not known to be complete (s_waitcnt vmcnt, between waves also "
                 "s_barrier), then s_dcache_inv";
  }
  if (view.observed && view.observed->covers_write(e))
    return by.scalar ? "no s_dcache_inv after the release was seen"
                     : "no buffer_inv sc1 after the release was seen and waited for";
  for (const Observation& o : view.observations)
    if (o.clock && o.clock->covers_write(e))
      return "the load or atomic that sees the release is not waited for";
  const ReleasePoint* point = view.observed ? view.observed->newest(e.workgroup) : nullptr;
  if (!point)
    return "no release of the storing workgroup was seen: buffer_wbl2 sc1, s_waitcnt vmcnt(0), "
           "then "
           "an atomic or a store with sc1, which an atomic with return or a load with sc1 sees";
  if (e.wave == point->wave && e.number > point->own)
    return "the store comes after the release that was seen";
  if (e.number > point->before[e.wave])
    return "no s_barrier between the store and the release by another wave that was seen";
  if (e.number <= point->completed[e.wave])
    return "no completed buffer_wbl2 sc1 between the store and the release that was seen";
  return e.scope == Scope::kAgent
             ? "no s_waitcnt vmcnt covers the store before the release that was seen"
             : "no s_waitcnt vmcnt covers the store and a buffer_wbl2 sc1 after it before the "
               "release that was seen";
}

// Whether a store leaves memory as it is.
bool Coherence::leaves_as_is(const Step& step, const FootprintPart& part, u64 address,
                             u32 bytes) const {
  if (part.access != Access::kWrite || !part.plain_data || part.data == FootprintPart::kNoRegister)
    return false;
  const std::byte* host = step.wave.workgroup->try_global(address, bytes);
  if (!host) return false;
  bool same = true;
  for_lanes(part.mask, [&](int lane) {
    const u64 first = part.address.lane[lane];
    const u64 end = std::min(first + part.bytes, address + bytes);
    for (u64 at = std::max(first, address); at < end; ++at) {
      const u32 bit = 8 * static_cast<u32>(at - first) + part.data_shift;
      const u32 index = part.data + bit / 32;
      const u32 word = part.scalar ? step.wave.s[index] : step.wave.v[index].lane[lane];
      same &= host[at - address] == static_cast<std::byte>(word >> bit % 32);
    }
  });
  return same;
}

// A store or atomic against an earlier access by another wave to the same bytes.
void Coherence::report_race(const Accessor& by, const FootprintPart& part, u64 address, u32 bytes,
                            const Event& e, bool other_reads) {
  if (is_of_hostcall(launch_, by.step, address)) return;
  const u64 producer = by.step.report.pc(launch_.code.insts[e.inst]);
  // Memory holds the other value, but for atomics and for stores with sc1, which may be late.
  const bool same = !other_reads && !e.atomic && e.scope != Scope::kAgent &&
                    leaves_as_is(by.step, part, address, bytes);
  const FindingKind kind = same ? FindingKind::kSameValueRace : FindingKind::kGlobalRace;
  by.step.report.add(by.step.wave, by.step.inst, kind, producer, [&](Finding& f) {
    f.lane = lane_of(part, address);
    f.where = hex(address);
    f.message = same        ? "gives the same value to "
                : by.atomic ? "an atomic updates "
                            : "overwrites ";
    f.message += f.where + ", which " + name(e) + (other_reads ? " reads" : " writes") +
                 " in the same launch: ";
    if (e.workgroup == by.group.id)
      f.message += "no s_barrier orders the two waves";
    else if (other_reads)
      f.message += "no release after that read was seen before this";
    else
      f.message += why(by, e);
  });
}

// Whether a load of a coherent store may miss it, although a release after it was seen.
bool Coherence::is_delayed(const Accessor& by, const Event& e) const {
  const ClockRef& observed = by.view.observed;
  return by.scope == Scope::kAgent && e.scope == Scope::kAgent && !e.atomic && observed &&
         e.workgroup != by.group.id && observed->follows(e) && !observed->covers_write(e);
}

// Returns an old value once; a load that comes back is polling.
bool Coherence::delays_again(Accessor& by, const FootprintPart& part, const Conflict& c) {
  for (Doubt& d : by.view.doubts)
    if (d.inst == &by.step.inst && d.id == c.id) {
      d.again = true;
      return false;
    }
  by.view.doubts.push_back({&by.step.inst, c.id, lane_of(part, c.address), c.address, false});
  return true;
}

void Coherence::report_doubts(const Step& step, View& view) {
  for (const Doubt& d : view.doubts)
    if (!d.again)
      report_read(step, *d.inst, FindingKind::kStaleRead, events_.at(d.id), d.lane, d.address,
                  "no s_waitcnt vmcnt covers the store before the release that was seen");
  view.doubts.clear();
}

// Counts a stale read; true when there have been so many that the wave must be polling.
bool Coherence::worn_out(Accessor& by, u32 id) {
  auto& counts = by.view.stale_reads;
  auto it = std::find_if(counts.begin(), counts.end(), [&](auto& c) { return c.first == id; });
  if (it == counts.end()) it = counts.insert(counts.end(), {id, 0});
  if (++it->second <= kStaleReads) return false;
  // What was polled was meant as a release. Take it for one, or every later access would be
  // reported for the same cause.
  const Event& e = events_.at(id);
  ReleasePoint point{.workgroup = e.workgroup, .sequence = e.releases + 1, .wave = e.wave};
  point.completed.fill(~u32{0});
  point.completed[e.wave] = e.number;
  point.written = point.completed;
  by.view.observed =
      Clock::with(by.view.observed, new (arena_.take(sizeof point)) ReleasePoint(point));
  return true;
}

void Coherence::report_read(const Step& step, const Inst& inst, FindingKind kind, const Event& e,
                            int lane, u64 address, const std::string& reason) {
  if (is_of_hostcall(launch_, step, address)) return;
  const u64 producer = step.report.pc(launch_.code.insts[e.inst]);
  step.report.add(step.wave, inst, kind, producer, [&](Finding& f) {
    f.lane = lane;
    f.where = hex(address);
    f.message = "reads " + f.where + ", which " + name(e) + " writes in the same launch: " + reason;
  });
}

void Coherence::report_stale(Accessor& by, const FootprintPart& part) {
  // All lanes see the same of one store, so that no datum tears.
  std::vector<std::pair<u32, bool>> decided;
  for (const Conflict& c : by.group.conflicts) {
    const Event& e = events_.at(c.id);
    const bool race = e.workgroup == by.group.id && !by.scalar;  // one L1: never stale
    auto stale =
        std::find_if(decided.begin(), decided.end(), [&](auto& d) { return d.first == c.id; });
    if (stale == decided.end()) {
      if (!c.delayed)
        report_read(by.step, by.step.inst,
                    race ? FindingKind::kGlobalRace : FindingKind::kStaleRead, e,
                    lane_of(part, c.address), c.address, why(by, e));
      const bool old = c.delayed ? delays_again(by, part, c) : !race && !worn_out(by, c.id);
      stale = decided.insert(decided.end(), {c.id, old});
    }
    if (!stale->second) continue;
    for_lanes(part.mask, [&](int lane) {
      const u64 at = part.address.lane[lane];
      if (at < c.address + 4 && c.address < at + part.bytes) replace(by.step, part, lane, c);
    });
  }
}

// Puts the bytes of a conflict as they were before into what the load returned to a lane.
void Coherence::replace(const Step& step, const FootprintPart& part, int lane, const Conflict& c) {
  Wave& wave = step.wave;
  const FootprintPart& whole = step.memory->parts[0];
  const FootprintPart& last = step.memory->parts[step.memory->num_parts - 1];
  if (last.space == Space::kLds && last.access == Access::kWrite && part.bytes >= 4) {
    // A load to LDS, whole dwords of it.
    const u64 start = part.address.lane[lane];
    std::byte* lds = wave.workgroup->local(
        static_cast<u32>(last.address.lane[lane] + (start - whole.address.lane[lane])), part.bytes,
        Access::kWrite, lane);
    for (u32 i = 0; i < 4; ++i) {
      const u64 byte = c.address + i - start;
      if (c.mask >> i & 1 && byte < part.bytes)
        lds[byte] = static_cast<std::byte>(c.before >> 8 * i);
    }
    return;
  }
  if (part.data == FootprintPart::kNoRegister || !part.plain_data) return;
  const auto reg = [&](u32 bit) -> u32& {
    const u32 index = part.data + bit / 32;
    return part.scalar ? wave.s[index] : wave.v[index].lane[lane];
  };
  for (u32 i = 0; i < 4; ++i) {
    const u64 byte = c.address + i - part.address.lane[lane];
    if (!(c.mask >> i & 1) || byte >= part.bytes) continue;
    const u32 bit = part.data_shift + 8 * static_cast<u32>(byte);
    u32& value = reg(bit);
    value = (value & ~(0xffu << bit % 32)) | (c.before >> 8 * i & 0xff) << bit % 32;
  }
  if (!step.inst.row->is(Trait::kSignExtends)) return;
  // Signed: the bits above the datum, in the register or in its half, repeat its last one.
  const u32 end = part.data_shift + 8u * part.bytes;
  const u32 top = !step.inst.row->is(Trait::kHalfDatum) ? 32 : part.data_shift + 16u;
  const u32 above = static_cast<u32>((u64{1} << top) - (u64{1} << end));
  u32& value = reg(part.data_shift);
  value = value >> (end - 1) & 1 ? value | above : value & ~above;
}

}  // namespace vdev
