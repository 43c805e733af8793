// Copies lse of sequences whose rows lie one behind the other in each head to lse of each sequence,
// or back. The build defines KERNEL (its name).
// Grid: x = ceil(seqlen / lanes), y = num_heads, z = batch.
#include "isa/global.h"
// clang-format off
#include "args/lse_rows.h"
// clang-format on

namespace {
constexpr int kLanes = 256;
}

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, 8) KERNEL(LseRowsArgs args) {
  const int row = __builtin_amdgcn_workgroup_id_x() * kLanes + Lane::in_workgroup();
  if (row >= args.seqlen) return;
  const int64_t head = __builtin_amdgcn_workgroup_id_y(), batch = __builtin_amdgcn_workgroup_id_z();
  const auto* from =
      (const Global<float>*)args.from + batch * args.from_batch + head * args.from_head;
  auto* to = (Global<float>*)args.to + batch * args.to_batch + head * args.to_head;
  global_store_dword(to + row, from[row]);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {0, 0};
