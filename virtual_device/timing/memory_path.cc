#include "timing/memory_path.h"

#include <algorithm>
#include <cmath>

namespace vdev::timing {

MemoryPath::MemoryPath(const Arch& arch, double clock_ghz, u32 cus)
    : arch_(arch),
      clk_per_ns_(clock_ghz),
      l2_tags_(arch.l2_bytes, arch.line_bytes, arch.l2_ways),
      mall_tags_(arch.mall_bytes / arch.num_xcds, arch.line_bytes, arch.mall_ways),
      l2_(arch.l2_bytes_per_clk),
      l2_write_(arch.l2_write_bytes_per_clk),
      mall_(arch.mall_rate / arch.num_xcds / clock_ghz),
      hbm_(arch.hbm_rate / arch.num_xcds / clock_ghz) {
  for (u32 i = 0; i < cus; ++i)
    cus_.push_back({Cache(arch.l1_bytes, arch.line_bytes, arch.l1_ways),
                    Server(arch.l1_bytes_per_clk), Server(arch.l2_to_cu_bytes_per_clk)});
  for (u32 i = 0; i < (cus + 1) / 2; ++i)
    pairs_.push_back({Cache(arch.scalar_bytes, arch.scalar_line, 4),
                      Cache(arch.icache_bytes, arch.fetch_line, 8)});
}

double MemoryPath::l1_busy() const {
  double busy = 0;
  for (const PerCu& cu : cus_) busy += cu.l1_out.busy();
  return busy;
}

double MemoryPath::beyond_l1(u64 line, double now) {
  const double bytes = arch_.line_bytes;
  double at = l2_.serve(now, bytes) + arch_.l2_latency - arch_.l1_latency;
  traffic_.l2 += arch_.line_bytes;
  if (l2_tags_.access(line)) return at;
  traffic_.mall += arch_.line_bytes;
  const double from_mall = mall_.serve(now, bytes) + arch_.mall_latency_ns * clk_per_ns_;
  if (mall_tags_.access(line)) return std::max(at, from_mall);
  traffic_.hbm += arch_.line_bytes;
  const double from_hbm = hbm_.serve(now, bytes) + arch_.hbm_latency_ns * clk_per_ns_;
  return std::max({at, from_mall, from_hbm});
}

u64 MemoryPath::vector(u32 cu, const Footprint& memory, u64 now) {
  PerCu& own = cus_[cu];
  double done = static_cast<double>(now);
  for (int i = 0; i < memory.num_parts; ++i) {
    const FootprintPart& part = memory.parts[i];
    if (part.space == Space::kLds || !part.mask) continue;
    lines_.clear();
    for_lanes(part.mask, [&](int lane) {
      // Scratch is interleaved by dword: the lanes of a dword lie together.
      const u64 address = part.space == Space::kScratch ? part.address.lane[lane] / 4 * 4 * kLanes +
                                                              4u * static_cast<u32>(lane)
                                                        : part.address.lane[lane];
      const u64 last = (address + part.bytes - 1) / arch_.line_bytes;
      for (u64 line = address / arch_.line_bytes; line <= last; ++line)
        if (lines_.empty() || lines_.back() != line) lines_.push_back(line);
    });
    std::sort(lines_.begin(), lines_.end());
    lines_.erase(std::unique(lines_.begin(), lines_.end()), lines_.end());
    const bool write = part.access != Access::kRead;
    // What the L1 hands over is what the lanes ask for, at least a quarter of each line.
    const double bytes = std::popcount(part.mask) * double{1} * part.bytes;
    const double per_line = std::clamp(bytes / static_cast<double>(lines_.size()),
                                       arch_.line_bytes / 4.0, double(arch_.line_bytes));
    for (const u64 line : lines_) {
      if (write) {
        const double sent = own.from_l2.serve(static_cast<double>(now), per_line);
        traffic_.l2_writes += static_cast<u64>(per_line);
        l2_tags_.access(line);
        done = std::max(done, l2_write_.serve(sent, per_line) + arch_.l2_latency);
        continue;
      }
      traffic_.l1 += static_cast<u64>(per_line);
      const double out = own.l1_out.serve(static_cast<double>(now), per_line);
      double at = out + arch_.l1_latency;
      if (!own.l1.access(line))
        at = std::max(at,
                      own.from_l2.serve(beyond_l1(line, out), arch_.line_bytes) + arch_.l1_latency);
      done = std::max(done, at);
    }
  }
  return static_cast<u64>(std::ceil(done));
}

u64 MemoryPath::scalar(u32 cu, const Footprint& memory, u64 now) {
  double done = static_cast<double>(now) + arch_.scalar_latency;
  for (int i = 0; i < memory.num_parts; ++i) {
    const FootprintPart& part = memory.parts[i];
    if (!part.mask) continue;
    const u64 last = (part.address.lane[0] + part.bytes - 1) / arch_.scalar_line;
    for (u64 line = part.address.lane[0] / arch_.scalar_line; line <= last; ++line) {
      traffic_.scalar += arch_.scalar_line;
      if (pairs_[cu / 2].scalar.access(line)) continue;
      traffic_.scalar_misses += arch_.scalar_line;
      const u64 wide = line * arch_.scalar_line / arch_.line_bytes;
      done = std::max(done, beyond_l1(wide, static_cast<double>(now)) + arch_.scalar_miss);
    }
  }
  return static_cast<u64>(std::ceil(done));
}

u64 MemoryPath::fetch(u32 cu, u64 pc, u64 now) {
  Cache& code = pairs_[cu / 2].code;
  const u64 line = pc / arch_.fetch_line;
  if (code.access(line)) return 0;
  // The next lines are fetched along.
  code.access(line + 1);
  const u64 wide = pc / arch_.line_bytes;
  return static_cast<u64>(beyond_l1(wide, static_cast<double>(now))) - now;
}

}  // namespace vdev::timing
