// out[i] = 3 * in[i] through buffer resources of num_elements each: what lies past the end is read
// as 0 and not written, so that the range alone keeps the last workgroup inside.
#include "isa/buffer.h"

extern "C" __global__ void WORKGROUP(256, 1)
    range_copy(const uint32_t* in, uint32_t* out, int in_elements, int out_elements) {
  const int at = (__builtin_amdgcn_workgroup_id_x() * 256 + Lane::in_workgroup()) * 4;
  const BufferResource source = raw_buffer((const Global<void>*)in, in_elements << 2);
  const BufferResource target = raw_buffer((const Global<void>*)out, out_elements << 2);
  const uint32_t value = buffer_load_dword(source, at, 0);
  __builtin_amdgcn_raw_buffer_store_b32(3 * value, target, at, 0, 0);
}
