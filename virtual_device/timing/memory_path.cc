#include "timing/memory_path.h"

#include <algorithm>
#include <cmath>

namespace vdev::timing {

Caches::Caches(const Arch& arch)
    : l2(arch.l2_bytes, arch.line_bytes, arch.l2_ways),
      mall(arch.mall_bytes / arch.num_xcds, arch.line_bytes, arch.mall_ways),
      code((arch.num_cus / arch.num_xcds + 1) / 2,
           Cache(arch.icache_bytes, arch.fetch_line, arch.icache_ways)) {}

void Caches::settle() {
  l2.settle();
  mall.settle();
  for (Cache& cache : code) cache.settle();
}

MemoryPath::MemoryPath(const Arch& arch, double clock_ghz, Caches& kept)
    : arch_(arch),
      clk_per_ns_(clock_ghz),
      cus_(arch.num_cus / arch.num_xcds,
           {Cache(arch.l1_bytes, arch.line_bytes, arch.l1_ways), Server(arch.l1_bytes_per_clk),
            Server(arch.l2_to_cu_bytes_per_clk), Server(arch.l2_to_cu_bytes_per_clk)}),
      scalar_(kept.code.size(), Cache(arch.scalar_bytes, arch.scalar_line, arch.scalar_ways)),
      kept_(kept),
      l2_(arch.l2_bytes_per_clk),
      l2_write_(arch.l2_write_bytes_per_clk),
      mall_(arch.mall_rate / arch.num_xcds / clock_ghz),
      hbm_(arch.hbm_rate / arch.num_xcds / clock_ghz) {
  kept.settle();
}

void MemoryPath::preload(u64 pc, u64 end) {
  end = std::min(end, pc + arch_.icache_bytes);
  for (Cache& code : kept_.code)
    for (u64 at = pc; at < end; at += arch_.fetch_line) code.access(at / arch_.fetch_line);
}

double MemoryPath::l1_busy() const {
  double busy = 0;
  for (const PerCu& cu : cus_) busy += cu.l1_out.busy();
  return busy;
}

double MemoryPath::in_l2(u64 line, double now) {
  const double bytes = arch_.line_bytes;
  const double read = l2_.serve(now, bytes);
  traffic_.l2 += arch_.line_bytes;
  const auto [l2_hit, l2_there] = kept_.l2.access(line);
  if (l2_hit) return std::max(read, l2_there);
  traffic_.mall += arch_.line_bytes;
  const double sent = mall_.serve(now, bytes);
  const auto [mall_hit, mall_there] = kept_.mall.access(line);
  if (!mall_hit) {
    traffic_.hbm += arch_.line_bytes;
    const double beyond = arch_.hbm_latency_ns - arch_.mall_latency_ns;
    mall_there = hbm_.serve(now, bytes) + beyond * clk_per_ns_;
  }
  const double beyond = arch_.mall_latency_ns - arch_.l2_latency_ns;
  return l2_there = std::max({read, sent, mall_there}) + beyond * clk_per_ns_;
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
        const double sent = own.to_l2.serve(static_cast<double>(now), per_line);
        traffic_.l2_writes += static_cast<u64>(per_line);
        kept_.l2.access(line);
        done = std::max(done, l2_write_.serve(sent, per_line) + arch_.l2_latency);
        continue;
      }
      traffic_.l1 += static_cast<u64>(per_line);
      const double out = own.l1_out.serve(static_cast<double>(now), per_line);
      const auto [hit, there] = own.l1.access(line);
      if (!hit) {
        const double at_cu = in_l2(line, out) + (arch_.l2_latency - arch_.l1_latency);
        there = own.from_l2.serve(at_cu, arch_.line_bytes);
      }
      done = std::max(done, std::max(out, there) + arch_.l1_latency);
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
      const auto [hit, there] = scalar_[cu / 2].access(line);
      if (!hit) {
        traffic_.scalar_misses += arch_.scalar_line;
        const u64 wide = line * arch_.scalar_line / arch_.line_bytes;
        there = in_l2(wide, static_cast<double>(now)) + arch_.scalar_miss;
      }
      done = std::max(done, there + arch_.scalar_latency);
    }
  }
  return static_cast<u64>(std::ceil(done));
}

u64 MemoryPath::fetch(u32 cu, u64 pc, u64 now) {
  Cache& code = kept_.code[cu / 2];
  const auto fetched = [&](u64 line) {
    const auto [hit, there] = code.access(line);
    if (!hit)
      there = in_l2(line * arch_.fetch_line / arch_.line_bytes, static_cast<double>(now)) +
              arch_.icache_miss;
    return std::pair{hit, there};
  };
  const u64 line = pc / arch_.fetch_line;
  const auto [hit, there] = fetched(line);
  if (!hit) fetched(line + 1);  // the next one is fetched along
  return std::max(now, static_cast<u64>(std::ceil(there)));
}

}  // namespace vdev::timing
