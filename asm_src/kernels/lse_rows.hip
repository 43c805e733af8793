// Copies lse of sequences whose rows are stored one after the other within each head to
// to[batch, head, row].
//
// Workgroup: 4 waves; a lane copies one float: one load, one store. Grid: x = ceil(count / lanes).
//
// 10 vector registers, no LDS, no barrier. The build defines KERNEL (its name).
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
  const uint32_t i = __builtin_amdgcn_workgroup_id_x() * kLanes + Lane::in_workgroup();
  if (i >= args.count) return;
  const uint32_t of_head = i / uint32_t(args.seqlen), row = i - of_head * args.seqlen;
  const uint32_t batch = of_head / uint32_t(args.num_heads);
  const uint32_t head = of_head - batch * args.num_heads;
  const auto* from =
      (const Global<float>*)args.from + batch * args.from_batch + head * args.from_head;
  global_store_dword((Global<float>*)args.to + i, from[row]);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {0, 0};
