// A raw buffer of `num_bytes` at `base`: out[lane] = its dword at byte lane * 4 + `offset`; what
// lies past num_bytes reads as 0, as do odd lanes if `skips_odd`. DESCRIPTOR: raw_descriptor, or
// uniform_descriptor of what is in VGPRs.
#include "isa/ordered.h"
#include "tile/buffer.h"

extern "C" __global__ void WORKGROUP(64, 1)
    descriptor(uint64_t base, int num_bytes, int offset, int skips_odd, uint32_t* out) {
  const int lane = Lane::in_workgroup();
  if (IN_VGPRS) {
    ordered::settle(base);
    ordered::settle(num_bytes);
  }
  const u32x4 buffer = DESCRIPTOR(base, num_bytes);
  const uint32_t at = skips_odd && lane % 2 ? kOutside : lane * 4 + offset;
  uint32_t found;
  ordered::buffer_load_dword(found, at, buffer);
  ordered::s_waitcnt<0, ordered::kAnyLgkm>();
  ordered::settle(found);
  out[lane] = found;
}
