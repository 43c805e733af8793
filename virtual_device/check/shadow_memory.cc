#include "check/shadow_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>

namespace vdev {
namespace {

constexpr u8 kDefined = 0xff;

// Null when the system does not grant so much address space.
u8* reserve(u64 bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  madvise(p, bytes, MADV_DONTDUMP);
  madvise(p, bytes, MADV_NOHUGEPAGE);
  return static_cast<u8*>(p);
}

// Zeros [p, p + bytes) and gives whole pages back.
void clear(u8* p, u64 bytes) {
  const u64 first = reinterpret_cast<u64>(p), end = first + bytes;
  const u64 page = (first + kMemoryPage - 1) & ~(kMemoryPage - 1), last = end & ~(kMemoryPage - 1);
  if (page >= last) {
    std::memset(p, 0, bytes);
    return;
  }
  std::memset(p, 0, page - first);
  madvise(reinterpret_cast<void*>(page), last - page, MADV_DONTNEED);
  std::memset(reinterpret_cast<void*>(last), 0, end - last);
}

}  // namespace

ShadowMemory::ShadowMemory(Memory& memory, std::function<void(Finding)> report)
    : memory_(memory), report_(std::move(report)) {
  base_ = memory.device_base();
  size_ = memory.device_bytes();
  while (size_ && !(bytes_ = reserve(size_))) size_ = size_ / 2 & ~(kMemoryPage * kMemoryPage - 1);
  if (size_ && !(page_ = reserve(size_ / kMemoryPage))) {
    munmap(bytes_, size_);
    size_ = 0;
  }
  if (size_ < memory.device_bytes()) {
    Finding finding;
    finding.kind = FindingKind::kUnchecked;
    char text[160];
    std::snprintf(text, sizeof text,
                  "address space for the first %llu of %llu bytes of device memory only: whether "
                  "others are initialised is not known",
                  static_cast<unsigned long long>(size_),
                  static_cast<unsigned long long>(memory.device_bytes()));
    finding.message = text;
    report_(std::move(finding));
  }
  memory.set_observer(this);
  for (const Allocation& allocation : memory.live())
    if (allocation.kind == MemoryKind::kDevice) allocated(allocation, Fill::kZero);
}

ShadowMemory::~ShadowMemory() {
  memory_.set_observer(nullptr);
  if (!size_) return;
  munmap(bytes_, size_);
  munmap(page_, size_ / kMemoryPage);
}

bool ShadowMemory::read_shadow(u64 address, u8* taint, u32 bytes) const {
  const u64 at = address - base_;
  u8 any = 0;
  for (u32 i = 0; i < bytes; ++i) {
    taint[i] = page_[(at + i) / kMemoryPage] ? 0 : static_cast<u8>(~bytes_[at + i]);
    any |= taint[i];
  }
  return any != 0;
}

bool ShadowMemory::read(u64 address, u8* taint, u32 bytes) const {
  if (!covers(address, bytes) || whole_pages(address, bytes)) {
    std::memset(taint, 0, bytes);
    return false;
  }
  return read_shadow(address, taint, bytes);
}

void ShadowMemory::define(u64 address, u64 bytes) {
  if (bytes == 0 || !covers(address, bytes)) return;
  for (u64 at = address - base_, end = at + bytes; at < end;) {
    const u64 page = at / kMemoryPage, next = std::min(end, (page + 1) * kMemoryPage);
    if (next - at == kMemoryPage)
      page_[page] = 1;
    else if (!page_[page])
      std::memset(bytes_ + at, kDefined, next - at);
    at = next;
  }
}

void ShadowMemory::split(u64 page) {
  if (!page_[page]) return;
  std::memset(bytes_ + page * kMemoryPage, kDefined, kMemoryPage);
  page_[page] = 0;
}

void ShadowMemory::promote(u64 page) {
  u8 all = kDefined;
  for (u64 i = 0; i < kMemoryPage; ++i) all &= bytes_[page * kMemoryPage + i];
  if (all == kDefined) page_[page] = 1;
}

void ShadowMemory::undefine(u64 address, u64 bytes) {
  if (bytes == 0 || !covers(address, bytes)) return;
  const u64 at = address - base_, end = at + bytes;
  if (at % kMemoryPage) split(at / kMemoryPage);
  if (end % kMemoryPage) split(end / kMemoryPage);
  clear(bytes_ + at, bytes);
  const u64 first = (at + kMemoryPage - 1) / kMemoryPage, last = end / kMemoryPage;
  if (first < last) clear(page_ + first, last - first);
}

u64 ShadowMemory::first_undefined(u64 address, u64 bytes, u64* count) const {
  *count = 0;
  u64 first = bytes;
  if (bytes == 0 || !covers(address, bytes)) return first;
  const u64 begin = address - base_, end = begin + bytes;
  for (u64 at = begin; at < end;) {
    const u64 page = at / kMemoryPage, next = std::min(end, (page + 1) * kMemoryPage);
    if (!page_[page]) {
      for (u64 i = at; i < next; ++i) {
        if (bytes_[i] == kDefined) continue;
        if (*count == 0) first = i - begin;
        ++*count;
      }
    }
    at = next;
  }
  return first;
}

void ShadowMemory::allocated(const Allocation& allocation, Fill fill) {
  if (allocation.kind != MemoryKind::kDevice) return;
  // What lies behind the end is for others to judge; a flag can then speak for the last page.
  const u64 pages = (allocation.size + kMemoryPage - 1) & ~(kMemoryPage - 1);
  if (fill == Fill::kZero) return define(allocation.base, pages);
  undefine(allocation.base, pages);
  define(allocation.base + allocation.size, pages - allocation.size);
}

// Addresses are not used again soon: what shadows them goes with the memory.
void ShadowMemory::freed(const Allocation& allocation) {
  undefine(allocation.base, (allocation.size + kMemoryPage - 1) & ~(kMemoryPage - 1));
}

void ShadowMemory::host_wrote(const StridedRange& range) {
  for (u64 z = 0; z < range.depth; ++z) {
    for (u64 y = 0; y < range.height; ++y) {
      const u64 first = range.row(y, z);
      if (range.row_bytes == 0 || !covers(first, range.row_bytes)) continue;
      define(first, range.row_bytes);
      promote((first - base_) / kMemoryPage);
      promote((first - base_ + range.row_bytes - 1) / kMemoryPage);
    }
  }
}

void ShadowMemory::host_read(const StridedRange& range) {
  u64 total = 0, first = 0;
  for (u64 z = 0; z < range.depth; ++z) {
    for (u64 y = 0; y < range.height; ++y) {
      u64 count;
      const u64 offset = first_undefined(range.row(y, z), range.row_bytes, &count);
      if (count && !total) first = range.row(y, z) + offset;
      total += count;
    }
  }
  if (!total) return;
  const auto allocation = memory_.find(first);
  const u64 base = allocation ? allocation->base : range.address;
  char text[240];
  Finding finding;
  finding.kind = FindingKind::kUnwrittenOutput;
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(first));
  finding.where = text;
  std::snprintf(text, sizeof text,
                "%llu of %llu bytes copied to the host were never written; the first one is at "
                "offset %llu of an allocation of %llu bytes",
                static_cast<unsigned long long>(total),
                static_cast<unsigned long long>(range.row_bytes * range.height * range.depth),
                static_cast<unsigned long long>(first - base),
                static_cast<unsigned long long>(allocation ? allocation->size : 0));
  finding.message = text;
  report_(std::move(finding));
}

void ShadowMemory::host_copied(const StridedRange& to, const StridedRange& from) {
  for (u64 z = 0; z < to.depth; ++z) {
    for (u64 y = 0; y < to.height; ++y) {
      const u64 target = to.row(y, z), source = from.row(y, z);
      u64 count;
      first_undefined(source, to.row_bytes, &count);
      if (count == 0) {
        define(target, to.row_bytes);
        continue;
      }
      // A copy: source and target may overlap.
      std::vector<u8> taint(to.row_bytes);
      for (u64 i = 0; i < to.row_bytes; ++i) read(source + i, &taint[i], 1);
      for (u64 i = 0; i < to.row_bytes;) {
        u64 end = i;
        while (end < to.row_bytes && (taint[end] != 0) == (taint[i] != 0)) ++end;
        taint[i] ? undefine(target + i, end - i) : define(target + i, end - i);
        i = end;
      }
    }
  }
}

}  // namespace vdev
