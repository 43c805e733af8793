// Buffer instructions: range-checked access through a resource descriptor, one a wrapper. The
// compiler places the waits.
#pragma once
#include "isa/device.h"

using BufferResource = __amdgpu_buffer_rsrc_t;

// A raw buffer (stride 0): bytes at num_bytes and beyond read as 0 and are not written. Offsets are
// 32 bits; where a tensor may exceed that, use isa/global.h.
__device__ __forceinline__ BufferResource raw_buffer(const Global<void>* base, int num_bytes) {
  constexpr int kRawDwords = 4 << 15;  // word 3: DATA_FORMAT 32 bits, as raw loads want it
  return __builtin_amdgcn_make_buffer_rsrc((void*)base, 0, num_bytes, kRawDwords);
}

// `offset` is the lane's, `uniform_offset` the wave's; both count bytes.
__device__ __forceinline__ uint32_t buffer_load_dword(BufferResource buffer, int offset,
                                                      int uniform_offset) {
  return __builtin_amdgcn_raw_buffer_load_b32(buffer, offset, uniform_offset, 0);
}

__device__ __forceinline__ u32x2 buffer_load_dwordx2(BufferResource buffer, int offset) {
  return __builtin_amdgcn_raw_buffer_load_b64(buffer, offset, 0, 0);
}

__device__ __forceinline__ u32x4 buffer_load_dwordx4(BufferResource buffer, int offset) {
  return __builtin_amdgcn_raw_buffer_load_b128(buffer, offset, 0, 0);
}

__device__ __forceinline__ void buffer_store_dwordx2(BufferResource buffer, int offset, u32x2 x) {
  __builtin_amdgcn_raw_buffer_store_b64(x, buffer, offset, 0, 0);
}

__device__ __forceinline__ void buffer_store_dwordx4(BufferResource buffer, int offset, u32x4 x) {
  __builtin_amdgcn_raw_buffer_store_b128(x, buffer, offset, 0, 0);
}

// Adds to memory at agent scope; nothing comes back.
__device__ __forceinline__ void buffer_atomic_add_f32(BufferResource buffer, int offset, float x) {
  __builtin_amdgcn_raw_ptr_buffer_atomic_fadd_f32(x, buffer, offset, 0, 0);
}
