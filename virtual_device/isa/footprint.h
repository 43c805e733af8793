// The memory that an instruction is about to touch, lane by lane: one description for checks and
// for the performance model, from the same address arithmetic that the semantics use.
#pragma once

#include "isa/access.h"

namespace vdev {

enum class Space : u8 { kGlobal, kLds, kScratch };

// One datum per active lane: what is touched, the addresses apart.
struct FootprintDatum {
  Space space = Space::kGlobal;
  Access access = Access::kRead;
  bool scalar = false;  // SMEM: lane 0 stands for the wave, `data` is an SGPR
  u8 bytes = 0;         // of a lane's datum
  u64 mask = 0;         // lanes that touch memory
  // First register of the datum (index into Wave::v or SGPR): what a read fills, what a write
  // stores, what an atomic returns to (kNoRegister: nothing).
  u16 data = kNoRegister;
  // The datum's bytes lie in the registers in order, from bit `data_shift` of the first: false for
  // typed buffer data, which are converted, and for what is transposed between lanes.
  bool plain_data = true;
  u8 data_shift = 0;
  u16 operand = kNoRegister;  // atomics: first register of the operands
  static constexpr u16 kNoRegister = 0xffff;
};
struct FootprintPart : FootprintDatum {
  Addresses address;  // device address, LDS byte, or byte of the lane's private segment
};

struct Footprint {
  static constexpr int kMaxParts = 6;
  int num_parts = 0;
  FootprintPart parts[kMaxParts];
  u64 swallowed = 0;  // active lanes that a buffer's range check drops, in part or whole
  u64 ambiguous = 0;  // those of which it depends on how the check counts SOFFSET

  FootprintPart& add() {
    FootprintPart& part = parts[num_parts++];
    static_cast<FootprintDatum&>(part) = {};
    return part;
  }
};

// False when the instruction touches no memory. `wave` is about to execute `inst`. May throw Fault,
// as the execution itself would.
bool footprint(const Wave& wave, const Inst& inst, Footprint& out);

}  // namespace vdev
