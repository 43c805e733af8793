// Which keys of which item a workgroup has. An item is a tile of rows, a head of keys, a sequence.
//
// In so many parts of each item: tile p of the item's keys is the first one of part p, and every
// so manieth after it. Which item a workgroup has, and where its first keys are, is then known
// before any length is. Parts are given; or chosen from the lengths, if they are alike enough that
// the workgroup with the most keys holds nobody up: one part, which nobody has to merge, where the
// workgroups that there then are ask for as much as memory has.
// Of n parts each has 1/n of an item's tiles, and one workgroup merges n: there are as many as come
// to the least time. Else the tiles of all items stand in a row, and every workgroup has an equal
// share of them: parts of at most two items, and whole ones between.
#pragma once
#include "decode/length.h"
#include "decode/shape.h"
#include "tile/scan.h"

// What was loaded for its lines to be near: arguments, pages, Q. Nothing waits for it.
struct Near {
  uint32_t lines = 0, page = 0, q = 0;
  __device__ __forceinline__ void settle() {
    touched(lines);
    touched(page);
    touched(q);
    lines = page = q = 0;
  }
};

struct Segment {
  Length length;
  int batch, head;       // of keys
  int row_tile;          // of the head's rows
  int first, end, step;  // tiles of the item
  int begin, tiles;  // of the row of all tiles the item's; of parts: the item's number, its tiles
  int parts, part;   // of the item: from `Work::place`, as the rest
  int slot_first, slot;  // of the item's first part, and of its second one
  int slot_step;         // from one to the next
  Near near;             // of the first segment
  // What is not needed before all of its keys have been seen.
  __device__ __forceinline__ void park() { ::park(begin, tiles, part); }
  // In scalar registers, in either attempt.
  __device__ __forceinline__ void settle() {
    length = ::uniform(length);
    batch = uniform(batch);
    head = uniform(head);
    row_tile = uniform(row_tile);
    first = uniform(first);
    end = uniform(end);
    step = uniform(step);
  }
  __device__ __forceinline__ int slot_of(int p) const {
    return uniform(p == 0 ? slot_first : slot + (p - 1) * slot_step);
  }
};

template <class S>
class Work {
 public:
  __device__ __forceinline__ Work(Arguments& args, int own) : all_args(args), workgroup(own) {}

  // The first segment; whether there is one. `args`: the first of them are there, those in memory
  // are asked for here.
  __device__ __forceinline__ bool begin(const AttnDecodeArgs& args, Segment& found) {
    // Under way together: lengths, pages, arguments in memory, and what needs none of these. No way
    // leaves one of them out, so that what comes first is waited for alone.
    found.near.lines = lines_of(all_args);
    const Given given = of_lane(args, 0);
    const int others = further_lengths(args);
    const int most_parts = args.num_splits < 0 ? -args.num_splits : args.num_splits;
    position = workgroup;
    const Part at = part_at(args, position, max_of(most_parts, 1), small_quotient);
    found.near.page = first_page(args, at, most_parts);
    fetch(all_args);
    const Scan first = scan(args, 0, given);
    Total total{};
    if (args.num_splits <= 0) total = total_of(args, first);
    if (Lane::wave() == S::kWaves - 1) found.near.q = first_rows(args, at);
    touched(others);
    parts = args.num_splits < 0 ? chosen(args, total, most_parts) : args.num_splits;
    if (parts > 0) {
      end = items(args) * most_parts;
      if (position >= end) return false;
      return begin_part(
          args, at,
          at.batch < kWaveLanes ? of_lane(first.length, at.batch) : length_of(all_args, at.batch),
          found);
    }
    const int all = total.tiles * inner(args);
    share = Divisor(args.num_workgroups).of(all + args.num_workgroups - 1);
    // Nor is the longest item in more parts than are merged in time.
    share = max_of(share, total.most / int(most_merged(total.most)));
    position = workgroup * share;
    end = min_of(position + share, all);
    if (position >= end) return false;
    Length length;
    int tiles = 0;
    locate(args, first, length, tiles);
    put_share(args, length, tiles, found);
    return true;
  }
  // The next segment, if there is one: `is_there` is false of a part without a tile, which is none.
  __device__ __forceinline__ bool next(Segment& found, bool& is_there) {
    Arguments& args = anew(all_args);
    position = uniform(position);
    end = uniform(end);
    if (position >= end) return false;
    parts = uniform(parts);
    if (parts > 0) {
      const Part at = part_at(args, position, parts, quotient);
      is_there = begin_part(args, at, length_of(args, at.batch), found);
      return true;
    }
    is_there = true;
    base = uniform(base);
    batch = uniform(batch);
    Length length = length_of(args, batch);
    int tiles = length.template tiles<S::kTileKeys>();
    if (position == base + inner(args) * tiles) {
      base = position;
      length = length_of(args, ++batch);
      tiles = length.template tiles<S::kTileKeys>();
    }
    put_share(args, length, tiles, found);
    return true;
  }
  // The same segment once more, with what is not kept that long.
  __device__ __forceinline__ void again(Segment& found) const {
    found.length = length_of(anew(all_args), found.batch);
    const int begin = uniform(found.begin), tiles = uniform(found.tiles);
    const int of_parts = uniform(parts);
    found.step = max_of(of_parts, 1);
    found.first =
        of_parts > 0 ? uniform(found.part) : max_of(workgroup * uniform(share) - begin, 0);
    found.end = of_parts > 0 ? tiles : min_of(tiles, uniform(end) - begin);
  }
  // Which part of its item a segment is: not needed before its keys are.
  __device__ __forceinline__ void place(Segment& found) const {
    const int begin = uniform(found.begin), of_item = uniform(found.tiles);
    const int most_parts = uniform(parts);
    if (most_parts > 0) {
      found.parts = min_of(most_parts, of_item);
      found.slot_first = begin * most_parts;
      found.slot = found.slot_first + 1;
      found.slot_step = 1;
      return;
    }
    found.parts = 1;
    found.slot_first = found.slot = found.slot_step = 0;
    if (found.end - found.first == of_item) return;
    const int each = uniform(share);
    const Divisor by(each);
    const int w0 = by.of(begin), w1 = by.of(begin + of_item - 1);
    found.parts = w1 - w0 + 1;
    found.part = workgroup - w0;
    found.slot_first = 2 * w0 + (begin != w0 * each);
    found.slot = 2 * (w0 + 1);
    found.slot_step = 2;
  }

 private:
  // Of all sequences.
  struct Total {
    int tiles, most;  // of all, and of one
  };
  static constexpr int kFew = 64;  // items that have a few parts each, even where all CUs are busy
  // A part: its item, and of which rows of which sequence that is.
  struct Part {
    int part, item, batch, head, row_tile;
  };
  template <class Of>
  static __device__ __forceinline__ int inner(const Of& args) {
    return args.num_heads_kv * args.row_tiles;
  }
  template <class Of>
  static __device__ __forceinline__ int items(const Of& args) {
    return args.batch * inner(args);
  }
  // Workgroups go around the XCDs, and so would heads: an XCD that has one head of many reads some
  // of its L2's channels only. So heads begin with another one in each part and each half of the
  // sequences. What sequences of a half share, and tiles of rows of a head, an XCD reads once.
  static __device__ __forceinline__ int rotated(int head, int heads, int by) {
    constexpr int kXcds = 8;
    const int others = head & -kXcds;
    return others + kXcds <= heads ? others | ((head + by) & (kXcds - 1)) : head;
  }
  // Workgroups begin one after the other, those that have nothing to do, too. First parts come
  // first, where there may be fewer parts than there are workgroups for: lengths may be short, or
  // one part of each item be enough. Else the parts of an item are neighbours, and it is merged
  // while others are worked on.
  template <class Of, class Quotient>
  static __device__ __forceinline__ Part part_at(const Of& args, int nth, int parts, Quotient by) {
    Part found;
    const int count = items(args), heads = args.num_heads_kv;
    int rest;
    if (count >= kFew && count < S::kBusy) {
      rest = by(nth, parts);
      found.part = nth - rest * parts;
    } else {
      found.part = by(nth, count);
      rest = nth - found.part * count;
    }
    found.batch = by(rest, heads);
    found.head = rest - found.batch * heads;
    found.row_tile = 0;
    if (args.row_tiles > 1) {  // each of all sequences
      found.row_tile = by(found.batch, args.batch);
      found.batch -= found.row_tile * args.batch;
    }
    found.head = rotated(found.head, heads, found.part + (2 * found.batch >= args.batch));
    found.item = (found.batch * heads + found.head) * args.row_tiles + found.row_tile;
    return found;
  }
  // A part of an item of that length; whether it has a tile.
  template <class Of>
  __device__ __forceinline__ bool begin_part(const Of& args, const Part& at, const Length& length,
                                             Segment& found) {
    found.length = length;
    found.begin = at.item;
    found.tiles = found.end = length.template tiles<S::kTileKeys>();
    found.first = found.part = at.part;
    found.step = parts;
    found.batch = at.batch;
    found.head = at.head;
    found.row_tile = at.row_tile;
    position += args.num_workgroups;
    park(position, end, parts);
    return found.first < min_of(found.end, parts);
  }
  // The part of a share that is of one item.
  template <class Of>
  __device__ __forceinline__ void put_share(const Of& args, const Length& length, int tiles,
                                            Segment& found) {
    const int nth = quotient(position - base, tiles);
    found.begin = base + nth * tiles;
    found.tiles = tiles;
    found.batch = batch;
    found.length = length;
    put_inner(args, found, nth);
    found.part = 0;
    found.first = position - found.begin;
    found.end = min_of(tiles, end - found.begin);
    found.step = 1;
    position = found.begin + found.end;
    park(share, batch, base);
    park(position, end, parts);
  }
  // Of the lane's first keys if nothing is before these, as loaded: the pages are then near when
  // they are looked up. Of so many parts, or of one.
  __device__ __forceinline__ int first_page(const AttnDecodeArgs& args, const Part& at,
                                            int of_parts) const {
    constexpr int kHalf = kWaveLanes / 2;
    const int step = Lane::in_wave() < kHalf ? of_parts : 1;
    int ahead = Lane::in_wave() % kHalf / S::kKeyTiles * step;
    // Else added in 64 bits, which waits for what half of them is loaded to.
    ordered::settle(ahead);
    const int key = (at.part + ahead) * S::kTileKeys + Lane::wave() * S::kKeys +
                    Lane::in_wave() % S::kKeyTiles * kMatrix;
    const uint32_t known = min_of(key, args.max_seqlen - 1);
    const uint32_t page = uint64_t(known) * uint32_t(args.page_reciprocal) >> 32;
    // Without pages anything that is there.
    const bool is_paged = args.block_table != 0;
    const uint64_t table = is_paged ? args.block_table + int64_t(min_of(at.batch, args.batch - 1)) *
                                                             args.table_stride * 4
                                    : (uint64_t)&all_args;
    return ((const Global<int32_t>*)table)[is_paged ? page : 0];
  }
  // Lines of the arguments, a lane each: one load where scalar ones are a trip each.
  static __device__ __forceinline__ uint32_t lines_of(Arguments& args) {
    constexpr uint32_t kLine = 64, kLast = sizeof(AttnDecodeArgs) - 4;
    return *(const Global<uint32_t>*)((uint64_t)&args + min_of(Lane::in_wave() * kLine, kLast));
  }
  // Of Q of a part, lines of 128 bytes in the lanes of a wave: asked for behind the first keys of
  // all workgroups it would be waited for as long as those are.
  __device__ __forceinline__ uint32_t first_rows(const AttnDecodeArgs& early,
                                                 const Part& at) const {
    Arguments& args = anew(all_args);
    wanted(args.q, args.q_batch, args.q_seq, args.q_head, args.group, args.seqlen_q, args.head_dim,
           0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    constexpr int kOfLine = 64, kLines = S::kColumns / kOfLine;
    const int nth = Lane::in_wave() / kLines % S::kRows,
              column = Lane::in_wave() % kLines * kOfLine;
    const int row = at.row_tile * S::kRows + nth;
    const int query = int((float(row) + 0.5f) * v_rcp_f32(float(args.group)));
    const bool is_there = query < args.seqlen_q;
    const auto* from =
        (const Global<uint16_t>*)args.q + min_of(at.batch, early.batch - 1) * args.q_batch +
        (is_there ? query : 0) * args.q_seq +
        (is_there ? at.head * args.group + row - query * args.group : 0) * args.q_head;
    return *(const Global<uint32_t>*)(from + (column < args.head_dim ? column : 0));
  }
  // Parts of each item, of `most` at most; 0: shares are better. Lengths are alike if the longest
  // is an eighth more than their mean, or has no more tiles than that there may be parts.
  __device__ __forceinline__ int chosen(const AttnDecodeArgs& args, const Total& total,
                                        int most) const {
    const uint32_t busy = uint32_t(total.tiles * inner(args)) / S::kBusy, longest = total.most;
    if (longest <= busy) return 1;
    const bool alike =
        uint64_t(longest - longest / 8) * uint32_t(args.batch) <= uint32_t(total.tiles);
    if (!alike && longest > uint32_t(most) && longest > uint64_t(busy) * uint32_t(most)) return 0;
    const int some =
        min_of(min_of(longest, uint32_t(most)), min_of(most_merged(longest), busy_parts(args)));
    // No more than have as many tiles each.
    const int each = small_quotient(longest + some - 1, some);
    return small_quotient(longest + each - 1, each);
  }
  // Parts of an item of so many tiles; see kPartsOfRoot.
  static __device__ __forceinline__ uint32_t most_merged(uint32_t tiles) {
    const float n = float(max_of(tiles, 1u));
    return uniform(uint32_t(S::kPartsOfRoot * n * v_rsq_f32(n)));
  }
  // Of each item, of which all together keep memory busy; tiles of rows of a head share their keys.
  template <class Of>
  static __device__ __forceinline__ uint32_t busy_parts(const Of& args) {
    return uniform(uint32_t(float(S::kBusy) * v_rcp_f32(float(args.batch * args.num_heads_kv)))) +
           1;
  }
  template <class Of>
  static __device__ __forceinline__ void put_inner(const Of& args, Segment& found, int nth) {
    found.head = nth;
    found.row_tile = 0;
    if (args.row_tiles == 1) return;
    found.head = quotient(nth, args.row_tiles);
    found.row_tile = nth - found.head * args.row_tiles;
  }
  // Of sequence 64 * group + lane, as loaded.
  struct Given {
    int length, pad;
  };
  static __device__ __forceinline__ Given of_lane(const AttnDecodeArgs& args, int group) {
    const int known = min_of(group * kWaveLanes + Lane::in_wave(), args.batch - 1);
    Given found{args.max_seqlen, 0};
    if (args.cache_seqlens) found.length = ((const Global<int32_t>*)args.cache_seqlens)[known];
    if (args.cache_leftpad) found.pad = ((const Global<int32_t>*)args.cache_leftpad)[known];
    return found;
  }
  // Those of others than the first 64 sequences are near, too, when they are asked for.
  static __device__ __forceinline__ int further_lengths(const AttnDecodeArgs& args) {
    if (args.batch <= kWaveLanes || !args.cache_seqlens) return 0;
    constexpr int kOfLine = 128 / 4;
    const int known = min_of((Lane::in_wave() + 2) * kOfLine, args.batch - 1);
    return ((const Global<int32_t>*)args.cache_seqlens)[known];
  }
  // Of 64 sequences: the lane's own, and tiles: its own, all up to it, and all.
  struct Scan {
    Length length;
    int own, upto, all;
  };
  __device__ __forceinline__ Scan scan(const AttnDecodeArgs& args, int group, Given given) const {
    const Length known(args, all_args.block_table != 0, given.length, given.pad);
    const bool is_there = group * kWaveLanes + Lane::in_wave() < args.batch;
    const int of_lane = known.template tiles<S::kTileKeys>();
    const int own = is_there ? of_lane : 0, upto = sum_scanned(own);
    return {known, own, upto, all_of(upto)};
  }
  static __device__ __forceinline__ Length of_lane(Length x, int lane) {
    x.old = __builtin_amdgcn_readlane(x.old, lane);
    x.all = __builtin_amdgcn_readlane(x.all, lane);
    x.seen = __builtin_amdgcn_readlane(x.seen, lane);
    x.first = __builtin_amdgcn_readlane(x.first, lane);
    return x;
  }
  static __device__ __forceinline__ int all_of(int scanned) {
    return __builtin_amdgcn_readlane(scanned, kWaveLanes - 1);
  }
  static __device__ __forceinline__ int groups(const AttnDecodeArgs& args) {
    return (args.batch + kWaveLanes - 1) / kWaveLanes;
  }
  __device__ __forceinline__ Total total_of(const AttnDecodeArgs& args, const Scan& first) const {
    Total total{first.all, first.own};
    for (int group = 1; group < groups(args); ++group) {
      const Scan found = scan(args, group, of_lane(args, group));
      total.tiles += found.all;
      total.most = max_of(total.most, found.own);
    }
    total.most = all_of(scanned(total.most, max_of));
    return total;
  }
  __device__ __forceinline__ void locate(const AttnDecodeArgs& args, const Scan& first,
                                         Length& length, int& tiles) {
    batch = base = 0;
    const int of_tile = inner(args);
    for (int group = 0; group < groups(args); ++group) {
      const Scan found = group == 0 ? first : scan(args, group, of_lane(args, group));
      if (base + found.all * of_tile <= position) {
        base += found.all * of_tile;
        batch += kWaveLanes;
        continue;
      }
      const uint64_t before = __builtin_amdgcn_ballot_w64(base + found.upto * of_tile <= position);
      const int lane = __builtin_popcountll(before);
      batch += lane;
      tiles = __builtin_amdgcn_readlane(found.own, lane);
      base += (__builtin_amdgcn_readlane(found.upto, lane) - tiles) * of_tile;
      length = of_lane(found.length, lane);
      break;
    }
  }

  Arguments& all_args;
  int workgroup;
  int parts;                // of each item; 0: equal shares
  int position, end;        // tiles; of parts: parts
  int share;                // tiles
  int batch = 0, base = 0;  // sequence, and the first of its tiles
};
