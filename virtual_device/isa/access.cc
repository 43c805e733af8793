#include "isa/access.h"

#include <cstdio>

namespace vdev {

void lds_deposit(Wave& w, u32 base, u64 mask, const Reg* value, u32 dwords) {
  if (base % 4)
    raise(FaultKind::kMisaligned, "load to LDS: M0 plus offset is not a multiple of 4", -1, base);
  Reg address;
  for (int i = 0; i < kLanes; ++i)
    address.lane[i] = base + deposit_stride(dwords) * static_cast<u32>(i);
  switch (dwords) {
    case 1:
      return lds_store<Shape::kB32>(w, address, mask, value);
    case 3:
      return lds_store<Shape::kB96>(w, address, mask, value);
    default:
      return lds_store<Shape::kB128>(w, address, mask, value);
  }
}

namespace {

void check_scratch(const Wave& w, u64 offset, u32 bytes, const char* verb, int lane) {
  if (offset <= w.scratch_bytes && bytes <= w.scratch_bytes - offset) [[likely]]
    return;
  char text[128];
  std::snprintf(text, sizeof text,
                "scratch %s of %u bytes at offset 0x%llx, beyond the %u bytes per lane", verb,
                bytes, static_cast<unsigned long long>(offset), w.scratch_bytes);
  raise(FaultKind::kScratchBounds, text, lane, offset);
}

// Calls copy(address within the wave's scratch, position within the datum, bytes) for each dword
// that the datum touches.
template <class Copy>
void for_scratch_dwords(u64 offset, u32 bytes, int lane, Copy copy) {
  for (u32 done = 0; done < bytes;) {
    const u64 at = offset + done;
    const u32 inside = static_cast<u32>(at % 4);
    const u32 count = std::min(4 - inside, bytes - done);
    copy((at / 4 * kLanes + static_cast<u32>(lane)) * 4 + inside, done, count);
    done += count;
  }
}

}  // namespace

void scratch_read(const Wave& w, u64 offset, u32 bytes, int lane, std::byte* to) {
  check_scratch(w, offset, bytes, "read", lane);
  for_scratch_dwords(offset, bytes, lane, [&](u64 from, u32 position, u32 count) {
    std::memcpy(to + position, w.scratch + from, count);
  });
}

void scratch_write(Wave& w, u64 offset, u32 bytes, int lane, const std::byte* from) {
  check_scratch(w, offset, bytes, "write", lane);
  for_scratch_dwords(offset, bytes, lane, [&](u64 to, u32 position, u32 count) {
    std::memcpy(w.scratch + to, from + position, count);
  });
}

}  // namespace vdev
