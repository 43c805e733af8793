// The tables of arch/gfx*.cc, as arch/arch.cc lists them.
#pragma once

#include "arch/arch.h"

namespace vdev {

extern const Processor kGfx94Generic;
extern const Arch kGfx942, kGfx950;

}  // namespace vdev
