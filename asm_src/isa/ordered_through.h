// Stores to memory through the L2, with the wait states that what is written has to stay for.
#pragma once
#include "isa/device.h"

namespace ordered {

// 16 bytes a lane at base + offset, `base` the same in all lanes.
__device__ __forceinline__ void global_store_dwordx4_sc1_done(uint64_t base, uint32_t offset,
                                                              u32x4 x) {
  asm volatile("global_store_dwordx4 %0, %1, %2 sc1\n\ts_nop 1" ::"v"(offset), "v"(x), "s"(base)
               : "memory");
}

}  // namespace ordered
