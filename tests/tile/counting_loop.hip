// Counts for ever, by `step`: every pass differs from the one before. Stores only at the end.
#include "isa/device.h"

extern "C" __global__ void WORKGROUP(64, 1) counting_loop(uint32_t* out, uint32_t step) {
  uint32_t count = 1;
  while (count != 0) {
    count += 2 * step;  // odd for ever when step is whole
    asm volatile("" : "+v"(count));
  }
  out[0] = count;
}
