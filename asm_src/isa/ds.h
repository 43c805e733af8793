// LDS instructions, one a wrapper. The compiler places the waits.
#pragma once
#include "isa/device.h"

__device__ __forceinline__ u32x4 ds_read_b128(const Local<u32x4>* address) { return *address; }

__device__ __forceinline__ void ds_write_b128(Local<u32x4>* address, u32x4 value) {
  *address = value;
}

// The value of lane `lane_bytes / 4`; a lane switched off by EXEC gives 0.
__device__ __forceinline__ float ds_bpermute_b32(int lane_bytes, float value) {
  return __builtin_bit_cast(
      float, __builtin_amdgcn_ds_bpermute(lane_bytes, __builtin_bit_cast(int, value)));
}
