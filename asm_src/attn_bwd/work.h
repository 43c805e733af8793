// Which block of keys a workgroup has, and the tiles of rows that see it.
#pragma once
#include "attn_bwd/shape.h"
#include "isa/device.h"
#include "isa/uniform.h"
#include "tile/integers.h"
// The kernarg header is plain C for other parsers; its fixed-width types come from device.h.
// clang-format off
#include "args/attn_bwd.h"
// clang-format on

// As AttnBwdArgs has them one after the other: of blocks of keys that are not split, of splits.
struct BackwardResults {
  uint64_t dk, dv;
  int64_t dk_stride_batch, dk_stride_seq, dk_stride_head;
  int64_t dv_stride_batch, dv_stride_seq, dv_stride_head;
};
static_assert(__builtin_offsetof(AttnBwdArgs, dk_sums) - __builtin_offsetof(AttnBwdArgs, dk) ==
              sizeof(BackwardResults));

// Blocks of some heads follow each other, the first ones of all, then the second ones: workgroups
// go round robin over the XCDs, so that of a multiple of eight heads each stays on one XCD, and the
// blocks that add to a tile of dQ begin in the order of their keys. Behind the blocks that are not
// split come the others, as many at once as heads: the first splits of these, each with some query
// heads of the group and some of the rows, then the second ones. A tile of dQ is in one split of
// each block, so that the order of blocks is one of workgroups, too.
template <class S>
struct BackwardWork {
  int batch, head_kv, block, split;   // split: kWhole if the block has none
  int head_q, heads_q;                // the first query head, and how many
  int rows, keys;                     // of this sequence
  int q_base, kv_base;                // first row of this sequence
  int first_key;                      // of the block
  int first, end;                     // tiles of rows
  int least_distance, most_distance;  // of a key from a row that sees it

  static constexpr int kWhole = -1;

  // In LDS, so that nothing has to be divided again: from one wave, before a barrier.
  static constexpr int kBytes = 64;
  __device__ __forceinline__ void keep(Local<char>* to) const {
    const int of[] = {batch, head_kv,        block,         split,   head_q,    heads_q,
                      rows,  keys,           q_base,        kv_base, first_key, first,
                      end,   least_distance, most_distance, 0};
    if (Lane::in_workgroup() == 0)
      for (int i = 0; i < 4; ++i)
        ((Local<u32x4>*)to)[i] = u32x4{uint32_t(of[4 * i]), uint32_t(of[4 * i + 1]),
                                       uint32_t(of[4 * i + 2]), uint32_t(of[4 * i + 3])};
  }
  static __device__ __forceinline__ BackwardWork kept(const Local<char>* from) {
    int of[16];
    for (int i = 0; i < 4; ++i) {
      const u32x4 x = ((const Local<u32x4>*)from)[i];
      for (int j = 0; j < 4; ++j) of[4 * i + j] = uniform(int(x[j]));
    }
    BackwardWork work;
    work.batch = of[0], work.head_kv = of[1], work.block = of[2], work.split = of[3];
    work.head_q = of[4], work.heads_q = of[5], work.rows = of[6], work.keys = of[7];
    work.q_base = of[8], work.kv_base = of[9], work.first_key = of[10], work.first = of[11];
    work.end = of[12], work.least_distance = of[13], work.most_distance = of[14];
    return work;
  }

  template <class Arguments>
  __device__ __forceinline__ BackwardWork(const Arguments& args, int id) {
    const int splits = args.head_splits * args.row_splits;
    // Without branches: what follows is to stay in scalar registers.
    const bool is_split = splits > 1 && id >= args.whole_blocks;
    const int in_split = is_split ? id - args.whole_blocks : 0;
    const int of_group = args.heads_at_once * splits;
    const int first_block = uniform(uint32_t(in_split) / uint32_t(of_group)) * args.heads_at_once;
    const int behind = args.heads * args.of_head - args.whole_blocks - first_block;
    const int blocks = min_of(args.heads_at_once, max_of(behind, 1));
    const int in_group = in_split - first_block * splits;
    const int of_block = uniform(uint32_t(in_group) / uint32_t(blocks));
    const int in_order = args.whole_blocks + first_block + in_group - of_block * blocks;
    const int nth = uniform(is_split ? in_order : id);
    split = uniform(is_split ? of_block : kWhole);
    const int of_chunk = args.heads_at_once * args.of_head;
    const int chunk = uniform(uint32_t(nth) / uint32_t(of_chunk)),
              in_chunk = nth - chunk * of_chunk;
    const int first_head = chunk * args.heads_at_once;
    const int heads = min_of(args.heads_at_once, args.heads - first_head);
    block = uniform(uint32_t(in_chunk) / uint32_t(heads));
    const int head = first_head + in_chunk - block * heads;
    batch = uniform(uint32_t(head) / uint32_t(args.num_heads_kv));
    head_kv = head - batch * args.num_heads_kv;
    if (args.order != 0) batch = uniform(((const Global<int32_t>*)args.order)[batch]);
    rows = args.seqlen_q;
    keys = args.seqlen_kv;
    q_base = kv_base = 0;
    if (args.cu_seqlens_q != 0) {
      const auto* sums = (const Global<int32_t>*)args.cu_seqlens_q;
      q_base = uniform(sums[batch]);
      rows = uniform(sums[batch + 1]) - q_base;
    }
    if (args.cu_seqlens_kv != 0) {
      const auto* sums = (const Global<int32_t>*)args.cu_seqlens_kv;
      kv_base = uniform(sums[batch]);
      keys = uniform(sums[batch + 1]) - kv_base;
    }
    // Of a short sequence the first split has the whole block, others have no keys.
    const bool is_short = split >= 0 && rows <= args.whole_rows;
    keys = uniform(is_short && split > 0 ? 0 : keys);
    split = uniform(is_short ? kWhole : split);
    heads_q = uniform(uint32_t(args.num_heads_q) / uint32_t(args.num_heads_kv));
    head_q = head_kv * heads_q;
    const int of_heads = split < 0 ? 1 : args.head_splits, part = max_of(split, 0);
    const int of_rows = uniform(uint32_t(part) / uint32_t(of_heads));
    heads_q = uniform(uint32_t(heads_q) / uint32_t(of_heads));
    head_q += (part - of_rows * of_heads) * heads_q;
    first_key = block * S::kKeys;
    const int diagonal = args.top_left ? 0 : keys - rows;
    const int left = args.window_left, right = args.window_right;
    least_distance = left < 0 ? -kFar : max_of(diagonal - left, -kFar);
    most_distance = right < 0 ? kFar : min_of(diagonal + right, kFar);
    const int last_key = min_of(first_key + S::kKeys, keys) - 1;
    // Rows r with least_distance <= key - r <= most_distance for some key of the block.
    const int from = max_of(first_key - most_distance, 0);
    const int to = min_of(last_key - least_distance, rows - 1);
    first = uint32_t(from) / S::kRows;
    end = to < from || first_key >= keys ? first : uint32_t(to) / S::kRows + 1;
    if (split >= 0) split_rows(of_rows, args);
  }

  // Blocks that are added to a tile of dQ before this one: those that some row of it sees.
  __device__ __forceinline__ int turn(int tile) const {
    return block - uint32_t(max_of(tile * S::kRows + least_distance, 0)) / S::kKeys;
  }
  __device__ __forceinline__ int turns(int tile) const {
    const int last_row = min_of(tile * S::kRows + S::kRows, rows) - 1;
    const int last_key = min_of(last_row + most_distance, keys - 1);
    return uint32_t(last_key) / S::kKeys -
           uint32_t(max_of(tile * S::kRows + least_distance, 0)) / S::kKeys + 1;
  }
  // Tiles every row of which sees every key of the block.
  __device__ __forceinline__ int full_first() const {
    return uint32_t(max_of(first_key + S::kKeys - 1 - most_distance, 0) + S::kRows - 1) / S::kRows;
  }
  __device__ __forceinline__ int full_count() const {
    const int rows_to =
        min_of(rows, first_key - least_distance + 1);  // the first row that does not
    const int to = rows_to > 0 ? uint32_t(rows_to) / S::kRows : 0;
    return first_key + S::kKeys <= keys ? max_of(to - full_first(), 0) : 0;
  }
  __device__ __forceinline__ bool full(int tile) const {
    return uint32_t(tile - full_first()) < uint32_t(full_count());
  }

 private:
  // Of the tiles of this block; with turns of all tiles, so that blocks come to a tile one after
  // the other and none waits for a part that another one has at its end.
  template <class Arguments>
  __device__ __forceinline__ void split_rows(int nth, const Arguments& args) {
    const bool turns = args.turns != 0;
    const uint32_t tiles = turns ? args.row_tiles : end - first;
    const int of_split = uniform((tiles + args.row_splits - 1) / uint32_t(args.row_splits));
    const int from = (turns ? 0 : first) + nth * of_split;
    end = min_of(end, from + of_split);
    first = min_of(max_of(first, from), end);
  }

  BackwardWork() = default;

  static constexpr int kFar = 1 << 30;  // beyond every distance
};
