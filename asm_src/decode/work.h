// Which keys of which item a workgroup has. An item is a tile of rows, a head of keys, a sequence.
//
// Without a number of parts the tiles of all items stand in a row, and every workgroup has an equal
// share of them: parts of at most two items, and whole ones between. With a number of parts each
// item has so many, whose borders depend on its own length only.
#pragma once
#include "decode/arguments.h"
#include "decode/shape.h"
#include "isa/ds.h"

__device__ __forceinline__ int min_of(int a, int b) { return a < b ? a : b; }
__device__ __forceinline__ int max_of(int a, int b) { return a > b ? a : b; }

// Keys of a sequence.
struct Length {
  int old, all;  // before those appended, and with them
  int first;     // that any row sees, or that is appended
  int pad;       // positions without keys

  __device__ __forceinline__ Length(Arguments& args, int given, int left_pad) {
    old = min_of(max_of(given, 0), args.max_seqlen - args.seqlen_new);
    all = old + args.seqlen_new;
    pad = max_of(left_pad, 0);
    first = pad;
    if (args.window_left >= 0) first = max_of(first, all - args.seqlen_q - args.window_left);
    if (args.seqlen_new > 0) first = min_of(first, old);
    first = min_of(first, all);
    // The 16 keys of a matrix instruction are of one page. Without pages none before the first is
    // read: there may be anything, and 0 * NaN is NaN.
    if (args.block_table) first &= -kMatrix;
  }
  template <int kTileKeys>
  __device__ __forceinline__ int tiles() const {
    return max_of((all - first + kTileKeys - 1) / kTileKeys, 1);
  }
};

// Of one sequence that is the same in all lanes.
__device__ __forceinline__ Length length_of(Arguments& args, int b) {
  const int given =
      args.cache_seqlens ? ((Constant<int32_t>*)args.cache_seqlens)[b] : args.max_seqlen;
  const int pad = args.cache_leftpad ? ((Constant<int32_t>*)args.cache_leftpad)[b] : 0;
  Length found(args, given, pad);
  found.old = uniform(found.old);
  found.all = uniform(found.all);
  found.first = uniform(found.first);
  found.pad = uniform(found.pad);
  return found;
}

struct Segment {
  int batch, inner;      // inner: head of keys * row_tiles + tile of rows
  int first, end;        // tiles of the item
  int parts, part;       // of the item
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

  __device__ __forceinline__ Work(Arguments& of, int nth)
      : all_args(of), inner(of.num_heads_kv * of.row_tiles), workgroup(nth) {
    if (of.num_splits > 0) {
      position = workgroup;
      end = of.batch * inner * of.num_splits;
      return;
    }
    const Scan first = scan(of, 0);
    const int total = all_tiles(of, first) * inner;
    share = (total + of.num_workgroups - 1) / of.num_workgroups;
    position = workgroup * share;
    end = min_of(position + share, total);
    if (position < end) locate(of, first);
  }
  __device__ __forceinline__ bool next(Segment& found) {
    Arguments& args = anew(all_args);
    position = uniform(position);
    end = uniform(end);
    if (position >= end) return false;
    inner = uniform(inner);
    if (args.num_splits > 0) {
      of_splits(args, found);
      put_by(found);
      return true;
    }
    workgroup = uniform(workgroup);
    base = uniform(base);
    tiles = uniform(tiles);
    batch = uniform(batch);
    share = uniform(share);
    const int nth = (position - base) / tiles;
    const int begin = base + nth * tiles;
    const int w0 = begin / share, w1 = (begin + tiles - 1) / share;
    found.batch = batch;
    found.inner = nth;
    found.first = position - begin;
    found.end = min_of(tiles, end - begin);
    found.parts = w1 - w0 + 1;
    found.part = workgroup - w0;
    found.slot_first = 2 * w0 + (begin != w0 * share);
    found.slot = 2 * (w0 + 1);
    found.slot_step = 2;
    position = begin + found.end;
    if (position < end && position == base + inner * tiles) {
      base = position;
      tiles = length_of(args, ++batch).template tiles<S::kTileKeys>();
    }
    put_by(found);
    return true;
  }

 private:
  __device__ __forceinline__ void put_by(Segment& found) {
    park(inner, workgroup, share, position, end, batch, base, tiles);
    park(found.parts, found.part, found.slot_first, found.slot, found.slot_step);
  }
  __device__ __forceinline__ void of_splits(Arguments& args, Segment& found) {
    const int item = position / args.num_splits;
    found.parts = args.num_splits;
    found.part = position - item * args.num_splits;
    found.batch = item / inner;
    found.inner = item - found.batch * inner;
    const int of_item = length_of(args, found.batch).template tiles<S::kTileKeys>();
    const int each = (of_item + args.num_splits - 1) / args.num_splits;
    found.first = min_of(found.part * each, of_item);
    found.end = min_of(found.first + each, of_item);
    found.slot_first = item * args.num_splits;
    found.slot = found.slot_first + 1;
    found.slot_step = 1;
    position += args.num_workgroups;
  }
  // Of sequence 64 * group + lane; 0 behind the last one.
  __device__ __forceinline__ int tiles_of_lane(Arguments& args, int group) const {
    const int b = group * kWaveLanes + Lane::in_wave(), known = min_of(b, args.batch - 1);
    const int given =
        args.cache_seqlens ? ((const Global<int32_t>*)args.cache_seqlens)[known] : args.max_seqlen;
    const int pad = args.cache_leftpad ? ((const Global<int32_t>*)args.cache_leftpad)[known] : 0;
    const int all = Length(args, given, pad).template tiles<S::kTileKeys>();
    return b < args.batch ? all : 0;
  }
  // Of 64 sequences: the lane's own, all up to it, and all.
  struct Scan {
    int own, upto, all;
  };
  __device__ __forceinline__ Scan scan(Arguments& args, int group) const {
    if (args.batch == 1) {  // without a trip through the lanes
      const int own = length_of(args, 0).template tiles<S::kTileKeys>();
      return {own, own, own};
    }
    const int own = tiles_of_lane(args, group), upto = scanned(own);
    return {own, upto, __builtin_amdgcn_readlane(upto, kWaveLanes - 1)};
  }
  // Of all lanes up to this one.
  static __device__ __forceinline__ int scanned(int x) {
    const int lane = Lane::in_wave();
    for (int by = 1; by < kWaveLanes; by *= 2) {
      const int other = __builtin_amdgcn_ds_bpermute(4 * (lane - by), x);
      x += lane >= by ? other : 0;
    }
    return x;
  }
  __device__ __forceinline__ int groups(Arguments& args) const {
    return (args.batch + kWaveLanes - 1) / kWaveLanes;
  }
  __device__ __forceinline__ int all_tiles(Arguments& args, const Scan& first) const {
    int sum = first.all;
    for (int group = 1; group < groups(args); ++group) sum += scan(args, group).all;
    return sum;
  }
  __device__ __forceinline__ void locate(Arguments& args, const Scan& first) {
    for (int group = 0; args.batch > 1 && group < groups(args); ++group) {
      const auto [own, upto, all] = group == 0 ? first : scan(args, group);
      if (base + all * inner <= position) {
        base += all * inner;
        batch += kWaveLanes;
        continue;
      }
      const uint64_t before = __builtin_amdgcn_ballot_w64(base + upto * inner <= position);
      const int lanes = __builtin_popcountll(before);
      batch += lanes;
      base += __builtin_amdgcn_readlane(upto - own, lanes) * inner;
      break;
    }
    tiles = length_of(args, batch).template tiles<S::kTileKeys>();
  }
};
