// How long a port of the LDS is busy with one instruction: bank conflicts from real addresses.
#pragma once

#include "arch/arch.h"
#include "isa/footprint.h"

namespace vdev::timing {

struct LdsService {
  u32 data = 0;      // clk that data move
  u32 address = 0;   // clk before that: addresses of writes share the way in
  u32 conflict = 0;  // of `data`: beyond what addresses without conflicts would take
};
// `inst` is a DS instruction (exchanges between lanes included: they have no footprint). A port
// hands over `read_bytes` per clk. The banks serve a phase of one of the ports in a clk, so that
// each port has one in as many clk as there are ports; a phase whose addresses collide takes more
// of them.
LdsService lds_service(const Timing& timing, u32 read_bytes, const Inst& inst,
                       const Footprint* memory);

}  // namespace vdev::timing
