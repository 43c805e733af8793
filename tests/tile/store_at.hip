// Lane 0 stores 0x5eed at byte `offset` of `base`, wherever that is: out of bounds, misaligned.
#include "isa/device.h"

extern "C" __global__ void WORKGROUP(64, 1) store_at(uint64_t base, int64_t offset) {
  if (Lane::in_workgroup() == 0) *(Global<uint32_t>*)(base + offset) = 0x5eed;
}
