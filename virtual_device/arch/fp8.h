// Flavours of 8-bit floats.
#pragma once

#include "arch/instruction_sets.h"

namespace vdev {

enum class Fp8Kind : u8 {
  kFnuz,  // one zero, one NaN, no infinity
  kOcp,   // of the Open Compute Project
};

// What the rows of an instruction set convert and multiply.
constexpr Fp8Kind fp8_kind(InstructionSets sets) {
  return sets & kCdna4 ? Fp8Kind::kOcp : Fp8Kind::kFnuz;
}

}  // namespace vdev
