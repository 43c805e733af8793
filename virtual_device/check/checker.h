// Checked mode of one launch: watches every instruction and hands it to the parts that each look
// for one class of defect.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "check/bounds.h"
#include "check/clauses.h"
#include "check/coherence.h"
#include "check/control.h"
#include "check/hazards.h"
#include "check/late_stores.h"
#include "check/lds_races.h"
#include "check/session.h"
#include "check/taint.h"
#include "check/waits.h"
#include "core/launch_state.h"

namespace vdev {

class Checker : public Observer {
 public:
  Checker(LaunchState& launch, CheckSession& session);

  void workgroup_started(Workgroup& workgroup) override;
  bool before(Wave& wave, const Inst& inst) override;
  void after(Wave& wave, const Inst& inst) override;
  void barrier_released(Workgroup& workgroup) override;
  void faulted(Wave& wave, const Inst& inst, const Fault& fault) override;
  void workgroup_finished(Workgroup& workgroup) override;
  void launch_finished(LaunchState& launch) override;

 private:
  struct WaveShadow {
    Waits waits;
    Hazards hazards;
    Clauses clauses;
    Taint taint;
    Footprint footprint;
    bool touches_memory = false;
  };
  struct WorkgroupShadow {
    std::vector<std::unique_ptr<WaveShadow>> waves;
    LdsRaces lds;
    LdsTaint lds_taint;
    LateStores late_stores;
    Control control;
  };
  static WorkgroupShadow& shadow(const Workgroup& workgroup) {
    return *static_cast<WorkgroupShadow*>(workgroup.shadow);
  }
  static WaveShadow& shadow(const Wave& wave) { return *static_cast<WaveShadow*>(wave.shadow); }
  const RegisterUse& use(const Inst& inst) const {
    return (*uses_)[static_cast<size_t>(&inst - launch_.code.insts.data())];
  }
  bool late_loads(const Workgroup& workgroup) const;
  void advise_on_waits();

  LaunchState& launch_;
  CheckSession& session_;
  const std::shared_ptr<const std::vector<RegisterUse>> uses_;
  Report report_;
  const Bounds bounds_;
  Coherence coherence_;

  std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<WorkgroupShadow>> idle_;
  WaitSites sites_;
};

}  // namespace vdev
