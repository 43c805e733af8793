// An adversarial order of waves: from one of its signals on, a wave of a workgroup stands still for
// as long as anybody else can run, in its workgroup or in another one. What others do meanwhile
// must not rely on it: on a store or atomic that it has not waited for, nor, without a barrier in
// between, on anything that it has still to do.
#pragma once

#include "core/wave.h"

namespace vdev {

class Starvation {
 public:
  Starvation() = default;  // of nobody
  // `random` says which of the waves, and when: more often early than late.
  Starvation(u64 random, u32 num_waves)
      : wave_(draw(random >> 2, num_waves)),
        with_return_(random >> 1 & 1),
        signals_(draw(random >> 10, 1 + draw(random >> 18, kMaxSignals))),
        rank_(static_cast<u32>(random >> 26)) {}

  bool starves(const Wave& wave) const { return wave.wave_idx == wave_; }
  bool stands_still(const Wave& wave) const { return starves(wave) && signals_ == 0; }
  // The wave has executed an instruction.
  void executed(const Inst& inst) { signals_ -= signals_ > 0 && is_signal(inst); }

  // Of several waves that stand still the least is free first.
  u32 rank() const { return rank_; }
  bool begun() const { return wave_ != kNobody && signals_ == 0; }
  void end() { wave_ = kNobody; }
  // A slice of the workgroup has ended. Others may go on for ever, as if they made progress.
  void slice_ended() {
    if (++slices_ == kMaxSlices) end();
  }

 private:
  static u32 draw(u64 random, u32 count) { return static_cast<u32>(random % 256 * count / 256); }
  static constexpr u32 kNobody = ~u32{0}, kMaxSignals = 8, kMaxSlices = 1024;

  // s_barrier and atomics with return: few, and what others wait for. Or also stores with sc1 and
  // atomics without return.
  bool is_signal(const Inst& inst) const {
    if (!inst.row) return false;
    const u32 effects = inst.row->effects;
    if (inst.row->format == Format::kDs || inst.row->format == Format::kSmem) return false;
    if (effects & kAtomic) return inst.sc0 || !with_return_;
    return effects & kBarrier || (effects & kStore && inst.sc1 && !with_return_);
  }

  u32 wave_ = kNobody;
  bool with_return_ = true;
  u32 signals_ = 0;  // to come before it stands still
  u32 rank_ = 0, slices_ = 0;
};

}  // namespace vdev
