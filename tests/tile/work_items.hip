// Where each work-item of a workgroup is, as the kernel is told: x, y and z in 10 bits each.
#include "isa/device.h"

extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(1, 1024))) void work_items(
    uint32_t* out, uint32_t width, uint32_t height) {
  const uint32_t x = __builtin_amdgcn_workitem_id_x();
  const uint32_t y = __builtin_amdgcn_workitem_id_y();
  const uint32_t z = __builtin_amdgcn_workitem_id_z();
  out[(z * height + y) * width + x] = x | y << 10 | z << 20;
}
