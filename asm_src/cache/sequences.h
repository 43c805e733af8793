// Which keys a sequence has, which of them are copied, and where: of a lane's sequence, or of one
// that is the same in all lanes.
#pragma once
#include "cache/arguments.h"
#include "cache/indices.h"
#include "tile/scan.h"

constexpr int kUnitKeys = 16;  // copied together: of one page

struct Sequence : Keys {
  int first;  // position that is copied: the first that any query sees, or that is appended

  Sequence() = default;
  __device__ __forceinline__ Sequence(RowsArguments& args, int b) {
    int queries = args.seqlen_q, given = args.max_seqlen - args.seqlen_new, pad = 0;
    if (args.cu_seqlens_q) queries = max_of(difference(args.cu_seqlens_q, b), 0);
    if (args.cu_seqlens_kv)
      given = difference(args.cu_seqlens_kv, b);
    else if (args.cache_seqlens)
      given = element(args.cache_seqlens, b);
    bool is_known = is_within(given, args.max_seqlen - args.seqlen_new + 1);
    if (args.cache_leftpad) pad = element(args.cache_leftpad, b);
    if (args.cache_batch_idx)
      is_known &= is_within(element(args.cache_batch_idx, b), args.num_pages);
    Keys& keys = *this;
    keys = Keys(is_known, given, args.seqlen_new, pad, queries, args.window_left);
    first = args.k_rows ? begin() : old;
    if (args.seqlen_new > 0) first = min_of(first, old);
    if (args.block_table) first &= -kUnitKeys;
  }
  // Attention has the keys from there on: to it there are no others.
  __device__ __forceinline__ int begin() const { return max_of(seen, 0); }
  __device__ __forceinline__ int keys() const { return all - begin(); }
  __device__ __forceinline__ int units() const { return (all - first + kUnitKeys - 1) / kUnitKeys; }

 private:
  static __device__ __forceinline__ int element(uint64_t of, int b) {
    return ((const Global<int32_t>*)of)[b];
  }
  // What is less or more than int32 has is the least or the greatest one.
  static __device__ __forceinline__ int difference(uint64_t sums, int b) {
    return __builtin_elementwise_sub_sat(element(sums, b + 1), element(sums, b));
  }
};

__device__ __forceinline__ Sequence uniform(Sequence x) {
  x.old = uniform(x.old);
  x.all = uniform(x.all);
  x.seen = uniform(x.seen);
  x.first = uniform(x.first);
  return x;
}

__device__ __forceinline__ int of_lane(int x, int lane) {
  return __builtin_amdgcn_readlane(x, lane);
}

// 64 sequences, one a lane: units and rows of each, and of all up to it.
struct Group {
  Sequence own;
  int units, rows, units_upto, rows_upto;

  __device__ __forceinline__ Group(RowsArguments& args, int first) {
    const int b = first + Lane::in_wave();
    own = Sequence(args, min_of(b, args.batch - 1));
    units = b < args.batch ? own.units() : 0;
    rows = b < args.batch ? own.keys() : 0;
    units_upto = sum_scanned(units);
    rows_upto = sum_scanned(rows);
  }
  __device__ __forceinline__ int all_units() const { return of_lane(units_upto, kWaveLanes - 1); }
  __device__ __forceinline__ int all_rows() const { return of_lane(rows_upto, kWaveLanes - 1); }
};

// What a workgroup copies, an equal share of all: pieces of units, each of K or V of some heads.
class Share {
 public:
  int batch = 0, base = 0;  // sequence; rows of those before
  int all_rows = 0;         // of all sequences
  Sequence sequence;

  // `visit` is told of every group of sequences, with the first one and the rows before it.
  template <class F>
  __device__ __forceinline__ Share(RowsArguments& args, uint32_t nth, F&& visit) {
    const Group first(args, 0);
    visit(first, 0, 0);
    int units = first.all_units();
    all_rows = first.all_rows();
    for (int b = kWaveLanes; b < args.batch; b += kWaveLanes) {
      const Group group(args, b);
      visit(group, b, all_rows);
      units += group.all_units();
      all_rows += group.all_rows();
    }
    pieces = args.pieces;
    const uint32_t count = args.num_workgroups, total = uint32_t(units) * pieces;
    const uint32_t share = (total + count - 1) / count;
    if (nth * share >= total) return;
    position = nth * share;
    end = min_of(position + share, total);
    const int unit = position / pieces;
    if (unit < first.all_units()) {
      find(first, unit);
      return;
    }
    before = first.all_units();
    base = first.all_rows();
    for (batch = kWaveLanes;; batch += kWaveLanes) {
      const Group group(args, batch);
      if (before + group.all_units() > unit) {
        find(group, unit);
        return;
      }
      before += group.all_units();
      base += group.all_rows();
    }
  }
  // The next piece, and the first position of its unit; false: there is none.
  __device__ __forceinline__ bool next(RowsArguments& args, int& first, int& piece) {
    if (position >= end) return false;
    const int unit = position / pieces;
    piece = position++ - unit * pieces;
    while (unit - before >= sequence.units()) {
      before += sequence.units();
      base += sequence.keys();
      sequence = uniform(Sequence(anew(args), ++batch));
    }
    first = sequence.first + (unit - before) * kUnitKeys;
    return true;
  }

 private:
  // The sequence of a unit, of those of a group.
  __device__ __forceinline__ void find(const Group& group, int unit) {
    const int lane =
        __builtin_popcountll(__builtin_amdgcn_ballot_w64(before + group.units_upto <= unit));
    batch += lane;
    before += of_lane(group.units_upto, lane) - of_lane(group.units, lane);
    base += of_lane(group.rows_upto, lane) - of_lane(group.rows, lane);
    sequence.old = of_lane(group.own.old, lane);
    sequence.all = of_lane(group.own.all, lane);
    sequence.seen = of_lane(group.own.seen, lane);
    sequence.first = of_lane(group.own.first, lane);
  }

  uint32_t position = 0, end = 0, pieces;
  int before = 0;  // units of the sequences before this one
};
