// Buffer instructions that write, as in isa/buffer.h: 8 bytes, and sums in memory.
#pragma once
#include "isa/buffer.h"

__device__ __forceinline__ void buffer_store_dwordx2(BufferResource buffer, int offset, u32x2 x) {
  __builtin_amdgcn_raw_buffer_store_b64(x, buffer, offset, 0, 0);
}

// Adds at agent scope; nothing comes back.
__device__ __forceinline__ void buffer_atomic_add_f32(BufferResource buffer, int offset, float x) {
  __builtin_amdgcn_raw_ptr_buffer_atomic_fadd_f32(x, buffer, offset, 0, 0);
}
