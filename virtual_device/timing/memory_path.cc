#include "timing/memory_path.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace vdev::timing {

namespace {

// Of the readings: what lies together in a channel of HBM, and what is translated at once.
constexpr u64 kChannelBytes = 256, kTranslatedBytes = 64 << 10;

// What an XCD's share of the MALL holds, in as many sets on every product.
u32 mall_ways(const Machine& machine) {
  const Timing& timing = machine.arch->timing;
  return machine.product->mall_bytes / machine.product->num_xcds / timing.line_bytes /
         timing.mall_sets;
}

}  // namespace

Caches::Caches(const Machine& machine) : Caches(machine, machine.arch->timing) {}

Caches::Caches(const Machine& machine, const Timing& timing)
    : l2(timing.l2_bytes, timing.line_bytes, timing.l2_ways, timing.l2_polynomial),
      mall(u64{mall_ways(machine)} * timing.mall_sets * timing.line_bytes, timing.line_bytes,
           mall_ways(machine), timing.mall_polynomial),
      code((machine.cus_of_xcd() + timing.cus_of_scalar - 1) / timing.cus_of_scalar,
           Cache(timing.icache_bytes, timing.fetch_line, timing.icache_ways)) {}

void Caches::settle() {
  l2.settle();
  mall.settle();
  for (Cache& cache : code) cache.settle();
  for (auto& [number, when] : translated) when = 0;
}

MemoryPath::MemoryPath(const Machine& machine, double clock_ghz, const Readings& readings,
                       Caches& kept)
    : timing_(machine.arch->timing),
      clk_per_ns_(clock_ghz),
      readings_(readings),
      cus_(machine.cus_of_xcd(),
           {Cache(timing_.l1_bytes, timing_.line_bytes, timing_.l1_ways),
            Server(timing_.l1_bytes_per_clk), Server(timing_.l2_to_cu_bytes_per_clk),
            Server(timing_.l2_to_cu_bytes_per_clk)}),
      scalar_(kept.code.size(),
              Cache(timing_.scalar_bytes, timing_.scalar_line, timing_.scalar_ways)),
      kept_(kept),
      l2_(timing_.l2_bytes_per_clk),
      l2_write_(timing_.l2_write_bytes_per_clk),
      mall_(machine.product->mall_rate / machine.product->num_xcds / clock_ghz),
      hbm_(std::max(1u, readings.hbm_channels),
           Server(machine.product->hbm_rate / machine.product->num_xcds / clock_ghz /
                  std::max(1u, readings.hbm_channels))) {
  kept.settle();
}

void MemoryPath::preload(u64 pc, u64 end) {
  end = std::min(end, pc + timing_.icache_bytes);
  for (Cache& code : kept_.code)
    for (u64 at = pc; at < end; at += timing_.fetch_line) code.access(at / timing_.fetch_line);
}

double MemoryPath::l1_busy() const {
  double busy = 0;
  for (const PerCu& cu : cus_) busy += cu.l1_out.busy();
  return busy;
}

double MemoryPath::hbm_busy() const {
  double busy = 0;
  for (const Server& channel : hbm_) busy += channel.busy();
  return busy / static_cast<double>(hbm_.size());
}

double MemoryPath::in_hbm(u64 line, double bytes, double now) {
  return hbm_[line * timing_.line_bytes / kChannelBytes % hbm_.size()].serve(now, bytes);
}

double MemoryPath::translation(u64 line, double now) {
  if (!readings_.translation_ns) return 0;
  const double known = now + readings_.translation_ns * clk_per_ns_;
  const auto [found, is_first] =
      kept_.translated.try_emplace(line * timing_.line_bytes / kTranslatedBytes, known);
  return std::max(found->second - now, 0.0);
}

double MemoryPath::in_l2(u64 line, double now) {
  const double bytes = timing_.line_bytes;
  const double wait = translation(line, now);
  const double read = l2_.serve(now, bytes) + wait;
  traffic_.l2 += timing_.line_bytes;
  const Cache::Found l2 = kept_.l2.access(line);
  if (l2.hit) return std::max(read, l2.there);
  if (l2.victim_dirty) below_l2(l2.victim, l2.victim_dirty, now);
  traffic_.mall += timing_.line_bytes;
  const double sent = mall_.serve(now, bytes);
  const Cache::Found mall = kept_.mall.access(line);
  if (!mall.hit) {
    traffic_.hbm += timing_.line_bytes;
    const double beyond = timing_.hbm_latency_ns - timing_.mall_latency_ns;
    mall.there = in_hbm(line, bytes, now) + wait + beyond * clk_per_ns_;
  }
  const double beyond = timing_.mall_latency_ns - timing_.l2_latency_ns;
  return l2.there = std::max({read, sent, mall.there}) + beyond * clk_per_ns_;
}

double MemoryPath::below_l2(u64 line, u8 sectors, double now) {
  const u32 bytes = static_cast<u32>(std::popcount(sectors)) * timing_.sector_bytes;
  traffic_.mall_writes += bytes;
  double taken = mall_.serve(now, bytes);
  const Cache::Found mall = kept_.mall.access(line);
  const u8 fresh = sectors & ~mall.dirty;
  if (fresh) {
    const u32 leave = static_cast<u32>(std::popcount(fresh)) * timing_.sector_bytes;
    traffic_.hbm_writes += leave;
    taken = std::max(taken, in_hbm(line, leave, now));
  }
  mall.dirty |= sectors;
  if (!mall.hit) mall.there = taken;
  return taken;
}

double MemoryPath::store(PerCu& from, const Line& line, double bytes, bool through, double now) {
  traffic_.l2_writes += static_cast<u64>(bytes);
  const double written = l2_write_.serve(from.to_l2.serve(now, bytes), bytes);
  const Cache::Found l2 = kept_.l2.access(line.number);
  double room = written + translation(line.number, now);
  if (l2.victim_dirty)  // a line that has to go for this one goes first
    room = std::max(room, below_l2(l2.victim, l2.victim_dirty, written));
  if (!through) {
    l2.dirty |= line.sectors;
    return room + timing_.l2_latency;
  }
  const double beyond = (timing_.mall_latency_ns - timing_.l2_latency_ns) * clk_per_ns_;
  const double taken = std::max(room, below_l2(line.number, line.sectors, written));
  return taken + beyond + timing_.l2_latency;
}

double MemoryPath::atomic(PerCu& from, const Line& line, double bytes, double now) {
  traffic_.l2_writes += static_cast<u64>(bytes);
  const double asked = l2_write_.serve(from.to_l2.serve(now, bytes), bytes);
  const double there = in_l2(line.number, asked);
  kept_.l2.access(line.number).dirty |= line.sectors;
  return there + timing_.l2_latency;
}

u64 MemoryPath::write_back(u64 now) {
  const u64 clean = release(now);
  const double beyond = clean > now ? timing_.mall_latency_ns - timing_.l2_latency_ns : 0;
  const double more = (beyond + readings_.write_back_ns) * clk_per_ns_ + timing_.l2_latency;
  return clean + static_cast<u64>(std::ceil(more));
}

u64 MemoryPath::release(u64 now) {
  double done = static_cast<double>(now);
  kept_.l2.clean([&](u64 line, u8 sectors) {
    done = std::max(done, below_l2(line, sectors, static_cast<double>(now)));
  });
  return static_cast<u64>(std::ceil(done));
}

void MemoryPath::find_lines(const FootprintPart& part) {
  lines_.clear();
  const u64 per_line = timing_.line_bytes / timing_.sector_bytes;
  for_lanes(part.mask, [&](int lane) {
    // Scratch is interleaved by dword: the lanes of a dword lie together.
    const u64 address = part.space == Space::kScratch
                            ? part.address.lane[lane] / 4 * 4 * kLanes + 4u * static_cast<u32>(lane)
                            : part.address.lane[lane];
    const u64 last = (address + part.bytes - 1) / timing_.sector_bytes;
    for (u64 sector = address / timing_.sector_bytes; sector <= last; ++sector) {
      const u8 bit = static_cast<u8>(1u << sector % per_line);
      if (!lines_.empty() && lines_.back().number == sector / per_line)
        lines_.back().sectors |= bit;
      else
        lines_.push_back({sector / per_line, bit});
    }
  });
  std::sort(lines_.begin(), lines_.end(),
            [](const Line& a, const Line& b) { return a.number < b.number; });
  size_t kept = 0;
  for (size_t i = 1; i < lines_.size(); ++i) {
    if (lines_[i].number == lines_[kept].number)
      lines_[kept].sectors |= lines_[i].sectors;
    else
      lines_[++kept] = lines_[i];
  }
  lines_.resize(kept + 1);  // a mask has a lane
}

u64 MemoryPath::vector(u32 cu, const Inst& inst, const Footprint& memory, u64 now) {
  PerCu& own = cus_[cu];
  const double start = static_cast<double>(now);
  double done = start;
  for (int i = 0; i < memory.num_parts; ++i) {
    const FootprintPart& part = memory.parts[i];
    if (part.space == Space::kLds || !part.mask) continue;
    find_lines(part);
    // What the L1 hands over is what the lanes ask for, at least a quarter of each line.
    const double bytes = std::popcount(part.mask) * double{1} * part.bytes;
    const double per_line = std::clamp(bytes / static_cast<double>(lines_.size()),
                                       timing_.line_bytes / 4.0, double(timing_.line_bytes));
    for (const Line& line : lines_) {
      if (part.access == Access::kWrite) {
        done = std::max(done, store(own, line, per_line, inst.sc1, start));
        continue;
      }
      if (part.access != Access::kRead) {
        done = std::max(done, atomic(own, line, per_line, start));
        continue;
      }
      traffic_.l1 += static_cast<u64>(per_line);
      const double out = own.l1_out.serve(start, per_line);
      const Cache::Found l1 = own.l1.access(line.number);
      if (!l1.hit || inst.sc1) {  // the L1 is not coherent beyond its CU
        const double at_cu = in_l2(line.number, out) + (timing_.l2_latency - timing_.l1_latency);
        l1.there = own.from_l2.serve(at_cu, timing_.line_bytes);
      }
      done = std::max(done, std::max(out, l1.there) + timing_.l1_latency);
    }
  }
  return static_cast<u64>(std::ceil(done));
}

void MemoryPath::written_elsewhere(const Inst& inst, const Footprint& memory) {
  if (!inst.sc1) return;
  for (int i = 0; i < memory.num_parts; ++i) {
    const FootprintPart& part = memory.parts[i];
    if (part.space != Space::kGlobal || !part.mask) continue;
    find_lines(part);
    for (const Line& line : lines_) kept_.mall.access(line.number).there = 0;
  }
}

u64 MemoryPath::scalar(u32 cu, const Footprint& memory, u64 now) {
  double done = static_cast<double>(now) + timing_.scalar_latency;
  for (int i = 0; i < memory.num_parts; ++i) {
    const FootprintPart& part = memory.parts[i];
    if (!part.mask) continue;
    const u64 last = (part.address.lane[0] + part.bytes - 1) / timing_.scalar_line;
    for (u64 line = part.address.lane[0] / timing_.scalar_line; line <= last; ++line) {
      traffic_.scalar += timing_.scalar_line;
      const Cache::Found found = scalar_[cu / timing_.cus_of_scalar].access(line);
      if (!found.hit) {
        traffic_.scalar_misses += timing_.scalar_line;
        const u64 wide = line * timing_.scalar_line / timing_.line_bytes;
        found.there = in_l2(wide, static_cast<double>(now)) + timing_.scalar_miss;
      }
      done = std::max(done, found.there + timing_.scalar_latency);
    }
  }
  return static_cast<u64>(std::ceil(done));
}

u64 MemoryPath::fetch(u32 cu, u64 pc, u64 now) {
  Cache& code = kept_.code[cu / timing_.cus_of_scalar];
  const auto fetched = [&](u64 line) {
    const Cache::Found found = code.access(line);
    if (!found.hit)
      found.there =
          in_l2(line * timing_.fetch_line / timing_.line_bytes, static_cast<double>(now)) +
          timing_.icache_miss;
    return std::pair{found.hit, found.there};
  };
  const u64 line = pc / timing_.fetch_line;
  const auto [hit, there] = fetched(line);
  if (!hit) fetched(line + 1);  // the next one is fetched along
  return std::max(now, static_cast<u64>(std::ceil(there)));
}

}  // namespace vdev::timing
