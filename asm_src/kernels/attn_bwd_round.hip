// Rounds the float32 dQ of the attention backward to 16 bits, to nearest even. NaNs stay NaNs.
//
// Workgroup: 4 waves. A lane owns 8 columns of kRows rows and has all of its loads in flight at
// once: waves start one after the other, so few of them are better.
// Grid: x = batch * ceil(seqlen * num_heads / (kRows * lanes / (columns / 8))).
//
//   phase   memory                      vector unit
//   load    dq, 32 bytes for each row   sequence and head of each row
//   store   dq, 16 bytes for each row   round
//
// Registers: low, high: the lane's columns of each row; 54 vector registers, no LDS, no barrier.
// The build defines KERNEL (its name) and ELEMENT.
#include "isa/global.h"
#include "isa/uniform.h"
#include "tile/integers.h"
#include "tile/round.h"
// clang-format off
#include "args/attn_bwd_round.h"
// clang-format on

namespace {
constexpr int kLanes = 256, kColumnsOfLane = 8, kRows = 4;
}

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, 8) KERNEL(AttnBwdRoundArgs args) {
  const uint32_t lane = Lane::in_workgroup(), lanes_of_row = args.columns / kColumnsOfLane;
  const uint32_t rows_at_once = kLanes / lanes_of_row, of_lane = lane / lanes_of_row;
  const uint32_t column = (lane - of_lane * lanes_of_row) * kColumnsOfLane;
  if (of_lane >= rows_at_once) return;
  const uint32_t rows = uint32_t(args.seqlen) * args.num_heads;
  const uint32_t of_workgroup = kRows * rows_at_once;
  const uint32_t of_batch = (rows + of_workgroup - 1) / of_workgroup;
  const uint32_t id = __builtin_amdgcn_workgroup_id_x();
  const int64_t batch = id / of_batch;
  const uint32_t first = (id - uint32_t(batch) * of_batch) * of_workgroup + of_lane;
  // Those of sequences of several lengths that belong to one.
  uint32_t end = rows;
  if (args.cu_seqlens_q != 0)
    end = min_of(end, uint32_t(((const Global<int32_t>*)args.cu_seqlens_q)[args.sequences]) *
                          args.num_heads);

  const auto* from = (const Global<float>*)args.from + batch * args.from_stride_batch + column;
  auto* to = (Global<uint16_t>*)args.to + batch * args.to_stride_batch + column;
  if (first >= end) return;
  f32x4 low[kRows], high[kRows];
  int64_t at[kRows];
  bool exists[kRows];
  for (int i = 0; i < kRows; ++i) {  // all loads are under way at once
    const uint32_t row = first + i * rows_at_once;
    exists[i] = row < end;
    const int64_t seq = row / args.num_heads, head = row - uint32_t(seq) * args.num_heads;
    at[i] = seq * args.to_stride_seq + head * args.to_stride_head;
    if (!exists[i]) continue;
    const auto* x = from + seq * args.from_stride_seq + head * args.from_stride_head;
    low[i] = __builtin_bit_cast(f32x4, global_load_dwordx4(x));
    high[i] = __builtin_bit_cast(f32x4, global_load_dwordx4(x + 4));
  }
  for (int i = 0; i < kRows; ++i) {
    if (!exists[i]) return;
    const bf16x4 x = round_pairs<Element::ELEMENT, Rounding::kNearestEven>(low[i]);
    const bf16x4 y = round_pairs<Element::ELEMENT, Rounding::kNearestEven>(high[i]);
    global_store_dwordx4(to + at[i], u32x4{x[0], x[1], y[0], y[1]});
  }
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {0, 0};
