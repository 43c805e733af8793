// Flavours of 8-bit floats.
#pragma once

#include "core/types.h"

namespace vdev {

enum class Fp8Kind : u8 {
  kFnuz,  // one zero, one NaN, no infinity
  kOcp,   // of the Open Compute Project
};

// What conversions and matrix instructions are compiled for: their rows do not name architectures.
inline constexpr Fp8Kind kFp8OfRows = Fp8Kind::kFnuz;

}  // namespace vdev
