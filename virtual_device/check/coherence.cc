#include "check/coherence.h"

#include <algorithm>

namespace vdev {
namespace {

bool is_cache_control(const Row& row) {
  return row.effects & (kWritesBack | kInvalidates) || row.is(Trait::kInvalidatesScalar);
}

Scope scope_of(const Inst& inst, Access access) {
  if (access == Access::kAtomic) return Scope::kAgent;
  if (inst.row->format == Format::kSmem) return Scope::kNone;
  return inst.sc1 ? Scope::kAgent : inst.sc0 ? Scope::kWorkgroup : Scope::kNone;
}

void raise_to(WaveNumbers& to, const WaveNumbers& from) {
  for (u32 i = 0; i < kMaxWaves; ++i) to[i] = std::max(to[i], from[i]);
}

}  // namespace

// The group that this thread dealt with last: mostly the next one, too.
thread_local struct {
  const Coherence* owner = nullptr;
  const Workgroup* workgroup = nullptr;
  void* group = nullptr;
} t_last;

Coherence::Group& Coherence::group(const Workgroup& workgroup) {
  if (t_last.owner != this || t_last.workgroup != &workgroup) {
    std::lock_guard lock(mutex_);
    t_last = {this, &workgroup, groups_.at(&workgroup).get()};
  }
  return *static_cast<Group*>(t_last.group);
}

void Coherence::started(Workgroup& workgroup) {
  auto fresh = std::make_unique<Group>();
  fresh->id = static_cast<u32>(workgroup.flat_id);
  fresh->views.resize(workgroup.num_waves);
  std::lock_guard lock(mutex_);
  t_last = {this, &workgroup, fresh.get()};
  groups_[&workgroup] = std::move(fresh);
}

void Coherence::finished(Workgroup& workgroup) {
  t_last = {};
  std::lock_guard lock(mutex_);
  groups_.erase(&workgroup);
}

// Applies the waits of a wave so far to what it knows.
void Coherence::settle(Group& group, View& view, u32 wave, const MemoryOrder& order) {
  view.issued = order.vmem_issued;
  view.number = order.vmem_issued + 1;
  view.smem_number = order.smem_issued + 1;
  if (view.completed[wave] == order.vmem_completed && view.smem_completed == order.smem_completed)
    return;
  view.completed[wave] = order.vmem_completed;
  view.smem_completed = order.smem_completed;
  if (view.through && view.through <= order.vmem_completed) group.publishes = true;
  std::erase_if(view.write_backs, [&](const WriteBack& w) {
    if (w.number > order.vmem_completed) return false;
    raise_to(view.written, w.covers);
    return true;
  });
  std::erase_if(view.observations, [&](const Observation& o) {
    if (o.number > (o.scalar ? order.smem_completed : order.vmem_completed)) return false;
    if (o.clock) view.observed = Clock::join(view.observed, view.latest = o.clock);
    if (o.local) raise_to(view.known, o.known);
    return true;
  });
}

void Coherence::cache_control(const Step& step, Group& group, View& view) {
  const Inst& inst = step.inst;
  if (inst.row->is(Trait::kInvalidatesScalar)) {
    view.scalar_acquired = view.observed;
    view.scalar_completed = view.completed;
  } else if (!inst.sc1) {
    return;  // sc0: no further than the workgroup
  } else if (inst.row->effects & kInvalidates) {
    view.acquired = view.observed;
  } else {
    const u32 wave = step.wave.wave_idx;
    WriteBack w{view.number, view.known};
    w.covers[wave] = view.merge_floor = view.issued;
    view.write_backs.push_back(w);
    group.publishes = true;
  }
}

void Coherence::before(const Step& step) {
  const Row& row = *step.inst.row;
  const bool controls = is_cache_control(row);
  if (!step.memory && !controls && !(row.effects & (kBarrier | kEndsProgram))) return;
  Group& group = this->group(*step.wave.workgroup);
  View& view = group.views[step.wave.wave_idx];
  settle(group, view, step.wave.wave_idx, step.order);
  if (controls) return cache_control(step, group, view);
  if (row.effects & kEndsProgram) report_doubts(step, view);
  if (!step.memory) return;
  for (int i = 0; i < step.memory->num_parts; ++i) {
    const FootprintPart& part = step.memory->parts[i];
    if (part.space != Space::kGlobal || part.access == Access::kRead || !part.mask) continue;
    const bool atomic = part.access == Access::kAtomic;
    Accessor by{step, group, view, scope_of(step.inst, part.access), false, part.scalar, atomic};
    by.id = new_event(by);
    store(by, part);
    if (by.scope != Scope::kNone && part.bytes <= kMaxSyncBytes) release(by, part);
    if (by.scope == Scope::kAgent && !atomic) view.through = view.number;
  }
}

void Coherence::after(const Step& step) {
  if (!step.memory) return;
  Group* group = nullptr;
  for (int i = 0; i < step.memory->num_parts; ++i) {
    const FootprintPart& part = step.memory->parts[i];
    if (part.space != Space::kGlobal || part.access == Access::kWrite || !part.mask) continue;
    if (!group) group = &this->group(*step.wave.workgroup);
    const bool atomic = part.access == Access::kAtomic;
    if (atomic && part.data == FootprintPart::kNoRegister) continue;
    Accessor by{step,
                *group,
                group->views[step.wave.wave_idx],
                scope_of(step.inst, part.access),
                !atomic,
                part.scalar,
                atomic};
    if (!atomic) {
      by.id = read_event(by);
      load(by, part);
    }
    if (by.scope != Scope::kNone && part.bytes <= kMaxSyncBytes) observe(by, part);
  }
}

void Coherence::barrier(Workgroup& workgroup) {
  Group& group = this->group(workgroup);
  WaveNumbers issued{}, completed{}, written{}, scalar{};
  ClockRef observed, acquired, scalar_acquired;
  for (size_t i = 0; i < group.views.size(); ++i) {
    View& view = group.views[i];
    view.merge_floor = issued[i] = view.issued;
    raise_to(completed, view.completed);
    raise_to(written, view.written);
    raise_to(scalar, view.scalar_completed);
    observed = Clock::join(observed, view.observed);
    acquired = Clock::join(acquired, view.acquired);
    scalar_acquired = Clock::join(scalar_acquired, view.scalar_acquired);
  }
  for (View& view : group.views) {
    view.known = issued;
    view.completed = completed;
    view.written = written;
    view.scalar_completed = scalar;
    view.observed = observed;
    view.acquired = acquired;
    view.scalar_acquired = scalar_acquired;
  }
  ++group.epoch;
}

u32 Coherence::new_event(const Accessor& by) {
  Group& group = by.group;
  if (group.ids_left == 0) {
    group.next_id = events_.take_block();
    if (group.next_id == 0) {
      if (!full_.exchange(true))
        by.step.report.add(by.step.wave, by.step.inst, FindingKind::kUnchecked, kNoPc,
                           [](Finding& f) {
                             f.message =
                                 "too many accesses in one launch: from here on, accesses to "
                                 "device memory are not followed for races";
                           });
      return 0;
    }
    group.ids_left = EventTable::kBlock;
  }
  --group.ids_left;
  const u32 id = group.next_id++;
  const DecodedCode& code = launch_.code;
  events_.at(id) = {.workgroup = group.id,
                    .inst = static_cast<u32>(&by.step.inst - code.insts.data()),
                    // Not numbered among VMEM: ordered by whatever orders the last one.
                    .number = by.scalar ? by.view.issued : by.view.number,
                    .releases = group.releases,
                    .wave = static_cast<u8>(by.step.wave.wave_idx),
                    .scope = by.scope,
                    .atomic = by.atomic};
  std::atomic_thread_fence(std::memory_order_release);
  return id;
}

// One event stands for the executions of a load between two points where order may change.
u32 Coherence::read_event(const Accessor& by) {
  const Inst* inst = &by.step.inst;
  Group& group = by.group;
  ReadSite& site = by.view.read_sites[(inst - launch_.code.insts.data()) / 2 % 16];
  const bool crowded = group.read_events >= kMaxReadEvents;
  const u64 epoch = crowded ? group.releases : group.epoch;
  if (site.inst != inst || site.epoch != epoch || site.crowded != crowded) {
    site = {inst, epoch, crowded, new_event(by)};
    ++group.read_events;
  }
  return site.id;
}

}  // namespace vdev
