// Required wait states (manually inserted NOPs): one per wave.
#pragma once

#include <array>

#include "check/hazards_rules.h"
#include "check/step.h"

namespace vdev {

// A rule is a bit.
using HazardRuleSet = unsigned __int128;

class Hazards {
 public:
  // Before each instruction, in the order of execution.
  void step(const Step& step);
  // Forgets what ran: the wave starts anew.
  void reset() { *this = {}; }

  // By role: the rules of some instruction sets that have it on the one side or the other.
  struct RuleIndex;

 private:
  struct Past {
    const Inst* inst = nullptr;
    HazardRuleSet rules = 0;  // of which it is a producer
    u32 slot = 0;
    u8 passes = 0;
    RegisterUse use;
  };

  void forget_overwritten(const RegisterUse& use, bool by_matrix);
  void check(const Step& step, const Past& past, HazardRuleSet rules, u8 passes) const;
  static bool holds(const HazardRule& rule, const Step& step, const Past& past, u8 passes,
                    RegisterRange& where);

  // As many as there may be within the longest wait, and the one that is being added.
  static constexpr u32 kDepth = 32;
  static_assert(kDepth > kMaxHazardWait);
  const RuleIndex* index_ = nullptr;  // of the code's processor, from the first step on
  std::array<Past, kDepth> past_;
  u32 head_ = 0;       // where the next one goes
  u32 slot_ = kDepth;  // wait states issued
};

}  // namespace vdev
