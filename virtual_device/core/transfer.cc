#include "core/transfer.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "core/safe_read.h"

namespace vdev {
namespace {

// The bytes of one side when it runs, null when they are no longer there.
std::byte* resolve(const Memory& memory, const Side& side, u64 bytes, HostAccess access) {
  // Memory that the application has of its own, it may have unmapped since.
  const auto host = [&] {
    auto* first = reinterpret_cast<std::byte*>(side.address);
    return is_accessible(first, bytes, access) ? first : nullptr;
  };
  if (!side.device) return host();
  const auto allocation = memory.find(side.address);
  if (!allocation || !allocation->contains(side.address, bytes)) return nullptr;
  return allocation->registered ? host() : allocation->host(side.address);
}

LaunchResult illegal_address(const Memory& memory, const Side& side, u64 bytes, const char* what) {
  return {FaultKind::kIllegalAddress, describe_transfer(memory, side.address, bytes, what)};
}

StridedRange strided(const Side& side, u64 row_bytes, u64 height, u64 depth) {
  return {side.address, row_bytes, height, depth, side.pitch, side.slice};
}

}  // namespace

std::optional<u64> extent(const Side& side, u64 row_bytes, u64 height, u64 depth) {
  if (row_bytes == 0 || height == 0 || depth == 0) return 0;
  u64 planes = 0, rows = 0, total = 0;
  const bool overflow = __builtin_mul_overflow(side.slice, depth - 1, &planes) ||
                        __builtin_mul_overflow(side.pitch, height - 1, &rows) ||
                        __builtin_add_overflow(planes, rows, &total) ||
                        __builtin_add_overflow(total, row_bytes, &total);
  return overflow ? std::nullopt : std::optional(total);
}

std::string describe_transfer(const Memory& memory, u64 address, u64 bytes, const char* what) {
  char text[256];
  int n = std::snprintf(text, sizeof text, "%s of %llu bytes at 0x%llx: ", what,
                        static_cast<unsigned long long>(bytes),
                        static_cast<unsigned long long>(address));
  const auto rest = sizeof text - static_cast<size_t>(n);
  if (memory.is_unmapped(address)) {
    std::snprintf(text + n, rest, "nothing is mapped there in a reserved range");
  } else if (memory.was_freed(address)) {
    std::snprintf(text + n, rest, "the memory has been freed");
  } else if (const auto near = memory.nearest(address)) {
    std::snprintf(text + n, rest, "outside the nearest allocation [0x%llx, 0x%llx)",
                  static_cast<unsigned long long>(near->base),
                  static_cast<unsigned long long>(near->base + near->size));
  } else {
    std::snprintf(text + n, rest, "nothing is allocated");
  }
  return text;
}

LaunchResult run_copy(Memory& memory, const Copy& copy) {
  const u64 dst_bytes = extent(copy.dst, copy.width, copy.height, copy.depth).value_or(~u64{0});
  const u64 src_bytes = extent(copy.src, copy.width, copy.height, copy.depth).value_or(~u64{0});
  if (dst_bytes == 0) return {};
  std::byte* dst = resolve(memory, copy.dst, dst_bytes, HostAccess::kWrite);
  if (dst == nullptr) return illegal_address(memory, copy.dst, dst_bytes, "copy to device memory");
  const std::byte* src = resolve(memory, copy.src, src_bytes, HostAccess::kRead);
  if (src == nullptr) {
    return illegal_address(memory, copy.src, src_bytes, "copy from device memory");
  }
  for (u64 z = 0; z < copy.depth; ++z) {
    for (u64 y = 0; y < copy.height; ++y) {
      std::memmove(dst + z * copy.dst.slice + y * copy.dst.pitch,
                   src + z * copy.src.slice + y * copy.src.pitch, copy.width);
    }
  }
  if (MemoryObserver* observer = memory.observer()) {
    const StridedRange to = strided(copy.dst, copy.width, copy.height, copy.depth);
    const StridedRange from = strided(copy.src, copy.width, copy.height, copy.depth);
    if (copy.dst.device && copy.src.device)
      observer->host_copied(to, from);
    else if (copy.dst.device)
      observer->host_wrote(to);
    else if (copy.src.device)
      observer->host_read(from);
  }
  return {};
}

LaunchResult run_fill(Memory& memory, const FillRange& fill) {
  const u64 row_bytes = fill.width * fill.element_bytes;
  const u64 bytes = extent(fill.dst, row_bytes, fill.height, fill.depth).value_or(~u64{0});
  if (bytes == 0) return {};
  std::byte* dst = resolve(memory, fill.dst, bytes, HostAccess::kWrite);
  if (dst == nullptr) return illegal_address(memory, fill.dst, bytes, "fill of device memory");
  for (u64 z = 0; z < fill.depth; ++z) {
    for (u64 y = 0; y < fill.height; ++y) {
      std::byte* row = dst + z * fill.dst.slice + y * fill.dst.pitch;
      switch (fill.element_bytes) {
        case 1:
          std::memset(row, static_cast<int>(fill.value & 0xff), row_bytes);
          break;
        case 2:
          std::fill_n(reinterpret_cast<u16*>(row), fill.width, static_cast<u16>(fill.value));
          break;
        default:
          std::fill_n(reinterpret_cast<u32*>(row), fill.width, fill.value);
      }
    }
  }
  if (MemoryObserver* observer = memory.observer())
    observer->host_wrote(strided(fill.dst, row_bytes, fill.height, fill.depth));
  return {};
}

}  // namespace vdev
