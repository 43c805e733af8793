// Loads of up to two dwords where they are written, as those of ordered_memory.h.
#pragma once
#include "isa/ordered_memory.h"

namespace ordered {

__device__ __forceinline__ void global_load_dword(uint32_t& d, const Global<float>* address) {
  asm volatile("global_load_dword %0, %1, off" : "=&v"(d) : "v"(address));
}
__device__ __forceinline__ void global_load_ubyte(uint32_t& d, const Global<uint8_t>* address) {
  asm volatile("global_load_ubyte %0, %1, off" : "=&v"(d) : "v"(address));
}
template <int kOffset>
__device__ __forceinline__ void buffer_load_dword(uint32_t& d, uint32_t offset, u32x4 buffer) {
  asm volatile("buffer_load_dword %0, %1, %2, 0 offen offset:%3"
               : "=&v"(d)
               : "v"(offset), "s"(buffer), "n"(kOffset));
}
template <int kOffset>
__device__ __forceinline__ void s_load_dwordx2(u32x2& d, uint64_t base) {
  asm volatile("s_load_dwordx2 %0, %1, %2" : "=&s"(d) : "s"(base), "n"(kOffset));
}

}  // namespace ordered
