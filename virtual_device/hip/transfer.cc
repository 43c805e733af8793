#include "hip/transfer.h"

#include <limits>

namespace vdev::hip {
namespace {

u64 checked_extent(const Side& side, u64 row_bytes, u64 height, u64 depth) {
  const auto bytes = extent(side, row_bytes, height, depth);
  require(bytes.has_value());
  return *bytes;
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

}  // namespace

Side make_side(Runtime& runtime, const void* pointer, u64 pitch, u64 slice, u64 row_bytes,
               u64 height, u64 depth, HostAccess access) {
  Side side{reinterpret_cast<u64>(pointer), pitch, slice, false};
  const u64 bytes = checked_extent(side, row_bytes, height, depth);
  if (bytes == 0) return side;  // nothing is touched, not even by null pointers
  require(pointer != nullptr);
  require(height == 1 || pitch >= row_bytes, hipErrorInvalidPitchValue);
  require(depth == 1 || slice >= row_bytes, hipErrorInvalidPitchValue);
  const Memory& memory = runtime.device.memory();
  if (const auto allocation = memory.find(side.address)) {
    side.device = true;
    if (!allocation->contains(side.address, bytes)) {
      refuse(hipErrorInvalidValue, describe_transfer(memory, side.address, bytes, "transfer"));
    }
  } else if (!is_accessible(pointer, bytes, access)) {
    refuse(hipErrorInvalidValue, describe_transfer(memory, side.address, bytes, "transfer"));
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

}  // namespace vdev::hip
