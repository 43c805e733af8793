// Which keys of which item a workgroup has. An item is a tile of rows, a head of keys, a sequence.
//
// Without a number of parts the tiles of all items stand in a row, and every workgroup has an equal
// share of them: parts of at most two items, and whole ones between. With a number of parts each
// item has so many, whose borders depend on its own length only.
#pragma once
#include "decode/arguments.h"
#include "decode/shape.h"
#include "isa/dpp_scan.h"
#include "isa/ordered.h"
#include "isa/valu.h"

__device__ __forceinline__ int min_of(int a, int b) { return a < b ? a : b; }
__device__ __forceinline__ int max_of(int a, int b) { return a > b ? a : b; }

// Of numbers that are not negative: shorter than that of signed ones.
__device__ __forceinline__ int quotient(int a, int b) { return uint32_t(a) / uint32_t(b); }

// A divisor that is the same in all lanes, and what can be known before the dividend.
class Divisor {
 public:
  __device__ __forceinline__ explicit Divisor(int by) : by_(by) {
    constexpr float kBelow = 0x1.fffffcp31f;  // 2^32 less what rounding may add
    inverse_ = uniform(uint32_t(v_rcp_f32(float(by_)) * kBelow));
    inverse_ = uniform(inverse_ + mul_hi(inverse_, -by_ * inverse_));
    ordered::settle_uniform(inverse_);  // here, not where it is used
  }
  // The same as `quotient`.
  __device__ __forceinline__ int of(int a) const {
    uint32_t q = mul_hi(a, inverse_), rest = a - q * by_;
    for (int i = 0; i < 2; ++i) {
      const bool is_more = rest >= by_;
      q += is_more;
      rest -= is_more ? by_ : 0;
    }
    return q;
  }

 private:
  static __device__ __forceinline__ uint32_t mul_hi(uint32_t a, uint32_t b) {
    return uint64_t(a) * b >> 32;
  }
  uint32_t by_, inverse_;
};

// Keys of a sequence.
struct Length {
  int old, all;  // before those appended, and with them
  int first;     // that any row sees, or that is appended
  int pad;       // positions without keys

  Length() = default;
  // From arguments in memory or in registers, `is_paged`: in pages.
  template <class Of>
  __device__ __forceinline__ Length(Of& args, bool is_paged, int given, int left_pad) {
    old = min_of(max_of(given, 0), args.max_seqlen - args.seqlen_new);
    all = old + args.seqlen_new;
    pad = max_of(left_pad, 0);
    first = pad;
    if (args.window_left >= 0) first = max_of(first, all - args.seqlen_q - args.window_left);
    if (args.seqlen_new > 0) first = min_of(first, old);
    first = min_of(first, all);
    // The 16 keys of a matrix instruction are of one page. Without pages none before the first is
    // read: there may be anything, and 0 * NaN is NaN.
    if (is_paged) first &= -kMatrix;
  }
  template <int kTileKeys>
  __device__ __forceinline__ int tiles() const {
    return max_of((all - first + kTileKeys - 1) / kTileKeys, 1);
  }
};

__device__ __forceinline__ Length uniform(Length x) {
  x.old = uniform(x.old);
  x.all = uniform(x.all);
  x.first = uniform(x.first);
  x.pad = uniform(x.pad);
  return x;
}

// Of one sequence that is the same in all lanes.
__device__ __forceinline__ Length length_of(Arguments& args, int b) {
  const int given =
      args.cache_seqlens ? ((Constant<int32_t>*)args.cache_seqlens)[b] : args.max_seqlen;
  const int pad = args.cache_leftpad ? ((Constant<int32_t>*)args.cache_leftpad)[b] : 0;
  return uniform(Length(args, args.block_table != 0, given, pad));
}

struct Segment {
  Length length;
  int batch, head;       // of keys
  int row_tile;          // of the head's rows
  int first, end;        // tiles of the item
  int begin, tiles;      // of the row of all tiles the item's; with a number of parts: which part
  int parts, part;       // of the item: from `Work::place`, as the rest
  int slot_first, slot;  // of the item's first part, and of its second one
  int slot_step;         // from one to the next
  __device__ __forceinline__ int slot_of(int p) const {
    return uniform(p == 0 ? slot_first : slot + (p - 1) * slot_step);
  }
};

template <class S>
class Work {
 public:
  Arguments& all_args;
  int inner, workgroup;
  int share, position, end;  // tiles
  int batch = 0, base = 0, tiles = 0;
  Length length;  // of the sequence

  // `early`: the first arguments are there, those in memory are asked for here.
  __device__ __forceinline__ Work(Arguments& of, const AttnDecodeArgs& early, int nth)
      : all_args(of), inner(early.num_heads_kv * early.row_tiles), workgroup(nth) {
    if (early.num_splits > 0) {
      fetch(of);
      position = workgroup;
      end = early.batch * inner * early.num_splits;
      return;
    }
    // Under way together: lengths, arguments in memory, and what needs neither.
    const Given given = of_lane(early, 0);
    const Divisor by_workgroups(early.num_workgroups);
    fetch(of);
    const Scan first = scan(early, 0, given);
    const int total = all_tiles(early, first) * inner;
    share = by_workgroups.of(total + early.num_workgroups - 1);
    position = workgroup * share;
    end = min_of(position + share, total);
    if (position < end) locate(early, first);
  }
  __device__ __forceinline__ bool next(Segment& found) {
    Arguments& args = anew(all_args);
    position = uniform(position);
    end = uniform(end);
    if (position >= end) return false;
    length = uniform(length);
    inner = uniform(inner);
    if (args.num_splits > 0) {
      of_splits(args, found);
      put_by(found);
      return true;
    }
    base = uniform(base);
    tiles = uniform(tiles);
    batch = uniform(batch);
    const int nth = quotient(position - base, tiles);
    found.begin = base + nth * tiles;
    found.tiles = tiles;
    found.batch = batch;
    found.length = length;
    put_inner(args, found, nth);
    found.first = position - found.begin;
    found.end = min_of(tiles, end - found.begin);
    position = found.begin + found.end;
    if (position < end && position == base + inner * tiles) {
      base = position;
      length = length_of(args, ++batch);
      tiles = length.template tiles<S::kTileKeys>();
    }
    put_by(found);
    return true;
  }
  // Which part of its item a segment is: not needed before its keys are.
  __device__ __forceinline__ void place(Segment& found) const {
    Arguments& args = anew(all_args);
    const int begin = uniform(found.begin), of_item = uniform(found.tiles);
    if (args.num_splits > 0) {
      const int item = quotient(begin, args.num_splits);
      found.parts = args.num_splits;
      found.part = begin - item * args.num_splits;
      found.slot_first = item * args.num_splits;
      found.slot = found.slot_first + 1;
      found.slot_step = 1;
      return;
    }
    found.parts = 1;
    found.part = found.slot_first = found.slot = found.slot_step = 0;
    if (found.end - found.first == of_item) return;
    const int each = uniform(share);
    const Divisor by(each);
    const int w0 = by.of(begin), w1 = by.of(begin + of_item - 1);
    found.parts = w1 - w0 + 1;
    found.part = uniform(workgroup) - w0;
    found.slot_first = 2 * w0 + (begin != w0 * each);
    found.slot = 2 * (w0 + 1);
    found.slot_step = 2;
  }

 private:
  static __device__ __forceinline__ void put_inner(Arguments& args, Segment& found, int inner) {
    found.head = inner;
    found.row_tile = 0;
    if (args.row_tiles == 1) return;
    found.head = quotient(inner, args.row_tiles);
    found.row_tile = inner - found.head * args.row_tiles;
  }
  __device__ __forceinline__ void put_by(Segment& found) {
    park(inner, workgroup, share, position, end, batch, base, tiles);
    park(length.old, length.all, length.first, length.pad);
    park(found.begin, found.tiles);
  }
  __device__ __forceinline__ void of_splits(Arguments& args, Segment& found) {
    const int item = quotient(position, args.num_splits);
    found.begin = position;
    found.tiles = 0;
    found.batch = quotient(item, inner);
    put_inner(args, found, item - found.batch * inner);
    found.length = length_of(args, found.batch);
    const int of_item = found.length.template tiles<S::kTileKeys>();
    const int each = quotient(of_item + args.num_splits - 1, args.num_splits);
    found.first = min_of((position - item * args.num_splits) * each, of_item);
    found.end = min_of(found.first + each, of_item);
    position += args.num_workgroups;
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
  // Of 64 sequences: the lane's own, and tiles: its own, all up to it, and all.
  struct Scan {
    Length length;
    int own, upto, all;
  };
  __device__ __forceinline__ Scan scan(const AttnDecodeArgs& args, int group, Given given) const {
    const Length known(args, all_args.block_table != 0, given.length, given.pad);
    const bool is_there = group * kWaveLanes + Lane::in_wave() < args.batch;
    const int of_lane = known.template tiles<S::kTileKeys>();
    const int own = is_there ? of_lane : 0, upto = scanned(own);
    return {known, own, upto, __builtin_amdgcn_readlane(upto, kWaveLanes - 1)};
  }
  // Of all lanes up to this one: of its row of 16, then of the rows before.
  static __device__ __forceinline__ int scanned(int x) {
    constexpr int kAll = 0xf, kOddRows = 0xa, kUpperRows = 0xc;
    x += v_mov_b32_dpp<kRowShr<1>, kAll>(x);
    x += v_mov_b32_dpp<kRowShr<2>, kAll>(x);
    x += v_mov_b32_dpp<kRowShr<4>, kAll>(x);
    x += v_mov_b32_dpp<kRowShr<8>, kAll>(x);
    x += v_mov_b32_dpp<kRowBcast15, kOddRows>(x);
    x += v_mov_b32_dpp<kRowBcast31, kUpperRows>(x);
    return x;
  }
  static __device__ __forceinline__ int groups(const AttnDecodeArgs& args) {
    return (args.batch + kWaveLanes - 1) / kWaveLanes;
  }
  __device__ __forceinline__ int all_tiles(const AttnDecodeArgs& args, const Scan& first) const {
    int sum = first.all;
    for (int group = 1; group < groups(args); ++group)
      sum += scan(args, group, of_lane(args, group)).all;
    return sum;
  }
  __device__ __forceinline__ void locate(const AttnDecodeArgs& args, const Scan& first) {
    for (int group = 0; group < groups(args); ++group) {
      const Scan found = group == 0 ? first : scan(args, group, of_lane(args, group));
      if (base + found.all * inner <= position) {
        base += found.all * inner;
        batch += kWaveLanes;
        continue;
      }
      const uint64_t before = __builtin_amdgcn_ballot_w64(base + found.upto * inner <= position);
      const int lane = __builtin_popcountll(before);
      batch += lane;
      tiles = __builtin_amdgcn_readlane(found.own, lane);
      base += (__builtin_amdgcn_readlane(found.upto, lane) - tiles) * inner;
      length.old = __builtin_amdgcn_readlane(found.length.old, lane);
      length.all = __builtin_amdgcn_readlane(found.length.all, lane);
      length.first = __builtin_amdgcn_readlane(found.length.first, lane);
      length.pad = __builtin_amdgcn_readlane(found.length.pad, lane);
      break;
    }
  }
};
