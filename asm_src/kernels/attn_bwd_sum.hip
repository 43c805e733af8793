// Sums the float32 splits of dK and dV of the attention backward in their order, so that the result
// has the same bits every time, and rounds to nearest even if asked to. NaNs stay NaNs.
//
// Workgroup: 4 waves. A lane owns 4 columns of kRows rows of dK or dV.
// Grid: x = for dK, then for dV, ceil((rows - first_row) / (kRows * (lanes / (columns / 4)))).
//
//   phase   memory                             vector unit
//   find    lengths, if blocks differ          which of the lane's rows were split: `summed`
//   sum     one split after the other          sum += next; two splits in flight: next, last
//   store   dk or dv                           round
//
// 59 vector registers, no LDS, no barrier. The build defines KERNEL (its name) and ELEMENT.
#include "isa/global.h"
#include "isa/uniform.h"
#include "tile/integers.h"
#include "tile/round.h"
// clang-format off
#include "args/attn_bwd_sum.h"
// clang-format on

namespace {
constexpr int kLanes = 256, kColumnsOfLane = 4, kRows = 4;

struct Tensor {
  uint64_t from, to;
  int64_t stride_batch, stride_seq, stride_head;
  uint32_t columns;
};

// Of one split, rows of a lane.
struct Part {
  f32x4 row[kRows];

  __device__ __forceinline__ void load(const Global<float>* from, const uint32_t (&at)[kRows]) {
    for (int i = 0; i < kRows; ++i)
      row[i] = __builtin_bit_cast(f32x4, global_load_dwordx4(from + at[i]));
  }
  __device__ __forceinline__ void add(const Part& other) {
    for (int i = 0; i < kRows; ++i) row[i] += other.row[i];
  }
};
}  // namespace

// The sequence that a key is of.
struct Sequence {
  uint32_t first = 1, end = 0;  // of its keys
  bool is_split = false;

  // Where the key is of another one: the last one that begins at it or before. Keys behind all
  // sequences count as of the last one, and are not stored.
  __device__ __forceinline__ void find(const AttnBwdSumArgs& args, uint32_t key) {
    if (key >= first && key < end) return;
    const auto* keys = (const Global<int32_t>*)args.cu_seqlens_kv;
    const auto* rows = (const Global<int32_t>*)args.cu_seqlens_q;
    uint32_t from = 0, to = args.sequences;  // it is among these
    while (to - from > 1) {
      const uint32_t middle = (from + to) / 2;
      if (uint32_t(keys[middle]) <= key)
        from = middle;
      else
        to = middle;
    }
    first = keys[from];
    end = keys[from + 1];
    is_split = rows[from + 1] - rows[from] > args.whole_rows;
  }
};

// Whether the block of a key comes behind those that are not split, in the order of work.h.
__device__ __forceinline__ bool is_behind(const AttnBwdSumArgs& args, uint32_t head, uint32_t key) {
  const uint32_t heads = uint32_t(args.rows) / args.seqlen, at_once = args.heads_at_once;
  const uint32_t blocks = (uint32_t(args.seqlen) + args.block_keys - 1) / args.block_keys;
  const uint32_t first = head / at_once * at_once;
  const uint32_t nth = first * blocks + key / args.block_keys * min_of(at_once, heads - first);
  return nth + head - first >= uint32_t(args.whole_blocks);
}

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, 8) KERNEL(AttnBwdSumArgs args) {
  const uint32_t id = __builtin_amdgcn_workgroup_id_x(), rows = args.rows;
  const uint32_t of_dk = kLanes / (args.head_dim / kColumnsOfLane) * kRows;
  const uint32_t before_dv = (rows - args.first_row + of_dk - 1) / of_dk;
  const bool is_dk = id < before_dv;
  Tensor x = {args.dv_sums,         args.dv,
              args.dv_stride_batch, args.dv_stride_seq,
              args.dv_stride_head,  uint32_t(args.head_dim_v)};
  if (is_dk)
    x = {args.dk_sums,         args.dk,
         args.dk_stride_batch, args.dk_stride_seq,
         args.dk_stride_head,  uint32_t(args.head_dim)};
  const uint32_t lane = Lane::in_workgroup(), lanes_of_row = x.columns / kColumnsOfLane;
  const uint32_t at_once = kLanes / lanes_of_row, of_lane = lane / lanes_of_row;
  const uint32_t column = (lane - of_lane * lanes_of_row) * kColumnsOfLane;
  const uint32_t first = args.first_row + (is_dk ? id : id - before_dv) * at_once * kRows;
  const uint32_t row = first + of_lane, left = rows - first;  // at least one
  if (of_lane >= at_once || row >= rows) return;

  // Of blocks that are not split nothing is summed.
  const uint32_t seqlen = args.seqlen, heads = args.num_heads;
  uint32_t summed = ~0u;  // rows of the lane, a bit each
  if (args.whole_rows >= 0 || args.whole_blocks > 0) {
    summed = 0;
    Sequence sequence;
#pragma clang loop unroll(disable)
    for (uint32_t i = 0; i < kRows && row + i * at_once < rows; ++i) {
      const uint32_t of_head = (row + i * at_once) / seqlen;
      const uint32_t key = row + i * at_once - of_head * seqlen;
      if (args.whole_rows >= 0) sequence.find(args, key);
      const bool is_split =
          args.whole_rows >= 0 ? sequence.is_split : is_behind(args, of_head, key);
      if (is_split) summed |= 1u << i;
    }
    if (summed == 0) return;
  }

  const int64_t of_split = int64_t(rows) * x.columns;
  const auto* from = (const Global<float>*)x.from + int64_t(first) * x.columns;
  uint32_t at[kRows];  // of rows behind the last one that one again, or one that is summed
  for (int i = 0; i < kRows; ++i) {
    const uint32_t n = summed >> i & 1 ? i : __builtin_ctz(summed);
    at[i] = min_of(of_lane + n * at_once, left - 1) * x.columns + column;
  }
  Part sum, next, last;  // of which two are on their way
  sum.load(from, at);
  next.load(from += of_split, at);
  for (int n = 2; n < args.splits; ++n) {
    last.load(from += of_split, at);
    sum.add(next);
    next = last;
  }
  sum.add(next);

  uint32_t known = seqlen;
  if (args.cu_seqlens_kv != 0) known = ((const Global<int32_t>*)args.cu_seqlens_kv)[args.sequences];
  uint32_t of_head = row / seqlen, batch = of_head / heads;
  uint32_t seq = row - of_head * seqlen, head = of_head - batch * heads;
  for (int i = 0; i < kRows; ++i) {
    if (row + i * at_once >= rows) return;
    if (seq >= seqlen) {
      of_head = seq / seqlen;
      seq -= of_head * seqlen;
      head += of_head;
      batch += head / heads;
      head %= heads;
    }
    const int64_t to = batch * x.stride_batch + seq * x.stride_seq + head * x.stride_head + column;
    if (seq >= known || !(summed >> i & 1)) {
    } else if (args.keeps_floats) {
      global_store_dwordx4((Global<float>*)x.to + to, __builtin_bit_cast(u32x4, sum.row[i]));
    } else {
      const bf16x4 rounded = round_pairs<Element::ELEMENT, Rounding::kNearestEven>(sum.row[i]);
      *(Global<u32x2>*)((Global<uint16_t>*)x.to + to) = u32x2{rounded[0], rounded[1]};
    }
    seq += at_once;
  }
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kRows, kColumnsOfLane};
