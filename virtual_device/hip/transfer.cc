#include "hip/transfer.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>

#include "core/safe_read.h"

namespace vdev::hip {
namespace {

// First to last byte of a strided range; refuses what does not fit 64 bits.
u64 extent(const Side& side, u64 row_bytes, u64 height, u64 depth) {
  if (row_bytes == 0 || height == 0 || depth == 0) return 0;
  u64 planes = 0, rows = 0, total = 0;
  const bool overflow = __builtin_mul_overflow(side.slice, depth - 1, &planes) ||
                        __builtin_mul_overflow(side.pitch, height - 1, &rows) ||
                        __builtin_add_overflow(planes, rows, &total) ||
                        __builtin_add_overflow(total, row_bytes, &total);
  require(!overflow);
  return total;
}

std::string describe(const Memory& memory, u64 address, u64 bytes, const char* what) {
  char text[256];
  int n = std::snprintf(text, sizeof text, "%s of %llu bytes at 0x%llx: ", what,
                        static_cast<unsigned long long>(bytes),
                        static_cast<unsigned long long>(address));
  const auto rest = sizeof text - static_cast<size_t>(n);
  if (memory.was_freed(address)) {
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
  return {FaultKind::kIllegalAddress, describe(memory, side.address, bytes, what)};
}

void check_direction(const Runtime& runtime, const Side& side, bool says_device) {
  // Managed, registered and pinned memory may be called either; memory of the host alone is never
  // device memory, and memory of the device alone never host memory.
  if (says_device) {
    require(side.device, hipErrorInvalidValue);
  } else if (side.device) {
    const auto allocation = const_cast<Runtime&>(runtime).device.memory().find(side.address);
    require(!allocation || allocation->kind != MemoryKind::kDevice, hipErrorInvalidMemcpyDirection);
  }
}

StridedRange strided(const Side& side, u64 row_bytes, u64 height, u64 depth) {
  return {side.address, row_bytes, height, depth, side.pitch, side.slice};
}

}  // namespace

Side make_side(Runtime& runtime, const void* pointer, u64 pitch, u64 slice, u64 row_bytes,
               u64 height, u64 depth, HostAccess access) {
  Side side{reinterpret_cast<u64>(pointer), pitch, slice, false};
  const u64 bytes = extent(side, row_bytes, height, depth);
  if (bytes == 0) return side;  // nothing is touched, not even by null pointers
  require(pointer != nullptr);
  require(height == 1 || pitch >= row_bytes, hipErrorInvalidPitchValue);
  require(depth == 1 || slice >= row_bytes, hipErrorInvalidPitchValue);
  const Memory& memory = runtime.device.memory();
  if (const auto allocation = memory.find(side.address)) {
    side.device = true;
    if (!allocation->contains(side.address, bytes)) {
      refuse(hipErrorInvalidValue, describe(memory, side.address, bytes, "transfer"));
    }
  } else if (!is_accessible(pointer, bytes, access)) {
    refuse(hipErrorInvalidValue, describe(memory, side.address, bytes, "transfer"));
  }
  return side;
}

CopyCommand make_copy(Runtime& runtime, void* dst, u64 dst_pitch, u64 dst_slice, const void* src,
                      u64 src_pitch, u64 src_slice, u64 width, u64 height, u64 depth,
                      hipMemcpyKind kind) {
  require((kind >= hipMemcpyHostToHost && kind <= hipMemcpyDefault) ||
              kind == hipMemcpyDeviceToDeviceNoCU,
          hipErrorInvalidMemcpyDirection);
  CopyCommand copy;
  copy.dst =
      make_side(runtime, dst, dst_pitch, dst_slice, width, height, depth, HostAccess::kWrite);
  copy.src = make_side(runtime, src, src_pitch, src_slice, width, height, depth, HostAccess::kRead);
  copy.width = width;
  copy.height = height;
  copy.depth = depth;
  copy.kind = kind;
  if (kind != hipMemcpyDefault && width * height * depth != 0) {
    const bool between_devices =
        kind == hipMemcpyDeviceToDevice || kind == hipMemcpyDeviceToDeviceNoCU;
    check_direction(runtime, copy.dst, between_devices || kind == hipMemcpyHostToDevice);
    check_direction(runtime, copy.src, between_devices || kind == hipMemcpyDeviceToHost);
  }
  return copy;
}

FillCommand make_fill(Runtime& runtime, void* dst, u64 pitch, u64 slice, u32 value,
                      u32 element_bytes, u64 width, u64 height, u64 depth) {
  require(element_bytes == 1 || element_bytes == 2 || element_bytes == 4);
  require(width <= std::numeric_limits<u64>::max() / element_bytes);
  require(reinterpret_cast<u64>(dst) % element_bytes == 0);
  FillCommand fill;
  fill.dst = make_side(runtime, dst, pitch, slice, width * element_bytes, height, depth,
                       HostAccess::kWrite);
  require(fill.dst.device || width * height * depth == 0);
  fill.value = value;
  fill.element_bytes = element_bytes;
  fill.width = width;
  fill.height = height;
  fill.depth = depth;
  return fill;
}

LaunchResult run_copy(Runtime& runtime, const CopyCommand& copy) {
  const u64 dst_bytes = extent(copy.dst, copy.width, copy.height, copy.depth);
  const u64 src_bytes = extent(copy.src, copy.width, copy.height, copy.depth);
  if (dst_bytes == 0) return {};
  const Memory& memory = runtime.device.memory();
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

LaunchResult run_fill(Runtime& runtime, const FillCommand& fill) {
  const u64 row_bytes = fill.width * fill.element_bytes;
  const u64 bytes = extent(fill.dst, row_bytes, fill.height, fill.depth);
  if (bytes == 0) return {};
  const Memory& memory = runtime.device.memory();
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

}  // namespace vdev::hip
