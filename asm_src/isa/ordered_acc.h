// Accumulation registers by number as data of LDS, where it is written, as in isa/ordered.h.
#pragma once
#include "isa/device.h"

namespace ordered {

// a[kFrom : kFrom + 3]; the compiler's own reads of LDS stay behind it.
template <int kFrom, int kOffset>
__device__ __forceinline__ void ds_write_b128_acc(uint32_t address) {
  asm volatile("ds_write_b128 %0, a[%c1:%c2] offset:%c3" ::"v"(address), "n"(kFrom), "n"(kFrom + 3),
               "n"(kOffset)
               : "memory");
}

// The same to memory, through to where other XCDs see it.
template <int kFrom, int kOffset>
__device__ __forceinline__ void global_store_dwordx4_acc_sc1(uint64_t base, uint32_t offset) {
  asm volatile("global_store_dwordx4 %0, a[%c1:%c2], %3 offset:%c4 sc1" ::"v"(offset), "n"(kFrom),
               "n"(kFrom + 3), "s"(base), "n"(kOffset)
               : "memory");
}

}  // namespace ordered
