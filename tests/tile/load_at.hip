// out[lane] = the dword at byte lane * 4 + `offset` of `base`, wherever that is: out of bounds,
// misaligned, never written.
#include "isa/device.h"

extern "C" __global__ void WORKGROUP(64, 1) load_at(uint64_t base, int64_t offset, uint32_t* out) {
  const int lane = Lane::in_workgroup();
  out[lane] = *(const Global<uint32_t>*)(base + offset + lane * 4);
}
