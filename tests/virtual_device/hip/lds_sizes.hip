// Writes the last dwords of the workgroup's LDS, a dword a lane, and reads them back.
#include "isa/device.h"

extern "C" __global__ WORKGROUP(64, 1) void last_dwords(uint32_t* out, uint32_t lds_bytes) {
  extern __shared__ uint32_t words[];
  const uint32_t first = (uint32_t)(unsigned long)(Local<void>*)words;
  const uint32_t address = first + lds_bytes - 4 - 4 * Lane::in_wave();
  uint32_t value;
  asm volatile(
      "ds_write_b32 %1, %1\ns_waitcnt lgkmcnt(0)\nds_read_b32 %0, %1\n"
      "s_waitcnt lgkmcnt(0)\n"
      : "=&v"(value)
      : "v"(address)
      : "memory");
  out[Lane::in_wave()] = value;
}
