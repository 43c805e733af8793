// The instruction sets of the architectures, a bit each. Rows of the instruction table name those
// that have them: a row that two sets share has both bits; where a mnemonic differs by opcode, by
// its kind of 8-bit floats or otherwise, each set has a row of its own.
#pragma once

#include "core/types.h"

namespace vdev {

using InstructionSets = u32;
inline constexpr InstructionSets kCdna3 = 1u << 0, kCdna4 = 1u << 1;
inline constexpr InstructionSets kCdna = kCdna3 | kCdna4;
inline constexpr InstructionSets kMadeUpSet = 1u << 31;  // of tests

}  // namespace vdev
