// Keys and values of a wave: 16 at a time, which lie in one page, through a descriptor of their
// rows. What is behind the last one reads as 0, as columns beyond the head's do.
#pragma once
#include "decode/rotary.h"
#include "decode/work.h"
#include "isa/buffer_x2.h"
#include "isa/global.h"
#include "isa/unroll.h"
#include "tile/buffer.h"

template <class S>
struct Chunk {
  bf16x8 k[S::kKeyTiles][S::kKSteps];
  u32x4 v[S::kKeyTiles][S::kKeysOfLane][S::kPanels];  // of a panel of 64 columns the first half
};

template <class S>
class Cache {
 public:
  __device__ __forceinline__ Cache(Arguments& of, const Segment& segment)
      : all_args(of), batch_(segment.batch), length_(length_of(of, segment.batch)) {
    Arguments& args = of;
    head_ = segment.inner / args.row_tiles;
    appends_ = args.k_new != 0;
    writes_ = segment.inner - head_ * args.row_tiles == 0;
    row_ = batch_;
    if (args.cache_batch_idx) row_ = ((Constant<int32_t>*)args.cache_batch_idx)[batch_];
    row_ = min_of(max_of(row_, 0), args.num_pages - 1);
    k_ = args.k + head_ * args.k_head * 2;
    v_ = args.v + head_ * args.v_head * 2;
    table_ = 0;
    if (args.block_table) {
      table_ = args.block_table + int64_t(batch_) * args.table_stride * 4;
    } else {
      k_ += row_ * args.k_page * 2;
      v_ += row_ * args.v_page * 2;
    }
    for (int c = 0; c < S::kKSteps; ++c) {
      const int column = k_column(c);
      k_offset_[c] = column < args.head_dim ? (matrix_row() * args.k_seq + column) * 2 : kOutside;
    }
    for (int j = 0; j < S::kKeysOfLane; ++j)
      for (int p = 0; p < S::kPanels; ++p) {
        const int column = v_column(p);
        v_offset_[j][p] = column < args.head_dim_v
                              ? ((4 * lane_group() + j) * args.v_seq + column) * 2
                              : kOutside;
      }
  }
  __device__ __forceinline__ const Length& length() const { return length_; }

  // Of the keys from `key` on those before `end`.
  __device__ __forceinline__ void load(Chunk<S>& to, int key, int end) const {
    Arguments& args = all_args;
    const int last = min_of(end, length_.old);
    unroll<S::kKeyTiles>([&]<int n>() {
      const int first = key + n * kMatrix, rows = max_of(min_of(last - first, kMatrix), 0);
      const Place at = place(first);
      const BufferResource k =
          raw_buffer((const Global<void>*)at.k, bytes(rows, args.k_seq, args.head_dim));
      const BufferResource v =
          raw_buffer((const Global<void>*)at.v, bytes(rows, args.v_seq, args.head_dim_v));
      for (int c = 0; c < S::kKSteps; ++c) to.k[n][c] = buffer_load_dwordx4(k, k_offset_[c]);
      unroll<S::kPanels>([&]<int p>() {
        for (int j = 0; j < S::kKeysOfLane; ++j) {
          if constexpr (S::each(p) == 8) {
            to.v[n][j][p] = buffer_load_dwordx4(v, v_offset_[j][p]);
          } else {
            const u32x2 half = buffer_load_dwordx2(v, v_offset_[j][p]);
            to.v[n][j][p] = u32x4{half[0], half[1], 0, 0};
          }
        }
      });
    });
  }

  // What is appended of those keys, also to the cache.
  __device__ __forceinline__ void append(Chunk<S>& to, int key, int end) const {
    if (!appends_ || end <= length_.old || key + S::kKeys <= length_.old) return;
    Arguments& args = anew(all_args);
    unroll<S::kKeyTiles>([&]<int n>() {
      const int first = key + n * kMatrix;
      const Place at = place(first);
      const int own = first + matrix_row(), nth = own - length_.old;
      if (nth >= 0 && own < end) {
        const auto* from = (const Global<uint16_t>*)args.k_new + batch_ * args.k_new_batch +
                           head_ * args.k_new_head + int64_t(nth) * args.k_new_seq;
        for (int c = 0; c < S::kKSteps; ++c) {
          const int column = k_column(c);
          if (column >= args.head_dim) continue;
          to.k[n][c] = turned<S::kElement>(args, from, column, own);
          if (writes_) global_store_dwordx4((Global<uint8_t>*)at.k + k_offset_[c], to.k[n][c]);
        }
      }
      for (int j = 0; j < S::kKeysOfLane; ++j) {
        const int key_of_v = first + 4 * lane_group() + j, nth_of_v = key_of_v - length_.old;
        if (nth_of_v < 0 || key_of_v >= end) continue;
        const auto* from = (const Global<uint16_t>*)args.v_new + batch_ * args.v_new_batch +
                           head_ * args.v_new_head + int64_t(nth_of_v) * args.v_new_seq;
        unroll<S::kPanels>([&]<int p>() {
          if (v_column(p) < args.head_dim_v) {
            auto* into = (Global<uint8_t>*)at.v + v_offset_[j][p];
            if constexpr (S::each(p) == 8) {
              to.v[n][j][p] = global_load_dwordx4(from + v_column(p));
              if (writes_) global_store_dwordx4(into, to.v[n][j][p]);
            } else {
              const u32x2 half = global_load_dwordx2(from + v_column(p));
              to.v[n][j][p] = u32x4{half[0], half[1], 0, 0};
              if (writes_) *(Global<u32x2>*)into = half;
            }
          }
        });
      }
    });
  }

 private:
  struct Place {
    uint64_t k, v;
  };
  static __device__ __forceinline__ int k_column(int c) { return 32 * c + 8 * lane_group(); }
  static __device__ __forceinline__ int v_column(int p) {
    return p * S::kPanel + matrix_row() * S::each(p);
  }
  static __device__ __forceinline__ int bytes(int rows, int stride, int columns) {
    return rows > 0 ? ((rows - 1) * stride + columns) * 2 : 0;
  }
  // Of a key's row.
  __device__ __forceinline__ Place place(int key) const {
    Arguments& args = all_args;
    if (!table_) return {k_ + int64_t(key) * args.k_seq * 2, v_ + int64_t(key) * args.v_seq * 2};
    const uint32_t known = max_of(min_of(key, args.max_seqlen - 1), 0);
    const uint32_t nth = uint64_t(known) * uint32_t(args.page_reciprocal) >> 32;
    const int given = ((Constant<int32_t>*)table_)[nth];
    const int page = min_of(max_of(given, 0), args.num_pages - 1);
    const int within = key - nth * args.page_keys;
    return {k_ + (page * args.k_page + int64_t(within) * args.k_seq) * 2,
            v_ + (page * args.v_page + int64_t(within) * args.v_seq) * 2};
  }

  Arguments& all_args;
  int batch_, head_, row_;
  bool appends_, writes_;
  uint64_t k_, v_, table_;  // of the head; without pages of the row, too
  Length length_;
  uint32_t k_offset_[S::kKSteps], v_offset_[S::kKeysOfLane][S::kPanels];
};
