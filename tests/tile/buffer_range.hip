// A raw buffer of `num_bytes` at `base`: out[lane] = its dword at byte lane * 4 + `offset`; what
// lies past num_bytes reads as 0.
#include "isa/buffer.h"

extern "C" __global__ void WORKGROUP(64, 1)
    buffer_range(const uint32_t* base, int num_bytes, int offset, uint32_t* out) {
  const int lane = Lane::in_workgroup();
  const BufferResource buffer = raw_buffer((const Global<void>*)base, num_bytes);
  out[lane] = buffer_load_dword(buffer, lane * 4, offset);
}
