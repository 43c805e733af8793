// Which rows and keys a workgroup has.
#pragma once
#include "attn/schedule_entry.h"
#include "attn/shape.h"
#include "attn/tile_order.h"
#include "isa/device.h"
// The kernarg header is plain C for other parsers; its fixed-width types come from device.h.
// clang-format off
#include "args/attn_fwd.h"
// clang-format on

// The same in all lanes, for the compiler to see: descriptors must lie in SGPRs.
__device__ __forceinline__ uint32_t uniform(uint32_t x) {
  return __builtin_amdgcn_readfirstlane(x);
}

__device__ __forceinline__ float uniform_float(float x) {
  return __builtin_bit_cast(float, uniform(__builtin_bit_cast(uint32_t, x)));
}

__device__ __forceinline__ uint64_t uniform64(uint64_t x) {
  return uint64_t(uniform(uint32_t(x >> 32))) << 32 | uniform(uint32_t(x));
}

// Under a mask an XCD has kHeadsOfXcd heads at once, or more as long as they have no more tiles
// than this, one for each CU; 0: always as many heads.
template <class Target>
inline constexpr int kTilesOfXcd = 0;
template <>
inline constexpr int kTilesOfXcd<Cdna4> = 32;

// Work items: whole tiles of q rows first, then the parts along KV of the remaining ones.
// Workgroups go round robin over the XCDs, each with an L2 of its own. Without a mask, an XCD takes
// the tiles of one head after the other, which all read the same K and V. Under a mask tiles
// differ: an XCD takes the longest tiles of some heads, then the next shorter ones, so that the
// short ones come last. Of many heads at once, K and V are asked for from the memory at the same
// time, and are no longer in the L2 when the next layer of tiles needs them. Of too few, long tiles
// still begin where the grid ends. Of sequences of several lengths, tiles with most keys come
// first: of up to 64 of them workgroups find their own (attn/tile_order.h), others have a schedule,
// made before by a launch of its own (kernels/attn_schedule.hip), each of whose entries is as many
// workgroups as there are heads.
struct AttnWork {
  uint32_t head_q, head_kv, batch;  // unsigned: cheaper in 64-bit products
  uint32_t q_base, kv_base;         // first row of this sequence
  int rows, keys;                   // of this sequence
  int q_start;                      // first q row
  uint32_t column = 0;              // first one of v and o
  int part = -1;  // index of the partial result, -1: the result is final. Of a merge, the first
  int parts = 1;
  // Blocks of keys: [first, end) of this workgroup, of which every row sees [full_first, full_end)
  // whole, so they need no mask. No row of this wave (gfx942: of the tile) sees seen_end or later.
  int first, full_first, full_end, seen_end, end;
  int diagonal;  // key of row 0 on the diagonal of the mask

  // Rows, counted from the first one of the tile, that blocks are seen by.
  struct Seeing {
    int first, count;
  };
  // Of workgroup `id`.
  __device__ __forceinline__ AttnWork(const AttnFwdArgs& args, int id, int tile_rows,
                                      int tile_columns, int log2_keys, Seeing seeing) {
    const int whole = args.whole_tiles;
    int nth = 0;
    // Neither is unlikely, so that neither is at the end of the code, which no cache has.
    if (__builtin_expect_with_probability(has_order(args), false, 0.5)) {
      nth = find_in_order(args, id, tile_rows, tile_columns, false);
      if (parts > 1) part += nth;
    } else if (id < whole) {
      find_tile(args, id, tile_rows, tile_columns);
      find_keys(args, tile_rows, log2_keys, seeing, 0, 1);
      return;
    } else if (__builtin_expect(has_schedule(args), false)) {
      nth = find_scheduled(args, id, tile_columns);
      if (parts > 1) part += nth;
    } else {
      // Parts that differ, without a mask: the first ones of all tiles, the second ones, and so on.
      // Equal ones: those of a tile follow each other.
      const bool differ = args.part_blocks > 0;
      const int of_tile = id - whole, inner = differ ? args.merge_tiles : args.parts;
      const int outer = divide(of_tile, inner), rest = of_tile - outer * inner;
      const int part_tile = differ ? rest : outer;
      nth = differ ? outer : rest;
      parts = args.parts;
      part = part_tile * parts + nth;
      find_tile(args, whole + part_tile, tile_rows, tile_columns);
    }
    find_keys(args, tile_rows, log2_keys, seeing, nth, parts);
  }

  // Of the nth tile that is in parts, without its keys.
  static __device__ __forceinline__ AttnWork nth_in_parts(const AttnFwdArgs& args, int n,
                                                          int tile_rows, int tile_columns) {
    AttnWork work;
    if (has_order(args)) {
      work.find_in_order(args, n, tile_rows, tile_columns, true);
    } else if (has_schedule(args)) {
      work.find_scheduled(args, n, tile_columns);
    } else {
      work.find_tile(args, args.whole_tiles + n, tile_rows, tile_columns);
      work.part = n * args.parts;
      work.parts = args.parts;
    }
    return work;
  }
  // Of the nth tile, which has 2^heads_log2 q heads, from head_q on.
  static __device__ __forceinline__ AttnWork nth_tile_of_heads(const AttnFwdArgs& args, int n,
                                                               int tile_rows, int tile_columns,
                                                               int heads_log2) {
    AttnWork work;
    work.find_tile(args, n, tile_rows, tile_columns, heads_log2);
    work.diagonal = args.top_left ? 0 : work.keys - work.rows;
    return work;
  }

  static __device__ __forceinline__ bool has_schedule(const AttnFwdArgs& args) {
    return args.cu_seqlens_q != 0 && args.cu_seqlens_kv == 0;
  }
  static __device__ __forceinline__ bool has_order(const AttnFwdArgs& args) {
    return args.whole_tiles < 0;
  }

 private:
  AttnWork() = default;

  __device__ __forceinline__ void find_tile(const AttnFwdArgs& args, int item, int tile_rows,
                                            int tile_columns, int heads_log2 = 0) {
    int sequence_head;
    if (has_window(args))
      longest_first(args, item, heads_log2, sequence_head, q_start);
    else
      head_by_head(args, item, sequence_head, q_start);
    sequence_head <<= heads_log2;
    q_start *= tile_rows;
    find_column(args, sequence_head, tile_columns);
    batch = divide(sequence_head, args.num_heads_q_inverse, args.num_heads_q_shift);
    head_q = sequence_head - batch * args.num_heads_q;
    head_kv = divide(head_q, args.group_inverse, args.group_shift);
    rows = args.seqlen_q;
    keys = args.seqlen_kv;
    q_base = kv_base = 0;
    if (__builtin_expect(args.cu_seqlens_q != 0, false)) {
      const auto* sums = (const Global<int32_t>*)args.cu_seqlens_q;
      q_base = uniform(sums[batch]);
      rows = uniform(sums[batch + 1]) - int(q_base);
    }
    if (__builtin_expect(args.cu_seqlens_kv != 0, false)) {
      const auto* sums = (const Global<int32_t>*)args.cu_seqlens_kv;
      kv_base = uniform(sums[batch]);
      keys = uniform(sums[batch + 1]) - int(kv_base);
    }
  }

  __device__ __forceinline__ void find_column(const AttnFwdArgs& args, int& head,
                                              int tile_columns) {
    if (__builtin_expect(args.column_groups > 1, false)) {  // which follow each other like heads
      const int nth = head;
      head = divide(nth, args.column_groups);
      column = (nth - head * args.column_groups) * tile_columns;
    }
  }

  // Workgroup `id` of entries, each of which is one for each head: which entry. `part` is its head.
  __device__ __forceinline__ int find_entry(const AttnFwdArgs& args, int id, int tile_columns) {
    const int nth = divide(id, args.q_tiles_inverse, args.q_tiles_shift), heads = args.q_tiles;
    int head = id - nth * heads;
    part = head;
    // Neighbours, which may share a KV head, to one XCD; a head's tiles then are all on the same.
    if (heads % kXcds == 0) head = head % kXcds * (heads / kXcds) + head / kXcds;
    find_column(args, head, tile_columns);
    batch = 0;
    head_q = head;
    head_kv = divide(head_q, args.group_inverse, args.group_shift);
    return nth;
  }

  // Workgroup `id`, or of all parts of a tile together, of tiles in their order, of which those of
  // most keys are in parts: which part of its tile it is.
  __device__ __forceinline__ int find_in_order(const AttnFwdArgs& args, int id, int tile_rows,
                                               int tile_columns, bool all_parts) {
    TileOrder order(args, tile_rows);
    int nth = find_entry(args, id, tile_columns), of_tile = 0;
    parts = 1;
    int in_parts = args.parts > 1 ? order.count(args.num_heads_q_inverse) : 0;
    if (in_parts * int(args.q_tiles) > args.merge_tiles) in_parts = 0;  // there is no room
    if (all_parts) {
      parts = args.parts;
      if (nth >= in_parts) nth = 1 << 30;
    } else if (nth < in_parts * args.parts) {
      parts = args.parts;
      const int tile = divide(nth, parts);
      of_tile = nth - tile * parts;
      nth = tile;
    } else {
      nth -= in_parts * (args.parts - 1);
    }
    part = parts > 1 ? (nth * int(args.q_tiles) + part) * parts : -1;
    q_start = order.find_tile(nth) * tile_rows;
    rows = order.rows;
    keys = order.keys;
    q_base = order.q_base;
    kv_base = order.kv_base;
    return of_tile;
  }

  // Workgroup `id` of the entries: which part of its tile it is.
  __device__ __forceinline__ int find_scheduled(const AttnFwdArgs& args, int id, int tile_columns) {
    const int nth = find_entry(args, id, tile_columns), heads = args.q_tiles;
    const auto entry = ((Constant<AttnScheduleEntry>*)args.cu_seqlens_q)[nth];
    q_start = entry.q_start;
    rows = entry.rows;
    keys = entry.keys;
    q_base = entry.q_base;
    kv_base = entry.kv_base;
    parts = entry.parts;
    part = parts > 1 ? entry.partial * heads + part * parts : -1;
    return entry.part;
  }

  // Part `nth` of `parts`.
  __device__ __forceinline__ void find_keys(const AttnFwdArgs& args, int tile_rows, int log2_keys,
                                            Seeing seeing, int nth, int parts) {
    const int block = 1 << log2_keys;
    diagonal = args.top_left ? 0 : keys - rows;
    first = full_first = 0;
    seen_end = end = (keys + block - 1) >> log2_keys;
    full_end = keys >> log2_keys;
    if (has_window(args)) cut_to_window(args, tile_rows, log2_keys, seeing);
    if (parts > 1) {
      const int all_first = first, blocks = end - first;
      const int each = args.part_blocks;
      const int from = each > 0 ? nth * each : divide(blocks * nth, parts);
      const int to = each == 0         ? divide(blocks * (nth + 1), parts)
                     : nth + 1 < parts ? from + each
                                       : blocks;
      first = all_first + from;
      end = all_first + to;
      full_first = clamp(full_first, first, end);
      full_end = clamp(full_end, full_first, end);
      seen_end = clamp(seen_end, first + 1, end);
    }
    if (__builtin_expect(end == first, false)) {  // none: a block without rows
      ++end;
      ++seen_end;
      keys = first * block;
    }
  }
  static __device__ __forceinline__ bool has_window(const AttnFwdArgs& args) {
    return args.window_left >= 0 || args.window_right >= 0;
  }
  __device__ __forceinline__ void cut_to_window(const AttnFwdArgs& args, int tile_rows,
                                                int log2_keys, Seeing seeing) {
    const int block = 1 << log2_keys;
    const int last = least(q_start + tile_rows, rows) - 1;
    const int first_seeing = q_start + seeing.first;
    const int last_seeing = least(first_seeing + seeing.count, rows) - 1;
    const int left = args.window_left, right = args.window_right;
    const int from = left < 0 ? 0 : most(0, q_start + diagonal - left);
    const int to = right < 0 ? keys : least(keys, last + diagonal + right + 1);
    const int full_from = left < 0 ? 0 : most(0, last_seeing + diagonal - left);
    const int full_to = right < 0 ? keys : least(keys, first_seeing + diagonal + right + 1);
    const int seen_to = right < 0 ? keys : least(keys, last_seeing + diagonal + right + 1);
    first = uint32_t(from) >> log2_keys;
    end = most(first, (to + block - 1) >> log2_keys);
    full_first = clamp(uint32_t(full_from + block - 1) >> log2_keys, first, end);
    full_end = clamp(full_to >> log2_keys, full_first, end);
    seen_end = clamp((seen_to + block - 1) >> log2_keys, first + 1, end);
  }

  static constexpr int kXcds = 8;
  static constexpr int kHeadsAtOnce = Here::kHeadsOfXcd * kXcds;
  static constexpr int kTilesAtOnce = kTilesOfXcd<Here> * kXcds;

  // Consecutive tiles to one XCD: workgroup x, x + 8, ... are the XCD's own.
  static __device__ __forceinline__ void head_by_head(const AttnFwdArgs& args, int item, int& head,
                                                      int& tile) {
    // Likewise of parts that differ, whose tiles come in the same order again and again.
    const bool whole = item < args.whole_tiles;
    if (whole || args.part_blocks > 0) {
      const int before = whole ? 0 : args.whole_tiles;
      const uint32_t n = whole ? args.whole_tiles : args.merge_tiles, nth = item - before;
      const uint32_t xcd = nth % kXcds;
      item = before + xcd * (n / kXcds) + least(xcd, n % kXcds) + nth / kXcds;
    }
    head = divide(item, args.q_tiles_inverse, args.q_tiles_shift);
    tile = item - head * args.q_tiles;
  }

  static __device__ __forceinline__ void longest_first(const AttnFwdArgs& args, int item,
                                                       int heads_log2, int& head, int& tile) {
    const int heads = args.batch * args.num_heads_q * args.column_groups >> heads_log2;
    if constexpr (kTilesOfXcd<Here> > 0) {
      // A power of two. CUs that had the short tiles of some heads take the long ones of the next:
      // an even number of chunks, the last of which has what is left as well.
      const int log2 = most(log2_of(kHeadsAtOnce), log2_of(kTilesAtOnce) - args.q_tiles_shift);
      const int last = most((heads >> log2 & ~1) - 1, 0);
      const int chunk =
          least(divide(uint32_t(item) >> log2, args.q_tiles_inverse, args.q_tiles_shift), last);
      const int first = chunk << log2, n = chunk < last ? 1 << log2 : heads - first;
      const int in_chunk = item - first * args.q_tiles;
      const int layer = n == 1 << log2 ? uint32_t(in_chunk) >> log2 : divide(in_chunk, n);
      tile = args.q_tiles - 1 - layer;
      head = first + beside_neighbours(in_chunk - layer * n, n);
    } else {
      const int chunk =
          divide(uint32_t(item) / kHeadsAtOnce, args.q_tiles_inverse, args.q_tiles_shift);
      const int n = least(kHeadsAtOnce, heads - chunk * kHeadsAtOnce);
      const int in_chunk = item - chunk * kHeadsAtOnce * args.q_tiles;
      const int layer = n == kHeadsAtOnce ? uint32_t(in_chunk) / kHeadsAtOnce : divide(in_chunk, n);
      tile = args.q_tiles - 1 - layer;
      head = chunk * kHeadsAtOnce + beside_neighbours(in_chunk - layer * n, n);
    }
  }
  // Neighbours, which may share a KV head, to one XCD.
  static __device__ __forceinline__ int beside_neighbours(int nth, int n) {
    return n % kXcds == 0 ? (nth & 7) * (n >> 3) + (nth >> 3) : nth;
  }
  static __device__ __forceinline__ constexpr int log2_of(uint32_t x) {
    return 31 - __builtin_clz(x);
  }

 public:
  // Unsigned, which is cheaper; cheaper still with what the arguments tell of the divisor.
  static __device__ __forceinline__ int divide(uint32_t a, uint32_t b) { return uniform(a / b); }
  static __device__ __forceinline__ int divide(uint32_t a, uint32_t inverse, int shift) {
    return uint32_t(uint64_t(2 * a) * inverse >> 32) >> shift;
  }
  static __device__ __forceinline__ int most(int a, int b) { return a > b ? a : b; }
  static __device__ __forceinline__ int clamp(int x, int low, int high) {
    return most(low, least(x, high));
  }
};
