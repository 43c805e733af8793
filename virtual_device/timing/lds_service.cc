#include "timing/lds_service.h"

#include <algorithm>
#include <array>

namespace vdev::timing {
namespace {

constexpr u32 kBanks = 32;
constexpr int kMaxPhases = 8;

// Lanes that are served together. Sources: AMD's article on LDS bank conflicts (b128), probes
// published with HipKittens (b96), RPC (two half-waves of 32 dwords for b32 and b64).
struct Phases {
  int count;
  std::array<u64, kMaxPhases> lanes;
};
constexpr Phases halves() { return {2, {0x00000000ffffffff, 0xffffffff00000000}}; }
constexpr Phases octets() {
  Phases p{8, {}};
  for (int i = 0; i < 8; ++i) p.lanes[static_cast<size_t>(i)] = u64{0xff} << 8 * i;
  return p;
}
constexpr Phases read_quads() {
  constexpr u64 kFour = 0xf;
  Phases p{8, {}};
  constexpr int kFirst[4][2] = {{0, 20}, {4, 16}, {8, 28}, {12, 24}};
  for (size_t i = 0; i < 8; ++i) {
    const int half = i < 4 ? 0 : 32;
    p.lanes[i] = kFour << (kFirst[i % 4][0] + half) | kFour << (kFirst[i % 4][1] + half);
  }
  return p;
}
const Phases& phases(u32 bytes, bool write) {
  static constexpr Phases kHalves = halves(), kOctets = octets(), kReadQuads = read_quads();
  if (bytes <= 8) return kHalves;
  return write ? kOctets : kReadQuads;
}

// Largest number of different dwords that one bank has to serve.
u32 rounds(const FootprintPart& part, u64 lanes) {
  u32 dwords[256];
  u32 count = 0;
  for_lanes(lanes & part.mask, [&](int lane) {
    const u64 first = part.address.lane[lane] / 4;
    const u64 last = (part.address.lane[lane] + part.bytes - 1) / 4;
    for (u64 d = first; d <= last && count < 256; ++d) dwords[count++] = static_cast<u32>(d);
  });
  std::sort(dwords, dwords + count);
  u32 load[kBanks] = {}, most = 0, previous = ~0u;
  for (u32 i = 0; i < count; ++i) {
    if (dwords[i] == previous) continue;
    previous = dwords[i];
    most = std::max(most, ++load[dwords[i] % kBanks]);
  }
  return most;
}

}  // namespace

LdsService lds_service(const Arch& arch, const Inst& inst, const Footprint* memory) {
  LdsService total;
  const u32 address_clk = kLanes * 4 / arch.lds_port_bytes;
  if (!memory) {  // ds_permute and the like: address and data in, data out
    total.data = inst.src[1].is_vector() ? 2 * address_clk : address_clk;
    return total;
  }
  bool writes = false;
  for (int i = 0; i < memory->num_parts; ++i) {
    const FootprintPart& part = memory->parts[i];
    if (part.space != Space::kLds) continue;
    writes |= part.access != Access::kRead;
    const Phases& p = phases(part.bytes, part.access == Access::kWrite);
    // A phase of full width moves 128 bytes: two clk of the port.
    const u32 round_clk = 128 / arch.lds_port_bytes;
    const u32 lanes_of_phase = kLanes / static_cast<u32>(p.count);
    const u32 least = std::max(1u, lanes_of_phase * std::max<u32>(part.bytes, 4) / 128);
    for (int k = 0; k < p.count; ++k) {
      const u32 needed = std::max(rounds(part, p.lanes[static_cast<size_t>(k)]), least);
      total.data += needed * round_clk;
      total.conflict += (needed - least) * round_clk;
    }
  }
  if (writes) total.address = address_clk;
  return total;
}

}  // namespace vdev::timing
