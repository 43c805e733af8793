#include "timing/lds_service.h"

#include <algorithm>

namespace vdev::timing {
namespace {

const LdsPhases& phases(const Timing& timing, u32 bytes, bool write) {
  return *std::find_if(
      timing.lds_phases.begin(), timing.lds_phases.end(),
      [&](const LdsPhases& row) { return row.write == write && bytes <= row.bytes; });
}

// Largest number of different dwords that one bank has to serve.
u32 rounds(const FootprintPart& part, u64 lanes, u32 banks) {
  u32 dwords[256];
  u32 count = 0;
  for_lanes(lanes & part.mask, [&](int lane) {
    const u64 first = part.address.lane[lane] / 4;
    const u64 last = (part.address.lane[lane] + part.bytes - 1) / 4;
    for (u64 d = first; d <= last && count < 256; ++d) dwords[count++] = static_cast<u32>(d);
  });
  std::sort(dwords, dwords + count);
  u32 load[kMostBanks] = {}, most = 0, previous = ~0u;
  for (u32 i = 0; i < count; ++i) {
    if (dwords[i] == previous) continue;
    previous = dwords[i];
    most = std::max(most, ++load[dwords[i] % banks]);
  }
  return most;
}

}  // namespace

LdsService lds_service(const Timing& timing, u32 read_bytes, const Inst& inst,
                       const Footprint* memory) {
  LdsService total;
  const u32 address_clk = kLanes * 4 / timing.lds_port_write_bytes;
  if (!memory) {  // ds_permute and the like: address and data in, data out
    total.data = inst.src[1].is_vector() ? 2 * address_clk : address_clk;
    return total;
  }
  bool writes = false;
  for (int i = 0; i < memory->num_parts; ++i) {
    const FootprintPart& part = memory->parts[i];
    if (part.space != Space::kLds) continue;
    writes |= part.access != Access::kRead;
    const bool write = part.access == Access::kWrite;
    const LdsPhases& p = phases(timing, part.bytes, write);
    const u32 bytes = std::max<u32>(part.bytes, 4);
    const u32 least = std::max(1u, kLanes / p.count * bytes / (4 * p.banks));
    u32 more = 0;  // rounds of the banks, because of conflicts
    for (u32 k = 0; k < p.count; ++k)
      more += std::max(rounds(part, p.lanes[k], p.banks), least) - least;
    const u32 moves = kLanes * bytes / (write ? timing.lds_port_write_bytes : read_bytes);
    total.conflict += more * timing.lds_ports;
    total.data += std::max(moves, least * p.count * timing.lds_ports) + more * timing.lds_ports;
  }
  if (writes) total.address = address_clk;
  return total;
}

}  // namespace vdev::timing
