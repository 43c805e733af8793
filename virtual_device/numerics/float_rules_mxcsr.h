// Control of the host's float environment. Everything that uses host arithmetic and must not
// depend on the wave's MODE runs inside a MxcsrScope.
#pragma once

#include "numerics/float_rules.h"

namespace vdev {

inline constexpr u32 kMxcsrDaz = 0x0040, kMxcsrFtz = 0x8000, kMxcsrRoundMask = 0x6000;
inline constexpr u32 kMxcsrMasked = 0x1f80;  // no exception traps; round to nearest even

// MODE's rounding and denormal fields as an MXCSR value. MODE rounds 1 = up, 2 = down; MXCSR the
// other way round.
inline u32 mxcsr_for(Round round, u8 denorm) {
  constexpr u32 kRoundBits[4] = {0x0000, 0x4000, 0x2000, 0x6000};
  return kMxcsrMasked | kRoundBits[static_cast<u8>(round)] |
         (denorm & FpMode::kKeepIn ? 0 : kMxcsrDaz) | (denorm & FpMode::kKeepOut ? 0 : kMxcsrFtz);
}
inline u32 mxcsr_f32(const FpMode& m) { return mxcsr_for(m.round32, m.denorm32); }
inline u32 mxcsr_f64(const FpMode& m) { return mxcsr_for(m.round64, m.denorm64); }

// Gives the bits of MXCSR selected by `mask` the values in `bits` for a scope. Loads and stores do
// not move across its ends; arithmetic on values held in registers may, so callers work on memory.
// Writing MXCSR stalls the pipeline, reading does not: nothing is written when it already matches.
class MxcsrScope {
 public:
  MxcsrScope(u32 mask, u32 bits) : saved_(read()), changed_((saved_ & mask) != bits) {
    if (changed_) write((saved_ & ~mask) | bits);
  }
  ~MxcsrScope() {
    if (changed_) write(saved_);
  }
  MxcsrScope(const MxcsrScope&) = delete;
  MxcsrScope& operator=(const MxcsrScope&) = delete;

  static u32 read() {
    u32 value;
    asm volatile("stmxcsr %0" : "=m"(value) : : "memory");
    return value;
  }
  static void write(u32 value) { asm volatile("ldmxcsr %0" : : "m"(value) : "memory"); }

 private:
  u32 saved_;
  bool changed_;
};

inline constexpr u32 kMxcsrModeMask = kMxcsrRoundMask | kMxcsrDaz | kMxcsrFtz;
// Of the bits of that mask: to nearest even, all denormals flushed.
inline constexpr u32 kMxcsrNearestFlushing = kMxcsrDaz | kMxcsrFtz;

}  // namespace vdev
