#include "check/checker.h"

#include <algorithm>
#include <cstdio>

namespace vdev {
namespace {

FindingKind kind_of(const Fault& fault, const Memory& memory) {
  switch (fault.kind) {
    case FaultKind::kMisaligned:
      return FindingKind::kMisaligned;
    case FaultKind::kDeadlock:
      return FindingKind::kDeadlock;
    case FaultKind::kRunaway:
      return FindingKind::kRunaway;
    case FaultKind::kTrap:
      return FindingKind::kTrap;
    case FaultKind::kScratchBounds:
      return FindingKind::kScratchBounds;
    case FaultKind::kLdsBounds:
      return FindingKind::kLdsBounds;
    case FaultKind::kOutsideCode:
      return FindingKind::kOutsideKernel;
    case FaultKind::kIllegalAddress:
      return memory.was_freed(fault.address) ? FindingKind::kUseAfterFree
                                             : FindingKind::kIllegalAddress;
    default:
      return FindingKind::kIllegalInstruction;
  }
}

// What the host declared, and that code is not written to: the virtual device runs what it decoded.
std::vector<Contract> contracts_of(const CheckSession& session, const CodeObject& code) {
  std::vector<Contract> contracts = session.contracts();
  contracts.push_back({Contract::Kind::kReadOnly, code.text_address(), 4 * code.text().size(),
                       "the kernel's own code"});
  return contracts;
}

}  // namespace

Checker::Checker(LaunchState& launch, CheckSession& session)
    : launch_(launch),
      session_(session),
      uses_(session.register_uses(launch.launch.code, launch.code)),
      report_(launch.code, session.options().max_errors),
      bounds_(contracts_of(session, *launch.launch.code), launch.kernarg_address,
              launch.kernel().kernarg_bytes),
      coherence_(launch) {
  define_arguments(launch, session.shadow());
}

// Loads that come early are adversaries too: every other schedule has them, workgroup by workgroup.
bool Checker::late_loads(const Workgroup& workgroup) const {
  if (!session_.options().late_loads) return false;
  const u64 seed = launch_.options.seed;
  return seed % 8 < 4 || (workgroup.flat_id + seed / 8) % 2 == 0;
}

void Checker::workgroup_started(Workgroup& workgroup) {
  std::unique_ptr<WorkgroupShadow> group;
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      group = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!group) group = std::make_unique<WorkgroupShadow>();
  while (group->waves.size() < workgroup.num_waves)
    group->waves.push_back(std::make_unique<WaveShadow>());
  group->lds.start(workgroup);
  group->lds_taint.start(workgroup);
  group->control.start(workgroup);
  group->late_stores.start(launch_.options.seed, workgroup.flat_id, session_.options().late_stores);
  coherence_.started(workgroup);
  for (Wave* wave : workgroup.waves) {
    WaveShadow& own = *group->waves[wave->wave_idx];
    own.waits.start(launch_.kernel(), late_loads(workgroup));
    own.hazards.reset();
    own.clauses.start(launch_.kernel(), launch_.launch.code->may_have_xnack());
    own.taint.start(*wave, group->lds_taint, session_.shadow());
    wave->shadow = &own;
  }
  workgroup.shadow = group.release();
}

bool Checker::before(Wave& wave, const Inst& inst) {
  WaveShadow& own = shadow(wave);
  WorkgroupShadow& group = shadow(*wave.workgroup);
  Step step{wave, inst, use(inst), nullptr, own.waits.order, report_};
  group.control.step(step);
  if (wave.special) [[unlikely]]
    report_.add(wave, inst, FindingKind::kUnchecked, kNoPc, [](Finding& f) {
      f.where = "mode";
      f.message = "registers indexed by M0 (GPR_IDX_EN) or skipped instructions are not followed";
    });
  own.waits.before(step);
  group.late_stores.settle(wave, own.waits.order);
  own.hazards.step(step);
  own.clauses.step(step);
  own.touches_memory = footprint(wave, inst, own.footprint);
  if (own.touches_memory) step.memory = &own.footprint;
  own.taint.step(step);
  if (own.touches_memory) {
    bounds_.step(step);
    for (int i = 0; i < own.footprint.num_parts; ++i)
      if (own.footprint.parts[i].space == Space::kLds)
        group.lds.access(step, own.footprint.parts[i]);
  }
  const bool late = group.late_stores.before(step);
  coherence_.before(step);
  if (inst.row->effects & (kBarrier | kEndsProgram)) group.lds.arrived(wave, own.waits.order);
  if (report_.exhausted())
    raise(FaultKind::kAborted, "ended after the number of findings that max_errors allows");
  return !late;
}

void Checker::after(Wave& wave, const Inst& inst) {
  WaveShadow& own = shadow(wave);
  const Step step{
      wave,   inst, use(inst), own.touches_memory ? &own.footprint : nullptr, own.waits.order,
      report_};
  coherence_.after(step);
  if (own.touches_memory)
    shadow(*wave.workgroup).lds.after(step);  // before what it loads is put off
  own.waits.after(step);
  shadow(*wave.workgroup).late_stores.settle(wave, own.waits.order);
}

void Checker::barrier_released(Workgroup& workgroup) {
  shadow(workgroup).lds.released();
  coherence_.barrier(workgroup);
}

void Checker::faulted(Wave& wave, const Inst& inst, const Fault& fault) {
  if (fault.kind == FaultKind::kAborted) return;
  const FindingKind kind = kind_of(fault, session_.memory());
  report_.add(wave, inst, kind, kNoPc, [&](Finding& f) {
    f.lane = fault.lane;
    if (fault.address) {
      char text[32];
      std::snprintf(text, sizeof text, "%s0x%llx", kind == FindingKind::kLdsBounds ? "lds " : "",
                    static_cast<unsigned long long>(fault.address));
      f.where = text;
    }
    f.message = fault.message;
  });
}

void Checker::workgroup_finished(Workgroup& workgroup) {
  std::unique_ptr<WorkgroupShadow> group(&shadow(workgroup));
  group->late_stores.finish();
  if (workgroup.waves_done == workgroup.num_waves) group->control.finish(workgroup, report_);
  coherence_.finished(workgroup);
  std::lock_guard lock(mutex_);
  for (Wave* wave : workgroup.waves) {
    Waits& waits = shadow(*wave).waits;
    waits.finish();
    for (const auto& [inst, site] : waits.sites) {
      WaitSite& total = sites_[inst];
      for (int c = 0; c < 2; ++c) {
        total.executed[c] += site.executed[c];
        total.needed[c] = std::min(total.needed[c], site.needed[c]);
        total.field[c] = std::min(total.field[c], site.field[c]);
      }
    }
    wave->shadow = nullptr;
  }
  workgroup.shadow = nullptr;
  idle_.push_back(std::move(group));
}

void Checker::advise_on_waits() {
  for (const auto& [inst, site] : sites_)
    for (int c = 0; c < 2; ++c) {
      if (!site.executed[c] || site.needed[c] <= site.field[c]) continue;
      const std::string name = c == 0 ? "vmcnt" : "lgkmcnt";
      Finding f;
      f.kind = FindingKind::kOverWait;
      f.pc = report_.pc(*inst);
      f.where = name;
      f.count = site.executed[c];
      const std::string has = name + "(" + std::to_string(site.field[c]) + ")";
      f.message =
          site.needed[c] == WaitSite::kNothing
              ? has + " waits for nothing that is needed before the next wait"
              : name + "(" + std::to_string(site.needed[c]) + ") would do instead of " + has;
      report_.insert(std::move(f));
    }
}

void Checker::launch_finished(LaunchState& launch) {
  bounds_.finish(session_.memory(), report_);
  if (!launch.faulted) advise_on_waits();
  CheckedLaunch result;
  result.code = launch.launch.code;
  result.kernel = launch.kernel().name;
  result.grid = launch.launch.num_workgroups;
  result.workgroup_size = launch.launch.workgroup_size;
  result.entry = launch.kernel().entry_address;
  result.findings = report_.take();
  session_.add(std::move(result));
}

}  // namespace vdev
