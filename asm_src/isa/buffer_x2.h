// Buffer loads of 8 bytes, as in isa/buffer.h.
#pragma once
#include "isa/buffer.h"

__device__ __forceinline__ u32x2 buffer_load_dwordx2(BufferResource buffer, int offset) {
  return __builtin_amdgcn_raw_buffer_load_b64(buffer, offset, 0, 0);
}
