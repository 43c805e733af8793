#include "check/control.h"

#include "core/launch_state.h"
#include "isa/control.h"

namespace vdev {
namespace {

// By intention: jumps to addresses and calls.
bool leaves_function(const Row& row) { return row.is(Trait::kLeavesFunction); }
bool is_readfirstlane(const Row& row) {
  return row.is(Trait::kReadsLane) && !row.is(Trait::kSelectsLane);
}

}  // namespace

void Control::start(const Workgroup& workgroup) { waves_.assign(workgroup.num_waves, {}); }

void Control::check_place(const Step& step, WaveState& state) {
  const u64 pc = step.pc();
  if (pc >= state.first && pc < state.last) [[likely]]
    return;
  const auto [first, last] = step.wave.workgroup->launch->launch.code->function_around(pc);
  const bool entered = state.last == 0 || state.jumped;
  if (!entered || last == 0)
    step.report.add(step.wave, step.inst, FindingKind::kOutsideKernel, kNoPc, [&](Finding& f) {
      f.message =
          "execution leaves the function's code without a call: it runs past its end or branches "
          "out of it";
    });
  state.first = first;
  state.last = last;
}

void Control::step(const Step& step) {
  WaveState& state = waves_[step.wave.wave_idx];
  const Row& row = *step.inst.row;
  check_place(step, state);
  state.jumped = row.effects & kBranch && leaves_function(row);
  if (row.effects & kBarrier) {
    ++state.barriers;
    state.last_barrier = &step.inst;
  }
  if (row.effects & kEndsProgram) state.end = &step.inst;
  if (row.is(Trait::kTraps) && is_debug_trap(step.inst))
    step.report.add(step.wave, step.inst, FindingKind::kTrap, kNoPc, [&](Finding& f) {
      f.message = "the kernel calls the debugger: what it was given is not what it takes";
    });
  if (is_readfirstlane(row) && step.wave.exec() == 0)
    step.report.add(step.wave, step.inst, FindingKind::kNoActiveLane, kNoPc, [&](Finding& f) {
      f.where = "exec";
      f.message = "v_readfirstlane_b32 with EXEC = 0 reads lane 0, which is not active";
    });
}

void Control::finish(const Workgroup& workgroup, Report& report) {
  const WaveState* most = &waves_[0];
  u32 fewest = 0, longest = 0;
  for (u32 i = 0; i < waves_.size(); ++i) {
    if (waves_[i].barriers > most->barriers) most = &waves_[i], longest = i;
    if (waves_[i].barriers < waves_[fewest].barriers) fewest = i;
  }
  if (waves_[fewest].barriers == most->barriers) return;
  report.add(*workgroup.waves[longest], *most->last_barrier, FindingKind::kBarrierMismatch,
             waves_[fewest].end ? report.pc(*waves_[fewest].end) : kNoPc, [&](Finding& f) {
               f.message = "wave " + std::to_string(longest) + " reaches " +
                           std::to_string(most->barriers) + " barriers, wave " +
                           std::to_string(fewest) + " " + std::to_string(waves_[fewest].barriers) +
                           " before it ends";
             });
}

}  // namespace vdev
