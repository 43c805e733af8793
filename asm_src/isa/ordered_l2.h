// Memory instructions that stay where they are written, as in isa/ordered.h, and that are for what
// the L2 holds: lines that are brought there ahead, and stores that do not stay there.
#pragma once
#include "isa/ordered_memory.h"

namespace ordered {

// 4 bytes a lane, of which nobody needs any: into a register that is kept for such loads.
__device__ __forceinline__ void buffer_load_dword_again(uint32_t& d, uint32_t offset,
                                                        u32x4 buffer) {
  asm volatile("buffer_load_dword %0, %1, %2, 0 offen" : "+v"(d) : "v"(offset), "s"(buffer));
}
__device__ __forceinline__ void v_add_u32(uint32_t& a, uint32_t b) {
  asm volatile("v_add_u32 %0, %1, %0" : "+v"(a) : "v"(b));
}

// 16 bytes a lane, to memory through the L2. What is written has to be in its registers until two
// wait states behind it.
template <int kOffset>
__device__ __forceinline__ void global_store_dwordx4_sc1(Global<void>* address, u32x4 x) {
  asm volatile("global_store_dwordx4 %0, %1, off offset:%2 sc1" ::"v"(address), "v"(x), "n"(kOffset)
               : "memory");
}
// With these wait states.
__device__ __forceinline__ void global_store_dwordx4_sc1_done(Global<void>* address, u32x4 x) {
  asm volatile("global_store_dwordx4 %0, %1, off sc1\n\ts_nop 1" ::"v"(address), "v"(x) : "memory");
}
__device__ __forceinline__ void global_store_dwordx2_sc1_done(Global<void>* address, uint64_t x) {
  asm volatile("global_store_dwordx2 %0, %1, off sc1\n\ts_nop 1" ::"v"(address), "v"(x) : "memory");
}

}  // namespace ordered
