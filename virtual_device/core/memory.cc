#include "core/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>

#include "core/safe_read.h"

namespace vdev {
namespace {

constexpr u64 kPoisonBytes = 64 * 1024;
constexpr u64 kLeastRange = u64{64} << 20;
// From here on an allocation may be far larger than the machine and sparsely used (a KV cache): a
// huge page per touched row would commit 512 times as much.
constexpr u64 kNoHugePages = u64{1} << 30;
// Bounds the history behind was_freed(), which only serves reports.
constexpr std::size_t kFreedHistory = 1 << 16;

u64 round_to_page(u64 bytes) { return (bytes + kMemoryPage - 1) & ~(kMemoryPage - 1); }

void* pointer(u64 address) { return reinterpret_cast<void*>(address); }

// Reserves `copies` adjacent ranges of `bytes` each, halving `bytes` until the system grants it;
// returns 0 with `bytes` 0 when it grants none.
u64 reserve_space(u64& bytes, u64 copies) {
  for (; bytes >= kLeastRange; bytes = (bytes / 2) & ~(kMemoryPage - 1)) {
    void* p = mmap(nullptr, bytes * copies, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) continue;
    madvise(p, bytes * copies, MADV_DONTDUMP);
    // The last copy of two is the backing store. It stays accessible as a whole, one mapping for
    // the kernel to keep, because every access to it has been checked against the table.
    const u64 base = reinterpret_cast<u64>(p);
    if (copies == 1 || mprotect(pointer(base + bytes), bytes, PROT_READ | PROT_WRITE) == 0) {
      return base;
    }
    munmap(p, bytes * copies);
  }
  bytes = 0;
  return 0;
}

void poison(std::byte* host, u64 bytes) {
  const std::byte low{kPoison16 & 0xff}, high{kPoison16 >> 8};
  for (u64 i = 0; i < bytes; ++i) host[i] = i % 2 ? high : low;
}

}  // namespace

Memory::Memory(u64 capacity, u64 range_bytes) {
  device_.size = host_.size = range_bytes & ~(kMemoryPage - 1);
  device_.base = reserve_space(device_.size, 2);
  host_.base = reserve_space(host_.size, 1);
  bias_ = static_cast<i64>(device_.size);
  device_.cursor = device_.base + kGuardBytes;
  host_.cursor = host_.base + kGuardBytes;
  capacity_ = std::min(capacity, device_.size);
}

Memory::~Memory() {
  if (device_.size) munmap(pointer(device_.base), 2 * device_.size);
  if (host_.size) munmap(pointer(host_.base), host_.size);
}

std::optional<u64> Memory::place(Range& range, u64 bytes) {
  const u64 end = range.base + range.size;
  for (const u64 start : {range.cursor, range.base + kGuardBytes}) {
    // No live allocation that begins below a candidate reaches nearer to it than the guard.
    u64 candidate = start;
    while (candidate <= end && bytes <= end - candidate && kGuardBytes <= end - candidate - bytes) {
      // What lies above it nearest, and where that ends.
      u64 next = ~u64{0}, next_end = 0;
      if (const auto live = live_.lower_bound(candidate); live != live_.end()) {
        next = live->first;
        next_end = round_to_page(next + live->second.size);
      }
      const auto above = ranges_.lower_bound(candidate);
      if (above != ranges_.end() && above->first <= next) {  // before what is mapped in it
        next = above->first;
        next_end = next + above->second;
      }
      if (next - candidate >= bytes + kGuardBytes) {
        range.cursor = candidate + bytes + kGuardBytes;
        return candidate;
      }
      candidate = next_end + kGuardBytes;
    }
  }
  return std::nullopt;
}

std::optional<Allocation> Memory::allocate(u64 size, MemoryKind kind, u32 flags, Fill fill) {
  const bool on_device = kind == MemoryKind::kDevice;
  Range& range = on_device ? device_ : host_;
  if (size == 0 || size > range.size) return std::nullopt;
  const u64 bytes = round_to_page(size);
  Allocation allocation{.size = size, .bias = on_device ? bias_ : 0, .kind = kind, .flags = flags};
  {
    std::unique_lock lock(mutex_);
    if (on_device && bytes > capacity_ - used()) return std::nullopt;
    const auto base = place(range, bytes);
    if (!base) return std::nullopt;
    allocation.base = *base;
    void* host = allocation.host(*base);
    if (!on_device && mprotect(host, bytes, PROT_READ | PROT_WRITE) != 0) return std::nullopt;
    if (bytes >= kNoHugePages) madvise(host, bytes, MADV_NOHUGEPAGE);
    // A straggler may have touched pages of the range after they were released.
    if (fill == Fill::kZero) madvise(host, bytes, MADV_DONTNEED);
    allocation.id = next_id_++;
    live_.emplace(allocation.base, allocation);
    if (on_device) used_.fetch_add(bytes, std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_release);
  }
  if (fill == Fill::kPoison) {
    poison(allocation.host(allocation.base), std::min(size, kPoisonBytes));
  }
  if (observer_) observer_->allocated(allocation, fill);
  return allocation;
}

void Memory::retire(std::map<u64, Allocation>::iterator it) {
  freed_.push_back(it->second);
  if (freed_.size() > kFreedHistory) freed_.pop_front();
  live_.erase(it);
  epoch_.fetch_add(1, std::memory_order_release);
}

bool Memory::free(u64 address) {
  std::unique_lock lock(mutex_);
  const auto it = live_.find(address);
  if (it == live_.end() || !is_own(address, address) || it->second.mapped) return false;
  const Allocation allocation = it->second;
  if (observer_) observer_->freed(allocation);
  const u64 bytes = round_to_page(allocation.size);
  void* host = allocation.host(address);
  madvise(host, bytes, MADV_DONTNEED);
  if (allocation.kind == MemoryKind::kDevice) {
    used_.fetch_sub(bytes, std::memory_order_relaxed);
  } else {
    mprotect(host, bytes, PROT_NONE);
  }
  retire(it);
  return true;
}

std::optional<u64> Memory::reserve(u64 size, u64 alignment) {
  const u64 more = std::max(alignment, kMemoryPage) - kMemoryPage;
  if (size == 0 || size > device_.size || more > device_.size) return std::nullopt;
  std::unique_lock lock(mutex_);
  const auto placed = place(device_, round_to_page(size) + more);
  if (!placed) return std::nullopt;
  const u64 base = (*placed + more) & ~more;
  ranges_.emplace(base, round_to_page(size));
  // Address space is used again in the end: what was freed there before is no mapping of this
  // range.
  const u64 last = base + round_to_page(size) - 1;
  std::erase_if(freed_,
                [&](const Allocation& a) { return a.base <= last && base < a.base + a.size; });
  return base;
}

bool Memory::release(u64 base) {
  std::unique_lock lock(mutex_);
  const auto range = ranges_.find(base);
  if (range == ranges_.end() || touches_live(base, base + range->second - 1)) return false;
  ranges_.erase(range);
  return true;
}

std::map<u64, u64>::const_iterator Memory::range_at(u64 address) const {
  const auto above = ranges_.upper_bound(address);
  if (above == ranges_.begin()) return ranges_.end();
  const auto range = std::prev(above);
  return address - range->first < range->second ? range : ranges_.end();
}

std::optional<std::pair<u64, u64>> Memory::reserved_range(u64 address) const {
  std::shared_lock lock(mutex_);
  const auto range = range_at(address);
  return range != ranges_.end() ? std::optional(std::pair(range->first, range->second))
                                : std::nullopt;
}

bool Memory::is_unmapped(u64 address) const {
  std::shared_lock lock(mutex_);
  return range_at(address) != ranges_.end() && !touches_live(address, address);
}

bool Memory::map(u64 base, u64 size, int file, Fill fill) {
  Allocation allocation{.base = base, .size = size, .bias = bias_, .mapped = true};
  {
    std::unique_lock lock(mutex_);
    const auto range = range_at(base);
    const bool whole = size != 0 && base % kMemoryPage == 0 && size % kMemoryPage == 0;
    if (!whole || range == ranges_.end()) return false;
    if (size > range->second || base - range->first > range->second - size) return false;
    if (touches_live(base, base + size - 1)) return false;
    void* const host = allocation.host(base);
    const int access = PROT_READ | PROT_WRITE;
    if (mmap(host, size, access, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) return false;
    allocation.id = next_id_++;
    live_.emplace(base, allocation);
    epoch_.fetch_add(1, std::memory_order_release);
  }
  if (fill == Fill::kPoison) poison(allocation.host(base), std::min(size, kPoisonBytes));
  if (observer_) observer_->allocated(allocation, fill);
  return true;
}

bool Memory::unmap(u64 base, u64 size) {
  std::unique_lock lock(mutex_);
  const auto it = live_.find(base);
  if (it == live_.end() || !it->second.mapped || it->second.size != size) return false;
  if (observer_) observer_->freed(it->second);
  // As the range was before; a straggler touches pages that are nobody's.
  mmap(it->second.host(base), size, PROT_READ | PROT_WRITE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  retire(it);
  return true;
}

bool Memory::charge(u64 bytes) {
  std::unique_lock lock(mutex_);
  if (bytes > capacity_ - used()) return false;
  used_.fetch_add(bytes, std::memory_order_relaxed);
  return true;
}

// Whether [first, last] touches address space that belongs to this Memory, live or not.
bool Memory::is_own(u64 first, u64 last) const {
  const auto touches = [&](u64 base, u64 size) { return first < base + size && last >= base; };
  return touches(device_.base, 2 * device_.size) || touches(host_.base, host_.size);
}

bool Memory::touches_live(u64 base, u64 last) const {
  const auto above = live_.lower_bound(base);
  if (above != live_.end() && above->first <= last) return true;
  if (above == live_.begin()) return false;
  const Allocation& below = std::prev(above)->second;
  return base - below.base < below.size;
}

bool Memory::register_host(void* host, u64 size, u32 flags) {
  const u64 base = reinterpret_cast<u64>(host);
  const u64 last = base + size - 1;
  if (base == 0 || size == 0 || last < base || is_own(base, last)) return false;
  std::unique_lock lock(mutex_);
  if (touches_live(base, last)) return false;
  live_.emplace(base, Allocation{.base = base,
                                 .size = size,
                                 .bias = 0,
                                 .kind = MemoryKind::kHost,
                                 .flags = flags,
                                 .id = next_id_++,
                                 .registered = true});
  num_registered_.fetch_add(1, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  return true;
}

bool Memory::unregister_host(void* host) {
  const u64 base = reinterpret_cast<u64>(host);
  std::unique_lock lock(mutex_);
  const auto it = live_.find(base);
  if (it == live_.end() || !it->second.registered) return false;
  retire(it);
  num_registered_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

bool Memory::show_to(u64 address, u64 gpus) {
  std::unique_lock lock(mutex_);
  const auto it = live_.find(address);
  if (it == live_.end()) return false;
  it->second.gpus = gpus;
  epoch_.fetch_add(1, std::memory_order_release);
  return true;
}

bool Memory::borrow(u64 host, u64 size, bool registered) {
  const u64 last = host + size - 1;
  if (host == 0 || size == 0 || last < host || is_own(host, last)) return false;
  std::unique_lock lock(mutex_);
  if (touches_live(host, last)) return false;
  borrowed_.push_back(Allocation{.base = host,
                                 .size = size,
                                 .bias = 0,
                                 .kind = MemoryKind::kHost,
                                 .id = next_id_++,
                                 .registered = registered});
  if (registered) num_registered_.fetch_add(1, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  return true;
}

bool Memory::give_back(u64 host, u64 size) {
  std::unique_lock lock(mutex_);
  const auto it = std::find_if(borrowed_.begin(), borrowed_.end(), [&](const Allocation& a) {
    return a.base == host && a.size == size;
  });
  if (it == borrowed_.end()) return false;
  if (it->registered) num_registered_.fetch_sub(1, std::memory_order_relaxed);
  *it = borrowed_.back();
  borrowed_.pop_back();
  epoch_.fetch_add(1, std::memory_order_release);
  return true;
}

const Allocation* Memory::borrowed_at(u64 address) const {
  const Allocation* farthest = nullptr;
  for (const Allocation& a : borrowed_) {
    if (!a.contains(address, 1)) continue;
    if (!farthest || a.base + a.size > farthest->base + farthest->size) farthest = &a;
  }
  return farthest;
}

std::optional<Allocation> Memory::lost_registration() const {
  if (num_registered_.load(std::memory_order_relaxed) == 0) return std::nullopt;
  std::shared_lock lock(mutex_);
  for (const auto& [base, allocation] : live_)
    if (allocation.registered &&
        !is_accessible(allocation.host(base), allocation.size, HostAccess::kWrite))
      return allocation;
  for (const Allocation& a : borrowed_)
    if (a.registered && !is_accessible(a.host(a.base), a.size, HostAccess::kRead)) return a;
  return std::nullopt;
}

Allocation Memory::with_neighbours(std::map<u64, Allocation>::const_iterator it) const {
  Allocation all = it->second;
  for (auto below = it; below != live_.begin();) {
    --below;
    if (!below->second.mapped || below->second.gpus != all.gpus) break;
    if (below->first + below->second.size != all.base) break;
    all.base = below->first;
    all.size += below->second.size;
  }
  for (auto above = std::next(it); above != live_.end(); ++above) {
    if (!above->second.mapped || above->second.gpus != all.gpus) break;
    if (above->first != all.base + all.size) break;
    all.size += above->second.size;
  }
  return all;
}

std::optional<Allocation> Memory::find(u64 address) const {
  std::shared_lock lock(mutex_);
  const auto above = live_.upper_bound(address);
  if (above != live_.begin()) {
    const auto it = std::prev(above);
    const Allocation& allocation = it->second;
    if (allocation.contains(address, 1))
      return allocation.mapped ? with_neighbours(it) : allocation;
  }
  const Allocation* const borrowed = borrowed_at(address);
  return borrowed ? std::optional(*borrowed) : std::nullopt;
}

std::optional<Allocation> Memory::nearest(u64 address) const {
  std::shared_lock lock(mutex_);
  const auto above = live_.upper_bound(address);
  if (above == live_.begin()) {
    return above == live_.end() ? std::nullopt : std::optional(above->second);
  }
  const Allocation& below = std::prev(above)->second;
  if (above == live_.end() || below.contains(address, 1)) return below;
  const u64 past_below = address - (below.base + below.size - 1);
  return past_below <= above->first - address ? below : above->second;
}

std::vector<Allocation> Memory::live() const {
  std::shared_lock lock(mutex_);
  std::vector<Allocation> all;
  for (const auto& [base, allocation] : live_) all.push_back(allocation);
  return all;
}

bool Memory::was_freed(u64 address) const {
  std::shared_lock lock(mutex_);
  const auto held = [&](const Allocation& a) { return a.contains(address, 1); };
  const auto freed = std::find_if(freed_.rbegin(), freed_.rend(), held);
  if (freed == freed_.rend()) return false;
  // Address space is used again in the end: near an allocation of later, it is that one's guard.
  const u64 low = address - std::min(address, kGuardBytes);
  const auto above = live_.upper_bound(address);
  const bool guards_above =
      above != live_.end() && above->first - address <= kGuardBytes && above->second.id > freed->id;
  if (guards_above) return false;
  if (above == live_.begin()) return true;
  const Allocation& below = std::prev(above)->second;
  return below.id < freed->id || below.base + below.size <= low;
}

}  // namespace vdev
