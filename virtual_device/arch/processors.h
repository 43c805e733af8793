// The tables of arch/gfx*.cc, as arch/arch.cc lists them.
#pragma once

#include "arch/arch.h"

namespace vdev {

extern const Processor kGfx94Generic, kGfx950;
extern const Arch kGfx942;

}  // namespace vdev
