// Copies 64-bit indices to 32 bits; one that does not fit becomes the least or the greatest value.
//
// Workgroup: 4 waves; a lane copies one index. Grid: x = ceil(count / lanes).
//
// 8 vector registers, no LDS, no barrier. The build defines KERNEL (its name).
#include "isa/device.h"
// clang-format off
#include "args/narrow_indices.h"
// clang-format on

namespace {
constexpr int kLanes = 256;
}

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, 8) KERNEL(NarrowIndicesArgs args) {
  const int64_t i = int64_t(__builtin_amdgcn_workgroup_id_x()) * kLanes + Lane::in_workgroup();
  if (i >= args.count) return;
  const int64_t x = ((const Global<int64_t>*)args.from)[i * args.step];
  const int64_t bounded = x < args.least ? args.least : x > args.most ? args.most : x;
  ((Global<int32_t>*)args.to)[i] = int32_t(bounded);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {0, 0};
