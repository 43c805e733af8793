// Copies K or V to consecutive rows. The attention kernels address the rows of a block by 32-bit
// offsets; rows that are farther apart, or in descending order, are copied by this kernel first.
//
// Workgroup: 4 waves; a lane copies 16 bytes, columns / 8 lanes a row: one load, one store.
// Grid: x = ceil(seqlen / (lanes / (columns / 8))), y = num_heads, z = batch.
//
// 10 vector registers, no LDS, no barrier. The build defines KERNEL (its name).
#include "isa/global.h"
// clang-format off
#include "args/gather_rows.h"
// clang-format on

namespace {
constexpr int kLanes = 256, kColumnsOfLane = 8;
}

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, 8) KERNEL(GatherRowsArgs args) {
  const uint32_t lane = Lane::in_workgroup(), lanes_of_row = args.columns / kColumnsOfLane;
  const uint32_t rows_at_once = kLanes / lanes_of_row, row = lane / lanes_of_row;
  const uint32_t column = (lane - row * lanes_of_row) * kColumnsOfLane;
  const int64_t r = int64_t(__builtin_amdgcn_workgroup_id_x()) * rows_at_once + row;
  if (row >= rows_at_once || r >= args.seqlen) return;

  const int64_t head = __builtin_amdgcn_workgroup_id_y(), batch = __builtin_amdgcn_workgroup_id_z();
  const auto* from = (const Global<uint16_t>*)args.from + batch * args.stride_batch +
                     head * args.stride_head + column;
  auto* to = (Global<uint16_t>*)args.to + batch * args.to_stride_batch +
             head * args.to_stride_head + column;
  global_store_dwordx4(to + r * args.columns, global_load_dwordx4(from + r * args.stride_seq));
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {0, 0};
