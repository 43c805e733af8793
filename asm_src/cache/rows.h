// Copies of a cache's keys and values, 16 of them at a time, 8 columns a lane.
#pragma once
#include "attn/head_scales.h"
#include "cache/rotary.h"
#include "cache/sequences.h"
#include "decode/chunk.h"
#include "decode/quantize.h"

// K or V: where it is, and what is added to it. Of V whose keys of a column are neighbours `column`
// is the distance of columns, otherwise 0.
struct Part {
  uint64_t cache, rows, added, scales;
  int64_t page, head, added_batch, added_head;
  int seq, chunk, column, added_seq, columns, scale_head;
  float scale;
  bool is_k;

  __device__ __forceinline__ Part(RowsArguments& args, bool of_k) : is_k(of_k) {
    cache = of_k ? args.k : args.v;
    rows = of_k ? args.k_rows : args.v_rows;
    added = of_k ? args.k_new : args.v_new;
    scales = of_k ? args.k_scales : args.v_scales;
    page = of_k ? args.k_page : args.v_page;
    head = of_k ? args.k_head : args.v_head;
    added_batch = of_k ? args.k_new_batch : args.v_new_batch;
    added_head = of_k ? args.k_new_head : args.v_new_head;
    seq = of_k ? args.k_seq : args.v_seq;
    chunk = of_k ? args.k_chunk : args.v_chunk;
    column = of_k ? 0 : args.v_column;
    added_seq = of_k ? args.k_new_seq : args.v_new_seq;
    columns = of_k ? args.head_dim : args.head_dim_v;
    scale_head = of_k ? args.k_scale_head : args.v_scale_head;
    scale = of_k ? args.k_scale : args.v_scale;
  }
};

template <Element kElement, Stored kStored>
class CacheRows {
 public:
  static constexpr int kLanes = 256, kColumns = 8;
  static constexpr bool kFp8 = kStored == Stored::kFp8;
  static constexpr int kBytes = kFp8 ? 1 : 2;           // of an element of the cache
  static constexpr int kOfChunk = kLoadBytes / kBytes;  // in 16 bytes

  // Which row of the cache a sequence has, if its indices are known.
  static __device__ __forceinline__ int entry_of(RowsArguments& args, int b) {
    return args.cache_batch_idx ? ((const Global<int32_t>*)args.cache_batch_idx)[b] : b;
  }

  // A piece of the 16 positions from `first` on, as far as the sequence has them. Whether the table
  // named a page that is not there.
  static __device__ __forceinline__ bool copy(RowsArguments& args, const Share& share, int first,
                                              int piece) {
    const Sequence& sequence = share.sequence;
    int page, within = first;
    bool misled = false;
    if (args.block_table) {
      const int nth = uint64_t(uint32_t(first)) * uint32_t(args.page_reciprocal) >> 32;
      const auto* table = (const Global<int32_t>*)args.block_table;
      const int given = uniform(table[int64_t(share.batch) * args.table_stride + nth]);
      misled = !is_within(given, args.num_pages);
      page = misled ? kNoPage : given;
      within = first - nth * args.page_keys;
    } else {
      page = uniform(entry_of(args, share.batch));
    }
    const Unit unit{share.batch, first, within, page, share.base + first - sequence.begin()};
    const bool is_k = piece * 2 < args.pieces;
    const int nth = is_k ? piece : piece - args.pieces / 2;
    RowsArguments& again = anew(args);
    copy_part(again, Part(again, is_k), unit, sequence, nth * args.piece_heads);
    return misled;
  }

  // What scores and O of each head are to be multiplied by, a lane each.
  static __device__ __forceinline__ void write_scales(RowsArguments& args) {
    const Part k(args, true), v(args, false);
    for (int head = Lane::in_wave(); head < args.num_heads_kv; head += kWaveLanes) {
      const float by = args.softmax_scale_log2, of_k = scale(k, head * kUnitKeys);
      HeadScales made{by * of_k, scale(v, head * kUnitKeys), args.log2_rest, 0};
      if (!args.is_capped && __builtin_fabsf(made.scores) >= 0x1p-126f)
        made.log2_rest += __builtin_fmaf(by, of_k, -made.scores) / made.scores;
      ((Global<HeadScales>*)args.scales)[head] = made;
    }
  }

  // Rows of q, turned, next to each other.
  static __device__ __forceinline__ void copy_queries(RowsArguments& args, uint32_t nth) {
    const OfLane lane(args.head_dim);
    const uint32_t total = args.batch * args.seqlen_q * args.num_heads_q;
    const uint32_t step = args.num_workgroups * lane.at_once;
    if (!lane.is_there()) return;
#pragma unroll 1
    for (uint32_t i = nth * lane.at_once + lane.item; i < total; i += step) {
      const uint32_t row = i / uint32_t(args.num_heads_q), head = i - row * args.num_heads_q;
      const uint32_t b = row / uint32_t(args.seqlen_q), query = row - b * args.seqlen_q;
      const auto* from = (const Global<uint16_t>*)args.q + b * args.q_batch + query * args.q_seq +
                         head * args.q_head;
      int position = args.turns_each ? query : 0;
      if (args.rotary_cos) position += Sequence(args, b).old;
      const uint32_t group = head / uint32_t(args.q_group), nth_head = head - group * args.q_group;
      const int64_t to_row =
          (int64_t(group) * args.batch * args.seqlen_q + row) * args.q_group + nth_head;
      auto* to = (Global<uint16_t>*)args.q_rows + to_row * args.head_dim + lane.column;
      global_store_dwordx4(to, turned_by<kElement>(angles_of(args), from, lane.column, position));
    }
  }

 private:
  static constexpr int kAtOnce = 4;  // loads under way
  static constexpr int kNoPage = -1;

  struct Unit {
    int batch, first, within;  // of the page, or of the sequence's row of the cache
    int page, row;             // row: of the copy
  };
  // Which of the rows that the workgroup copies at once is a lane's, and which of its columns.
  struct OfLane {
    int item, column, at_once;
    __device__ __forceinline__ OfLane(int columns) {
      const uint32_t lane = Lane::in_workgroup(), of_row = uint32_t(columns) / kColumns;
      at_once = kLanes / of_row;
      item = lane / of_row;
      column = (lane - item * of_row) * kColumns;
    }
    __device__ __forceinline__ bool is_there() const { return item < at_once; }
  };
  static __device__ __forceinline__ Angles angles_of(RowsArguments& args) {
    return {args.rotary_cos, args.rotary_sin, args.rotary_dim, args.rotary_flags};
  }

  static __device__ __forceinline__ void copy_part(RowsArguments& args, const Part& part,
                                                   const Unit& unit, const Sequence& sequence,
                                                   int head) {
    const OfLane lane(part.columns);
    if (!lane.is_there()) return;
    // Of rows, key by key of a head.
    const int rows = kUnitKeys * min_of(head + args.piece_heads, args.num_heads_kv);
    const int max_rows = args.max_rows;
    int i = kUnitKeys * head + lane.item;
    const bool is_whole = unit.page != kNoPage && unit.first >= sequence.begin() &&
                          unit.first + kUnitKeys <= sequence.old &&
                          unit.row + kUnitKeys <= max_rows;
    if (part.rows && is_whole && !part.column) {
      const int step = lane.at_once;
#pragma unroll 1
      for (; i + (kAtOnce - 1) * step < rows; i += kAtOnce * step) {
        u32x4 x[kAtOnce];
        for (int n = 0; n < kAtOnce; ++n) x[n] = load(part, unit, lane.column, i + n * step);
        for (int n = 0; n < kAtOnce; ++n)
          store(part, max_rows, unit, lane.column, i + n * step, x[n]);
      }
    }
#pragma unroll 1
    for (; i < rows; i += lane.at_once) {
      const int position = unit.first + i % kUnitKeys;
      if (position >= sequence.all) continue;
      u32x4 x;
      if (position < sequence.old) {
        if (!part.rows || position < sequence.begin()) continue;
        x = unit.page == kNoPage ? none(part) : load(part, unit, lane.column, i);
      } else {
        x = append(anew(args), part, unit, lane.column, i, position - sequence.old);
      }
      // New keys that no query sees are appended, but are no rows.
      const bool is_row = position >= sequence.begin() && unit.row + i % kUnitKeys < max_rows;
      if (part.rows && is_row) store(part, max_rows, unit, lane.column, i, x);
    }
  }

  // Of a page that is not there: a key whose scores are NaN, with a value that spoils no others.
  static __device__ __forceinline__ u32x4 none(const Part& part) {
    const uint32_t both = part.is_k ? 0x7fff7fff : 0;
    return {both, both, both, both};
  }
  // Of the cache.
  static __device__ __forceinline__ Global<uint8_t>* place(const Part& part, const Unit& unit,
                                                           int column, int i) {
    const int64_t head = i / kUnitKeys;
    const int key = unit.within + i % kUnitKeys;
    int64_t at = unit.page * part.page + head * part.head;
    if (part.column)
      at += int64_t(key / kOfChunk) * part.chunk + column * part.column + key % kOfChunk;
    else
      at += int64_t(key) * part.seq + column / kOfChunk * part.chunk + column % kOfChunk;
    return (Global<uint8_t>*)part.cache + at * kBytes;
  }
  static __device__ __forceinline__ float scale(const Part& part, int i) {
    if (!part.scales) return part.scale;
    return ((const Global<float>*)part.scales)[i / kUnitKeys * part.scale_head];
  }
  // Eight elements as the cache has them: 16 bytes, or 8 in the lower half.
  static __device__ __forceinline__ u32x4 raw(const Part& part, const Global<uint8_t>* from) {
    constexpr int kOfWord = 4 / kBytes;
    if (part.column) {
      const int step = part.column * kBytes;
      u32x4 x = {};
      for (int n = 0; n < kColumns; ++n) {
        const auto* at = from + n * step;
        const uint32_t one = kFp8 ? *at : *(const Global<uint16_t>*)at;
        x[n / kOfWord] |= one << n % kOfWord * 8 * kBytes;
      }
      return x;
    }
    if constexpr (!kFp8) return global_load_dwordx4(from);
    const u32x2 x = global_load_dwordx2(from);
    return {x[0], x[1], 0, 0};
  }
  static __device__ __forceinline__ void put(const Part& part, Global<uint8_t>* to, u32x4 x) {
    constexpr int kOfWord = 4 / kBytes;
    if (part.column) {
      const int step = part.column * kBytes;
      for (int n = 0; n < kColumns; ++n) {
        const uint32_t one = x[n / kOfWord] >> n % kOfWord * 8 * kBytes;
        if constexpr (kFp8)
          to[n * step] = uint8_t(one);
        else
          *(Global<uint16_t>*)(to + n * step) = uint16_t(one);
      }
    } else {
      store_bytes<kColumns * kBytes>(to, x);
    }
  }
  // As attention reads them: those of 8 bits widened, which is exact. Their scale is that of
  // scores, or of what attention comes to.
  static __device__ __forceinline__ u32x4 as_read(u32x4 x) {
    if constexpr (!kFp8) return x;
    const bf16x4 a = widened<kElement>(x[0]), b = widened<kElement>(x[1]);
    return {a[0], a[1], b[0], b[1]};
  }
  static __device__ __forceinline__ u32x4 load(const Part& part, const Unit& unit, int column,
                                               int i) {
    return as_read(raw(part, place(part, unit, column, i)));
  }
  static __device__ __forceinline__ void store(const Part& part, int max_rows, const Unit& unit,
                                               int column, int i, u32x4 x) {
    const int64_t head = i / kUnitKeys, row = unit.row + i % kUnitKeys;
    auto* to = (Global<uint16_t>*)part.rows;
    global_store_dwordx4(to + (head * max_rows + row) * part.columns + column, x);
  }
  // The nth of the new rows, to the cache; and as attention reads it.
  static __device__ __forceinline__ u32x4 append(RowsArguments& args, const Part& part,
                                                 const Unit& unit, int column, int i, int nth) {
    const int64_t head = i / kUnitKeys;
    const auto* row = (const Global<uint16_t>*)part.added + unit.batch * part.added_batch +
                      head * part.added_head + int64_t(nth) * part.added_seq;
    Angles angles = angles_of(args);
    if (!part.is_k) angles.cos = 0;
    u32x4 x = turned_by<kElement>(angles, row, column, unit.first + i % kUnitKeys);
    if constexpr (kFp8) {
      const float inverse = 1 / scale(part, i);
      x = {fp8_of<kElement>(half_of(x, 0), inverse), fp8_of<kElement>(half_of(x, 1), inverse), 0,
           0};
    }
    if (unit.page != kNoPage) put(part, place(part, unit, column, i), x);
    return as_read(x);
  }
};
