#include "timing/simulator.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "core/launch_state.h"

namespace vdev::timing {

Simulator::Simulator(const std::shared_ptr<LaunchState>& launch, Device& device,
                     const Options& options, Caches& caches)
    : machine_(device.machine()),
      timing_(device.arch().timing),
      launch_(launch),
      options_(options),
      caches_(caches),
      times_(device.arch(), options.readings.trans_exclusive),
      worker_(device),
      others_(device, [this](const Wave& wave, const Inst& inst) {
        Footprint memory;
        if (footprint(wave, inst, memory)) memory_->written_elsewhere(inst, memory);
      }) {
  const Launch& l = launch->launch;
  per_cu_ =
      std::max(1u, device.resident_workgroups_per_cu(
                       *l.kernel, l.workgroup_size.x * l.workgroup_size.y * l.workgroup_size.z,
                       l.dynamic_lds_bytes));
  const u32 xcds = machine_.num_xcds;
  limit_ = (launch->num_workgroups + xcds - 1 - options.xcd) / xcds;
  others_ran_.resize(launch->num_workgroups);
  is_pending_.resize(limit_, true);
  pending_ = limit_;  // those of a sample never become 0
  if (options.max_workgroups) limit_ = std::min(limit_, options.max_workgroups);
}

// Starts the next workgroup on the CU with the most room, if there is any.
bool Simulator::dispatch(u64 now) {
  if (next_ >= limit_) return false;
  const auto roomiest = std::min_element(resident_.begin(), resident_.end());
  if (*roomiest >= per_cu_) return false;
  ++*roomiest;
  Workgroup* workgroup = worker_.admit(launch_, next_++ * machine_.num_xcds + options_.xcd);
  dispatcher_free_ =
      std::max(dispatcher_free_, now) + u64{timing_.dispatch_wave} * workgroup->num_waves;
  cus_[static_cast<size_t>(roomiest - resident_.begin())].add(*workgroup, dispatcher_free_);
  return true;
}

void Simulator::run_others(u64 first, u64 count) {
  for (u64 nth = first; nth < std::min(first + count, launch_->num_workgroups); ++nth) {
    if (nth % machine_.num_xcds == options_.xcd || others_ran_[nth] || launch_->faulted) continue;
    others_ran_[nth] = true;
    others_.admit(launch_, nth);
    others_.run_until_waiting();
  }
}

void Simulator::run_rest() {
  const Worker::HostModes modes(others_);
  run_others(0, launch_->num_workgroups);
  for (u64 round = next_; round < is_pending_.size() && !launch_->faulted; ++round)
    others_.admit(launch_, round * machine_.num_xcds + options_.xcd);
  while (others_.run_slice()) {
  }
}

// Other XCDs' workgroups arrive when those of this XCD do that they began with; of any two XCDs
// each is the first one in every other round. The last one of all is of this XCD, which so stands
// for that which a launch ends with.
void Simulator::arrive(u64 nth) {
  const u64 xcds = machine_.num_xcds, round = nth / xcds;
  settle(round);
  if (pending_ == 0) return run_others(0, launch_->num_workgroups);
  if (arrived_ != round) run_others(arrived_ * xcds, xcds);
  arrived_ = round;
  const auto rank = [&](u64 xcd) { return xcd ^ (round % std::bit_ceil(xcds)); };
  for (u64 xcd = 0; xcd < xcds; ++xcd)
    if (rank(xcd) < rank(options_.xcd)) run_others(round * xcds + xcd, 1);
}

void Simulator::settle(u64 round) {
  if (is_pending_[round]) --pending_;
  is_pending_[round] = false;
}

bool Simulator::step(Wave& wave) {
  const Inst& inst = *wave.ip;
  if (inst.row) {
    // What adds to a counter arrives. What compares or replaces claims: it comes before the work.
    const bool asks = inst.row->effects & kAtomic && inst.sc0 && inst.row->format != Format::kDs;
    if (asks && !inst.row->is(Trait::kComparesFirst | Trait::kReplaces))
      arrive(wave.workgroup->flat_id);
    // It waits for somebody: whoever may have been started by now.
    if (inst.row->is(Trait::kSleep)) {
      run_others(0, next_ * machine_.num_xcds);
      others_.run_until_waiting();
    }
  }
  return worker_.step(wave);
}

bool Simulator::run(Profile& profile) {
  const double clock =
      options_.clock_ghz ? options_.clock_ghz : machine_.product->sustained_clock_ghz;
  profile.max_events = options_.max_events;
  MemoryPath& memory = memory_.emplace(machine_, clock, options_.readings, caches_);
  if (options_.warm_code)
    memory.preload(launch_->kernel().entry_address, launch_->code.pc(&launch_->code.insts.back()));
  // CUs that would never get a workgroup are left out.
  const u32 used = static_cast<u32>(std::min<u64>(machine_.cus_of_xcd(), limit_));
  for (u32 i = 0; i < used; ++i)
    cus_.emplace_back(*machine_.arch, times_, options_.readings, i, memory, profile,
                      [this](Wave& w) { return step(w); });
  resident_.assign(used, 0);
  while (dispatch(timing_.first_fetch)) {
  }
  struct Event {
    u64 at;
    u32 cu, simd;
    bool operator>(const Event& o) const {
      return std::tie(at, cu, simd) > std::tie(o.at, o.cu, o.simd);
    }
  };
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  const auto ask_again = [&](u32 cu) {
    for (u32 s = 0; s < machine_.arch->limits.simds_per_cu; ++s)
      if (cus_[cu].next(s) != kNever) events.push({cus_[cu].next(s), cu, s});
  };
  for (u32 i = 0; i < used; ++i) ask_again(i);
  const Worker::HostModes modes(worker_);
  while (!events.empty()) {
    const Event e = events.top();
    events.pop();
    ComputeUnit& cu = cus_[e.cu];
    if (cu.next(e.simd) != e.at) continue;  // it was asked for another time since
    cu.tick(e.simd, e.at);
    if (cu.faulted() || launch_->faulted) return false;
    profile.cycles = std::max(profile.cycles, e.at);
    for (Workgroup* workgroup : cu.take_finished()) {
      settle(workgroup->flat_id / machine_.num_xcds);
      worker_.leave(*workgroup);
      ++profile.simulated_workgroups;
      --resident_[e.cu];
      while (dispatch(e.at)) {
      }
      for (u32 i = 0; i < used; ++i) ask_again(i);
    }
    ask_again(e.cu);
  }
  // The end of a kernel releases what it wrote to the whole device.
  const u64 written = memory.release(profile.cycles);
  profile.write_back = written - profile.cycles;
  profile.cycles = written;
  profile.cus = used;
  profile.workgroups = launch_->num_workgroups;
  profile.traffic = memory.traffic();
  profile.resident_per_cu = per_cu_;
  profile.l1_clk = memory.l1_busy();
  profile.l2_clk = memory.l2_busy();
  profile.hbm_clk = memory.hbm_busy();
  return true;
}

}  // namespace vdev::timing
