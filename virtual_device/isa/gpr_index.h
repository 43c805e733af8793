// Vector registers indexed by M0, as MODE.GPR_IDX_EN asks for.
#pragma once

#include <string>

#include "core/wave.h"
#include "isa/inst.h"

namespace vdev {

// Adds M0[7:0] to the vector register numbers that M0[15:12] selects (src0, src1, src2, dst).
// Returns why it cannot be done, "" if it was. The hardware gives v0 for a source beyond the wave's
// registers and drops such a result; here, as with registers that an instruction names itself, it
// is an error.
std::string index_registers(const Wave& wave, Inst& inst);

}  // namespace vdev
