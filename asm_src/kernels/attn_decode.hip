// Attention of few queries over a long KV cache, contiguous or paged: O = softmax(scale * Q K^T) V
// and lse. It is bound by the bytes of the cache, each of which is read once. The query heads that
// share a KV head are the rows of one matrix product, at most ROWS of them.
//
// Workgroup: four waves, which take turns along the keys, 32 at a time (16 for heads of more than
// 128 columns). Grid: x = num_workgroups, any number; decode/work.h gives each its share of keys.
//
//   phase, file of decode/   memory                                  matrix, vector units
//   find      work.h         lengths                                 which tiles of which sequences
//   start     cache.h        the page table, first K and V, Q        rotary embedding of Q
//   append    cache.h        new K and V, also into the cache        (last keys of a sequence only)
//   loop      attend.h       K and V of the next turn                S^T = K Q^T, P, O^T += V^T P^T
//   combine   combine.h      parts of split sequences                sums over waves, then parts
//
//   registers   196 to 494 registers, depending on the member
//   K, V        Chunk one, other (k, v): one is being loaded while the other is in use
//   Q, O^T      Rows: q, o, and for each row reference (running maximum) and sum; P: weights
//   LDS         Exchange: o, reference, sum of each wave after the loop; 34336 bytes of LDS
//
// The compiler schedules it. The build defines KERNEL (its name), ELEMENT, STORED and ORDER (type
// and layout of the cache), COLUMNS (most of a head), ROWS, MIN_WAVES (per SIMD), PARAMETERS and
// ARGUMENTS: each field of the struct is a parameter, so that the first ones arrive in SGPRs.
#include "decode/combine.h"

namespace {

using Shape = DecodeShape<Element::ELEMENT, Stored::STORED, Order::ORDER, COLUMNS, ROWS>;
static_assert(Shape::kLanes == kWorkgroupLanes);

// Keys of the segment by turns of the waves, loads a turn ahead.
__device__ __forceinline__ void attend(Arguments& args, Segment& segment, Rows<Shape>& rows,
                                       int attempt) {
  Cache<Shape> cache(args, segment);
  const int first = cache.first(), step = cache.step(), end = cache.end();
  const int old_end = cache.old_end();
  Chunk<Shape> one, other;
  cache.load_k(one, first, 0);
  segment.near.settle();
  rows.start(anew(args), segment, cache, attempt);
  rows.turn(anew(args), segment, cache.length());
  cache.load_v(one, first, 0);
  rows.put_scales(args, cache);
  segment.park();
  // The last turns, which may have new keys, come first: the long code that appends occurs once.
  if (__builtin_expect(old_end < end, false)) {
    int turn = quotient(max_of(old_end - first, 0) + step - 1, step);
    for (int key = first + turn * step; key < end; key += step, ++turn) {
      cache.load_anew(other, key, turn);
      cache.complete(other, key);
      cache.append(other, key);
      rows.attend(args, other, key);
    }
    cache.begin_anew(turn);
  }
  for (int key = first, turn = 0; key < old_end; key += 2 * step, turn += 2) {
    cache.load(other, key + step, turn + 1);
    cache.complete(one, key);
    rows.attend(args, one, key);
    cache.load(one, key + 2 * step, turn + 2);
    if (key + step < old_end) {
      cache.complete(other, key + step);
      rows.attend(args, other, key + step);
    }
  }
  rows.spoil(cache.spoil());
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(Shape::kLanes, MIN_WAVES) KERNEL(PARAMETERS) {
  __shared__ Exchange<Shape> exchange;
  auto& lds = *(Local<Exchange<Shape>>*)&exchange;
  auto& args = *(Arguments*)__builtin_amdgcn_kernarg_segment_ptr();
  const AttnDecodeArgs early{ARGUMENTS};
  Work<Shape> work(args, __builtin_amdgcn_workgroup_id_x());
  Segment segment;
  bool is_there = work.begin(early, segment);
  do {
    if (!is_there) continue;
    for (int attempt = 0;; ++attempt) {
      segment.settle();
      Rows<Shape> rows;
      attend(anew(args), segment, rows, attempt);
      work.place(segment);
      const bool is_done = Combine<Shape>(anew(args), segment, lds).run(rows);
      if (__builtin_expect(is_done, true)) break;
      work.again(segment);
    }
  } while (work.next(segment, is_there));
  if (int(__builtin_amdgcn_workgroup_id_x()) == early.num_workgroups - 1)
    check_rows_differ(anew(args));
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {Shape::kRows, Shape::kTileKeys};
