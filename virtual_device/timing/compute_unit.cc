#include "timing/compute_unit.h"

#include <algorithm>
#include <cmath>

#include "core/launch_state.h"
#include "isa/waitcnt.h"

namespace vdev::timing {
namespace {

bool is_load_to_lds(const Inst& inst) {
  constexpr u32 kBoth = kLoad | kStore;
  const bool flat = inst.row->unit == Unit::kFlat || inst.row->format == Format::kGlobal ||
                    inst.row->format == Format::kScratch;
  return inst.lds || (flat && (inst.row->effects & kBoth) == kBoth);
}

constexpr u32 kShortPasses = 4;  // at most, of a 16x16 matrix instruction of 16-bit inputs

u32 lost_slots(u32 one_more, u32 otherwise) { return one_more > 0 ? one_more - 1 : otherwise; }

bool has_three_sources(const Inst& inst) {
  return inst.row->src[2].used() || (inst.row->src[1].used() && inst.row->effects & kReadsDst);
}

// When a queue takes one more: it may hold some that are done.
u64 when_free(const std::vector<u64>& queue, u32 limit) {
  return queue.size() < limit ? 0 : *std::min_element(queue.begin(), queue.end());
}

void enqueue(std::vector<u64>& queue, u64 now, u64 done) {
  std::erase_if(queue, [now](u64 other) { return other <= now; });
  queue.push_back(done);
}

}  // namespace

ComputeUnit::ComputeUnit(const Arch& arch, const UnitTimes& times, const Readings& readings,
                         u32 index, MemoryPath& memory, Profile& profile, Execute execute)
    : timing_(arch.timing),
      num_simds_(arch.limits.simds_per_cu),
      times_(times),
      lds_read_bytes_(readings.lds_published ? timing_.lds_port_published_bytes
                                             : timing_.lds_port_read_bytes),
      mfma_lost_slots_(lost_slots(readings.mfma_lost_slots, timing_.mfma_lost_slots)),
      short_mfma_lost_slots_(lost_slots(readings.short_mfma_lost_slots, mfma_lost_slots_)),
      readings_(readings),
      index_(index),
      memory_(memory),
      profile_(profile),
      execute_(std::move(execute)),
      simds_(num_simds_),
      lds_ports_(timing_.lds_ports, Server(1)),
      lds_queues_(timing_.lds_ports) {}

void ComputeUnit::wake(u32 simd, u64 at) {
  // SIMD s has the slots s, s + 4, ...
  const u64 slot = timing_.slot;
  const u64 aligned = (at + slot - 1 - simd % slot) / slot * slot + simd % slot;
  simds_[simd].next = std::min(simds_[simd].next, std::max(aligned, at));
}

void ComputeUnit::add(Workgroup& workgroup, u64 start) {
  for (Wave* wave : workgroup.waves) {
    // The SIMD with the fewest waves; in the order 0 2 1 3 [M SQTT].
    static constexpr u32 kOrder[] = {0, 2, 1, 3};
    u32 best = kOrder[0];
    for (const u32 s : kOrder)
      if (simds_[s].waves.size() < simds_[best].waves.size()) best = s;
    auto timed = std::make_unique<TimedWave>();
    timed->wave = wave;
    timed->start = timed->next_issue = timed->ready_since = start;
    timed->age = next_age_++;
    simds_[best].waves.push_back(std::move(timed));
    wake(best, start);
  }
}

ComputeUnit::Category ComputeUnit::category(const Inst& inst) {
  switch (inst.row->unit) {
    case Unit::kSalu:
    case Unit::kSmem:
      return Category::kScalar;
    case Unit::kBranch:
      return Category::kBranch;
    case Unit::kInternal:
    case Unit::kMessage:
      return Category::kInternal;
    case Unit::kLds:
      return Category::kLds;
    case Unit::kVmem:
    case Unit::kFlat:
    case Unit::kScratch:
      return Category::kVmem;
    default:
      return Category::kValu;
  }
}

u64 ComputeUnit::wait_done(const TimedWave& w, const Inst& inst) const {
  const WaitCounts fields(inst);
  u64 done = 0;
  const auto over = [&done](const std::deque<Operation>& queue, u32 allowed) {
    if (queue.size() <= allowed) return;
    const bool ordered =
        std::all_of(queue.begin(), queue.end(), [](const Operation& o) { return o.ordered; });
    const size_t last = ordered || allowed == 0 ? queue.size() - allowed : queue.size();
    for (size_t i = 0; i < last; ++i) done = std::max(done, queue[i].done);
  };
  over(w.vm, fields.vm);
  over(w.lgkm, fields.lgkm);
  return done;
}

u64 ComputeUnit::all_done(const TimedWave& w) {
  u64 done = 0;
  for (const auto* queue : {&w.vm, &w.lgkm})
    for (const Operation& operation : *queue) done = std::max(done, operation.done);
  return done;
}

ComputeUnit::Plan ComputeUnit::plan(const TimedWave& w, u32 simd_index, const Inst& inst) const {
  const Simd& simd = simds_[simd_index];
  if (w.at_barrier) return {kNever, Stall::kBarrier};
  Plan best{w.next_issue, w.delay};
  const auto later = [&best](u64 at, Stall reason) {
    if (at > best.at) best = {at, reason};
  };
  // A wave whose counter is at its greatest value waits for its oldest operation.
  const auto counted = [&later](const std::deque<Operation>& queue, u32 limit, Stall reason) {
    if (queue.size() >= limit) later(queue[queue.size() - limit].done, reason);
  };
  // It implies s_waitcnt 0 [D ISA3, S_ENDPGM]: a wave ends when its stores are acknowledged.
  if (inst.row->effects & kEndsProgram) later(all_done(w), Stall::kWaitcnt);
  const Unit unit = inst.row->unit;
  if (is_valu(unit)) {
    later(simd.valu_free, Stall::kVector);
    const UnitTimes::Time& time = times_[unit];
    if (time.exclusive && simd.matrix_end) later(simd.matrix_end + time.after, Stall::kMatrix);
    return best;
  }
  switch (unit) {
    case Unit::kMfmaAlone:
      later(simd.valu_free, Stall::kVector);
      [[fallthrough]];
    case Unit::kMfma:
      later(simd.mfma_free, Stall::kMatrix);
      later(simd.vector_issue, Stall::kVector);
      break;
    case Unit::kLds:
      later(w.next_lds, Stall::kLds);
      later(when_free(lds_queues_[port(simd_index)], timing_.lds_queue), Stall::kLds);
      counted(w.lgkm, timing_.lgkm_limit, Stall::kLds);
      break;
    case Unit::kVmem:
    case Unit::kFlat:
    case Unit::kScratch:
      later(ta_free_, Stall::kVmem);
      later(when_free(vmem_queue_, timing_.vmem_queue), Stall::kVmem);
      counted(w.vm, timing_.vm_limit, Stall::kVmem);
      break;
    case Unit::kInternal:
      if (is_waitcnt(inst)) later(wait_done(w, inst), Stall::kWaitcnt);
      break;
    default:
      break;
  }
  return best;
}

void ComputeUnit::charge(TimedWave& w, const Inst& inst, u64 now, const Plan& plan) {
  Site& site = profile_.sites[&inst];
  ++site.issued;
  const u64 first = w.ready_since;  // right behind the instruction before
  if (now <= first) return;
  const u64 waited = std::min(plan.at, now);
  if (waited > first) site.stalled[static_cast<int>(plan.reason)] += waited - first;
  if (now > std::max(waited, first))
    site.stalled[static_cast<int>(Stall::kArbitration)] += now - std::max(waited, first);
}

u64 ComputeUnit::tick(u32 simd_index, u64 now) {
  Simd& simd = simds_[simd_index];
  simd.next = kNever;
  // Priority: s_setprio, then age, the oldest wave first.
  std::vector<TimedWave*> order;
  for (const auto& w : simd.waves) order.push_back(w.get());
  std::stable_sort(order.begin(), order.end(), [](const TimedWave* a, const TimedWave* b) {
    return a->wave->priority != b->wave->priority ? a->wave->priority > b->wave->priority
                                                  : a->age < b->age;
  });
  bool taken[kNumCategories] = {};
  u64 again = kNever;
  for (TimedWave* w : order) {
    if (w->wave->state == WaveState::kDone) continue;
    const Inst& inst = *w->wave->ip;
    if (!inst.row) {  // traps
      issue(*w, simd_index, inst, now);
      continue;
    }
    // Fetch
    const u64 line = w->wave->workgroup->launch->code.pc(&inst) / timing_.fetch_line;
    if (line != w->fetched && w->next_issue <= now) {
      w->fetched = line;
      if (const u64 there = memory_.fetch(index_, line * timing_.fetch_line, now); there > now) {
        w->next_issue = there;
        w->delay = Stall::kFetch;
      }
    }
    const Plan when = plan(*w, simd_index, inst);
    if (when.at > now) {
      again = std::min(again, when.at);
      continue;
    }
    const auto c = static_cast<size_t>(category(inst));
    // A trap for the eye: internal instructions use no unit, so that several waves may have one.
    if (taken[c] && category(inst) != Category::kInternal) {
      again = std::min(again, now + timing_.slot);
      continue;
    }
    taken[c] = true;
    charge(*w, inst, now, when);
    issue(*w, simd_index, inst, now);
    if (faulted_) return kNever;
    again = std::min(again, now + timing_.slot);
  }
  std::erase_if(simd.waves, [](const auto& w) { return w->wave == nullptr; });
  if (again != kNever) wake(simd_index, std::max(again, now + 1));
  return simd.next;
}

u64 ComputeUnit::valu_clk(const Inst& inst, u32 simd, u64 now) const {
  const u64 slot = timing_.slot;
  u64 clk = inst.row->slots ? inst.row->slots * slot : times_[inst.row->unit].clk;
  if (readings_.three_source_slots && has_three_sources(inst) && now < simds_[simd].lds_until)
    clk += readings_.three_source_slots * slot;
  return clk;
}

// Finds what an instruction is about to touch. One that will fault touches nothing: its execution
// says why.
bool ComputeUnit::memory_of(const Wave& wave, const Inst& inst) {
  if (!inst.row || !(inst.row->effects & (kLoad | kStore | kAtomic)) || !has_registers(inst))
    return false;
  try {
    return footprint(wave, inst, footprint_);
  } catch (const Fault&) {
    return false;
  }
}

void ComputeUnit::issue(TimedWave& w, u32 simd_index, const Inst& inst, u64 now) {
  Simd& simd = simds_[simd_index];
  Wave& wave = *w.wave;
  Workgroup& workgroup = *wave.workgroup;
  const Inst* const successor = &inst + inst.size;
  const bool touches = memory_of(wave, inst);
  const bool ok = execute_(wave);
  ++profile_.instructions;
  if (!ok) {
    faulted_ = true;
    return;
  }
  const u64 slot = timing_.slot;
  trace(w, simd_index, Track::kWave, inst, now, now + slot);
  w.next_issue = w.ready_since = now + slot;
  w.delay = Stall::kNone;
  const Unit unit = inst.row ? inst.row->unit : Unit::kInternal;
  if (is_valu(unit)) {
    const UnitTimes::Time& time = times_[unit];
    const u64 clk = valu_clk(inst, simd_index, now);
    simd.valu_free = now + clk;
    simd.vector_issue = now + slot;
    if (time.exclusive) simd.mfma_free = std::max(simd.mfma_free, simd.valu_free);
    trace(w, simd_index, Track::kVector, inst, now, now + clk);
    profile_.use.valu += clk;
  }
  switch (unit) {
    case Unit::kMfma:
    case Unit::kMfmaAlone: {
      const u64 busy = u64{inst.passes} * slot;
      simd.mfma_free = simd.matrix_end = now + busy;
      simd.vector_issue = now + slot;
      const u64 lost = inst.passes <= kShortPasses ? short_mfma_lost_slots_ : mfma_lost_slots_;
      simd.valu_free = std::max(simd.valu_free, now) + slot * lost;
      simd.valu_free = std::max(simd.valu_free, now + slot * (1 + lost));
      if (unit == Unit::kMfmaAlone) simd.valu_free = std::max(simd.valu_free, now + busy);
      profile_.use.mfma += busy;
      trace(w, simd_index, Track::kMatrix, inst, now, now + busy);
      profile_.use.valu += slot;
      w.next_lds = now + timing_.lds_after_mfma;
      break;
    }
    case Unit::kSalu:
      profile_.use.salu += slot;
      break;
    case Unit::kInternal:
      if (inst.row->is(Trait::kNop | Trait::kSleep)) {
        const u64 states = inst.row->is(Trait::kNop) ? u64{static_cast<u32>(inst.imm) & 15} : 16;
        w.next_issue += slot * states;
        w.delay = Stall::kBranch;
      }
      if (is_waitcnt(inst)) {
        const auto done = [now](const Operation& o) { return o.done <= now; };
        std::erase_if(w.vm, done);
        std::erase_if(w.lgkm, done);
        if (readings_.wait_clk) {
          w.next_issue += readings_.wait_clk;
          w.delay = Stall::kWaitcnt;
        }
      }
      break;
    case Unit::kLds:
    case Unit::kSmem:
    case Unit::kVmem:
    case Unit::kFlat:
    case Unit::kScratch:
      issue_memory(w, simd_index, inst, touches ? &footprint_ : nullptr, now);
      if (is_load_to_lds(inst))
        simd.valu_free = std::max(simd.valu_free, now) + slot * timing_.lds_load_slots;
      break;
    default:
      break;
  }
  if (wave.ip != successor && inst.row->effects & kBranch) {
    w.next_issue = now + timing_.taken_branch;
    w.delay = Stall::kBranch;
  }
  wave.sleeping = false;
  if (inst.row->effects & kBarrier) {
    w.at_barrier = true;
    if (workgroup.waves_at_barrier == 0) release_barrier(workgroup, now);
  }
  if (wave.state == WaveState::kDone) {
    profile_.wave_clk += now - w.start;
    if (workgroup.waves_at_barrier == 0) release_barrier(workgroup, now);
    if (workgroup.waves_done == workgroup.num_waves) {
      finished_.push_back(&workgroup);
      profile_.times.push_back({workgroup.flat_id, index_, w.start, now});
    }
    w.wave = nullptr;
  }
}

void ComputeUnit::issue_memory(TimedWave& w, u32 simd_index, const Inst& inst,
                               const Footprint* touched, u64 now) {
  const auto in_order = [](std::deque<Operation>& queue, u64 done, bool ordered) {
    if (ordered && !queue.empty()) done = std::max(done, queue.back().done);
    queue.push_back({done, ordered});
    return done;
  };
  switch (inst.row->unit) {
    case Unit::kSmem:
      in_order(w.lgkm,
               touched ? memory_.scalar(index_, *touched, now) : now + timing_.scalar_latency,
               false);
      return;
    case Unit::kLds: {
      const LdsService service = lds_service(timing_, lds_read_bytes_, inst, touched);
      const double served = lds_ports_[port(simd_index)].serve(static_cast<double>(now),
                                                               service.data + service.address);
      profile_.use.lds += service.data;
      profile_.use.lds_address += service.address;
      profile_.use.lds_conflict += service.conflict;
      const u64 done =
          in_order(w.lgkm, static_cast<u64>(std::ceil(served)) + timing_.lds_latency, true);
      enqueue(lds_queues_[port(simd_index)], now, done);
      simds_[simd_index].lds_until = done;
      trace(w, simd_index, Track::kLds, inst, static_cast<u64>(served) - service.data, done);
      w.next_issue = now + timing_.lds_back_to_back;
      return;
    }
    default: {
      ta_free_ = now + timing_.ta_address;
      u64 done = inst.row->effects & kWritesBack ? memory_.write_back(now)
                 : touched                       ? memory_.vector(index_, inst, *touched, now)
                                                 : now + timing_.l2_latency;
      if (inst.row->effects & kInvalidates) memory_.invalidate(index_);
      done = in_order(w.vm, done, true);
      if (inst.row->unit == Unit::kFlat) in_order(w.lgkm, done, false);
      enqueue(vmem_queue_, now, done);
      trace(w, simd_index, Track::kMemory, inst, now, done);
      return;
    }
  }
}

void ComputeUnit::trace(const TimedWave& w, u32 simd, Track track, const Inst& inst, u64 start,
                        u64 end) {
  if (index_ != 0 || profile_.events.size() >= profile_.max_events) return;
  profile_.events.push_back({start, end, simd, static_cast<u32>(w.age), track, &inst});
}

void ComputeUnit::release_barrier(Workgroup& workgroup, u64 now) {
  for (u32 s = 0; s < simds_.size(); ++s)
    for (auto& w : simds_[s].waves) {
      if (!w->at_barrier || !w->wave || w->wave->workgroup != &workgroup) continue;
      w->at_barrier = false;
      w->next_issue = now + timing_.barrier;
      w->delay = Stall::kBarrier;
      wake(s, w->next_issue);
    }
}

std::vector<Workgroup*> ComputeUnit::take_finished() {
  std::vector<Workgroup*> out;
  std::swap(out, finished_);
  return out;
}

}  // namespace vdev::timing
