// Keys and values of a wave: 16 at a time, which lie in one page, through a descriptor of their
// rows. What is behind the last one reads as 0, as columns beyond the head's do.
#pragma once
#include "decode/chunk.h"
#include "decode/quantize.h"
#include "decode/work.h"
#include "isa/unroll.h"
#include "isa/wait_memory.h"
#include "tile/buffer.h"
#include "tile/reduce.h"

template <class S>
class Cache {
 public:
  __device__ __forceinline__ Cache(Arguments& of, const Segment& segment)
      : all_args(of), batch_(segment.batch), length_(segment.length) {
    Arguments& args = of;
    // Under way together, where each would be a trip of its own.
    wanted(args.k, args.v, args.k_page, args.v_page, args.k_head, args.v_head, args.k_seq,
           args.v_seq, args.head_dim, args.head_dim_v, args.block_table, args.table_stride,
           args.num_pages, args.cache_batch_idx, args.page_keys, args.page_reciprocal,
           args.max_seqlen, args.k_new);
    head_ = segment.head;
    appends_ = args.k_new != 0;
    writes_ = segment.row_tile == 0;
    row_ = batch_;
    if (args.cache_batch_idx) row_ = ((Constant<int32_t>*)args.cache_batch_idx)[batch_];
    // Of a row that is not there no key is read: the segment ends before it begins.
    const bool has_row = args.block_table || is_within(row_, args.num_pages);
    if (!(has_row && length_.are_known())) report_index();
    spoil_ = 0;
    first_ = length_.first + segment.first * S::kTileKeys + Lane::wave() * S::kKeys;
    step_ = segment.step * S::kTileKeys;
    end_ = has_row ? min_of(length_.first + segment.end * S::kTileKeys, length_.all) : 0;
    whole_ = max_of(min_of(end_, length_.old) - S::kKeys + 1 - length_.seen, 0);
    k_ = args.k + head_ * args.k_head * S::kBytes;
    v_ = args.v + head_ * args.v_head * S::kBytes;
    table_ = 0;
    if (args.block_table) {
      table_ = args.block_table + int64_t(batch_) * args.table_stride * 4;
    } else {
      k_ += row_ * args.k_page * S::kBytes;
      v_ += row_ * args.v_page * S::kBytes;
    }
    look_up(args, 0);
    // Loaded for all lanes, not where one needs them.
    const int k_seq = args.k_seq, dim = args.head_dim, dim_v = args.head_dim_v;
    const int v_seq = S::kPacked ? args.v_chunk : args.v_seq,
              v_step = S::kPacked ? args.v_column : 1;
    for (int load = 0; load < S::kKLoads; ++load) {
      const int column = S::column_of_load(load);
      const int chunk = S::kPacked ? column / S::kOfLoad * args.k_chunk : column;
      k_offset_[load] = column < dim ? (matrix_row() * k_seq + chunk) * S::kBytes : kOutside;
    }
    for (int load = 0; load < S::kVLoads; ++load) {
      const int column = v_column(load), key = S::kKeysOfLane * lane_group() + S::v_key(load);
      v_offset_[load] =
          column < dim_v ? (key_offset(key, v_seq) + column * v_step) * S::kBytes : kOutside;
    }
    if constexpr (S::kFp8) {
      k_scale_ = scale(args.k_scales, args.k_scale_head, args.k_scale);
      v_scale_ = scale(args.v_scales, args.v_scale_head, args.v_scale);
    }
  }
  __device__ __forceinline__ const Length& length() const { return length_; }
  // What elements of K and V are to be multiplied by.
  __device__ __forceinline__ float k_scale() const { return S::kFp8 ? k_scale_ : 1; }
  __device__ __forceinline__ float v_scale() const { return S::kFp8 ? v_scale_ : 1; }
  // To be added to sums: NaN if a page of old keys that the wave has is not there, else 0.
  __device__ __forceinline__ float spoil() const { return spoil_; }
  // Keys of the wave begin there, the next turn's so many behind them; those of the segment end.
  __device__ __forceinline__ int first() const { return first_; }
  __device__ __forceinline__ int step() const { return step_; }
  __device__ __forceinline__ int end() const { return end_; }

  // The keys from `key` on, which are those of turn `turn`: of one behind the last that was loaded.
  // All of K first: what is computed of it takes as long as V is under way.
  __device__ __forceinline__ void load(Chunk<S>& to, int key, int turn) {
    // Which waits for all that is under way: not for keys that are behind the last.
    if (turn > 0 && turn % kTurns == 0 && key < end_) look_up(anew(all_args), turn);
    load_k(to, key, turn);
    load_v(to, key, turn);
  }
  // Of any turn; before the first one again `begin_anew` with the turn behind the last.
  __device__ __forceinline__ void load_anew(Chunk<S>& to, int key, int turn) {
    if (turn >= kTurns) look_up(anew(all_args), turn / kTurns * kTurns);
    load_k(to, key, turn);
    load_v(to, key, turn);
  }
  __device__ __forceinline__ void begin_anew(int turn) {
    if (turn > kTurns) look_up(anew(all_args), 0);
  }
  __device__ __forceinline__ void load_k(Chunk<S>& to, int key, int turn) const {
    Arguments& args = all_args;
    unroll<S::kKeyTiles>([&]<int n>() {
      const int rows = rows_of(key, n), nth = turn % kTurns * S::kKeyTiles + n;
      const int size = S::kPacked ? kAllBytes : uniform(bytes(rows, args.k_seq, args.head_dim));
      const BufferResource k = raw_buffer((const Global<void>*)of_lane(at_.k, nth), size);
      const bool is_there = !S::kPacked || matrix_row() < rows;
      for (int load = 0; load < S::kKLoads; ++load)
        to.k[n][load] = load_bytes<kLoadBytes>(k, is_there ? k_offset_[load] : kOutside);
    });
  }
  __device__ __forceinline__ void load_v(Chunk<S>& to, int key, int turn) const {
    Arguments& args = all_args;
    unroll<S::kKeyTiles>([&]<int n>() {
      const int rows = rows_of(key, n), nth = turn % kTurns * S::kKeyTiles + n;
      const int size = S::kPacked ? kAllBytes : uniform(bytes(rows, args.v_seq, args.head_dim_v));
      const BufferResource v = raw_buffer((const Global<void>*)of_lane(at_.v, nth), size);
      const bool is_there = !S::kPacked || S::kKeysOfLane * lane_group() < rows;
      unroll<S::kVLoads>([&]<int load>() {
        to.v[n][load] = load_bytes<S::v_bytes(load)>(v, is_there ? v_offset_[load] : kOutside);
      });
    });
  }

  // From there on a turn may have keys that are appended; the end if there are none.
  __device__ __forceinline__ int old_end() const {
    return appends_ ? min_of(length_.old - S::kKeys + 1, end_) : end_;
  }

  // Keys that are as loaded, without what is not theirs.
  __device__ __forceinline__ void complete(Chunk<S>& to, int key) const {
    const int end = end_;
    if constexpr (S::kFp8 && !S::kPacked)
      if (all_args.head_dim % S::kOfLoad) trim(to);
    if (uint32_t(key - length_.seen) < whole_) return;
    if constexpr (S::kPacked)
      if (key + S::kKeys > min_of(length_.old, end))
        unroll<S::kKeyTiles>([&]<int n>() {
          const int first = key + n * kMatrix + S::kKeysOfLane * lane_group();
          to.template clear_behind<n>(min_of(length_.old, end) - first);
        });
    // What no query sees is no term of a sum: 0 * NaN is NaN.
    if (__builtin_expect(key < length_.seen, false))
      unroll<S::kKeyTiles>([&]<int n>() {
        const int first = key + n * kMatrix + S::kKeysOfLane * lane_group();
        to.template clear_before<n>(length_.seen - first);
      });
  }
  // What is appended of them, also to the cache.
  __device__ __forceinline__ void append(Chunk<S>& to, int key) const {
    const int end = end_;
    Arguments& args = anew(all_args);
    unroll<S::kKeyTiles>([&]<int n>() {
      const int first = key + n * kMatrix;
      Place at = place_of_key(args, first);
      at.is_there &= writes_;
      append_k<n>(args, to, at, first, end);
      append_v<n>(args, to, at, first, end);
    });
    // Where the ways meet the compiler waits for what either may have left pending: were stores
    // among it, for all, the loads of the next keys, too.
    s_waitcnt_vmcnt_0();
  }

 private:
  static constexpr int kTurns = kWaveLanes / S::kKeyTiles;  // whose pages a wave knows
  struct Place {
    uint64_t k, v;
    bool is_there = true;
  };
  // Of a load of V.
  static __device__ __forceinline__ int v_column(int load) {
    const int panel = S::kPacked ? 0 : load % S::kPanels;
    if (S::kPacked) return load * kMatrix + matrix_row();
    if (S::kFp8) return panel * S::kPanel + matrix_row() % 8 * S::kOfLoad;
    return panel * S::kPanel + matrix_row() * S::each(panel);
  }
  // Of a key from the first of 16, by the distance of keys or of chunks of them.
  static __device__ __forceinline__ int key_offset(int key, int step) {
    if (!S::kPacked) return key * step;
    return key / S::kOfLoad * step + key % S::kOfLoad;
  }
  // Keys of the nth 16 from `key` on that are in the cache. The compiler bounds by a vector
  // instruction: descriptors would be of lanes.
  __device__ __forceinline__ int rows_of(int key, int nth) const {
    const int last = min_of(end_, length_.old);
    return uniform(max_of(min_of(last - key - nth * kMatrix, kMatrix), 0));
  }
  static __device__ __forceinline__ int bytes(int rows, int stride, int columns) {
    return rows > 0 ? ((rows - 1) * stride + columns) * S::kBytes : 0;
  }
  __device__ __forceinline__ float scale(uint64_t scales, int step, float of_all) const {
    return scales ? ((Constant<float>*)scales)[head_ * step] : of_all;
  }
  static __device__ __forceinline__ int nth_page(Arguments& args, int key) {
    const uint32_t known = max_of(min_of(key, args.max_seqlen - 1), 0);
    return uint64_t(known) * uint32_t(args.page_reciprocal) >> 32;
  }
  static __device__ __forceinline__ int page_that_is(Arguments& args, int given) {
    return min_of(max_of(given, 0), args.num_pages - 1);
  }
  // Where the keys of the turns from `turn` on are: 16 of them in a lane. No pages behind the last.
  __device__ __forceinline__ void look_up(Arguments& args, int turn) {
    const int nth = turn + Lane::in_wave() / S::kKeyTiles;
    const int key = first_ + nth * step_ + Lane::in_wave() % S::kKeyTiles * kMatrix;
    if (!table_) {
      at_ = place(args, 0, key);
      return;
    }
    const int page = nth_page(args, key < end_ ? key : min_of(first_, end_ - 1));
    const int given = ((const Global<int32_t>*)table_)[page];
    const bool is_missing = key < end_ && !is_within(given, args.num_pages);
    if (any_lane(is_missing)) {
      report_index();
      if (any_lane(is_missing && key < length_.old)) spoil_ = __builtin_nanf("");
    }
    at_ = place(args, page_that_is(args, given), key - page * args.page_keys);
  }
  static __device__ __forceinline__ uint64_t of_lane(uint64_t x, int lane) {
    return uint64_t(uint32_t(__builtin_amdgcn_readlane(uint32_t(x >> 32), lane))) << 32 |
           uint32_t(__builtin_amdgcn_readlane(uint32_t(x), lane));
  }
  __device__ __forceinline__ Place place(Arguments& args, int page, int within) const {
    const int64_t v_within =
        S::kPacked ? int64_t(within / S::kOfLoad) * args.v_chunk : int64_t(within) * args.v_seq;
    return {k_ + (page * args.k_page + int64_t(within) * args.k_seq) * S::kBytes,
            v_ + (page * args.v_page + v_within) * S::kBytes};
  }
  // For what is not under way: a trip to the table.
  __device__ __forceinline__ Place place_of_key(Arguments& args, int key) const {
    if (!table_) return place(args, 0, key);
    const int nth = nth_page(args, key), given = ((Constant<int32_t>*)table_)[nth];
    Place found = place(args, given, key - nth * args.page_keys);
    found.is_there = is_within(given, args.num_pages);
    return found;
  }

  // The last load of a row of K has 8 columns of 16: others are of the next row.
  __device__ __forceinline__ void trim(Chunk<S>& to) const {
    for (int load = 0; load < S::kKLoads; ++load) {
      const bool is_whole = S::column_of_load(load) + S::kOfStep < all_args.head_dim;
      for (int n = 0; n < S::kKeyTiles; ++n)
        for (int word = 2; word < 4; ++word)
          to.k[n][load][word] = is_whole ? to.k[n][load][word] : 0;
    }
  }

  template <int n>
  __device__ __forceinline__ void append_k(Arguments& args, Chunk<S>& to, const Place& at,
                                           int first, int end) const {
    const int own = first + matrix_row(), nth = own - length_.old;
    if (nth < 0 || own >= end) return;
    const auto* from = (const Global<uint16_t>*)args.k_new + batch_ * args.k_new_batch +
                       head_ * args.k_new_head + int64_t(nth) * args.k_new_seq;
    unroll<S::kKSteps>([&]<int step>() {
      const int column = S::column_of_step(step);
      if (column >= args.head_dim) return;
      const bf16x8 x = turned<S::kElement>(args, from, column, own);
      constexpr int kLoad = step * S::kOfStep / S::kOfLoad,
                    kHalf = step % (S::kOfLoad / S::kOfStep);
      auto* into = (Global<uint8_t>*)at.k + k_offset_[kLoad] + kHalf * S::kOfStep;
      if constexpr (S::kFp8) {
        const float inverse = 1 / k_scale_;
        const u32x4 made = {fp8_of<S::kElement>(half_of(x, 0), inverse),
                            fp8_of<S::kElement>(half_of(x, 1), inverse), 0, 0};
        to.k[n][kLoad][2 * kHalf] = made[0];
        to.k[n][kLoad][2 * kHalf + 1] = made[1];
        if (at.is_there) store_bytes<S::kOfStep>(into, made);
      } else {
        to.k[n][kLoad] = x;
        if (at.is_there) store_bytes<kLoadBytes>(into, x);
      }
    });
  }
  template <int n>
  __device__ __forceinline__ void append_v(Arguments& args, Chunk<S>& to, const Place& at,
                                           int first, int end) const {
    constexpr int kSteps = S::kPacked ? S::kKeysOfLane : S::kVRows;
    unroll<kSteps>([&]<int j>() {
      const int key = S::kPacked ? j : S::v_key(j * S::kPanels);
      const int own = first + S::kKeysOfLane * lane_group() + key, nth = own - length_.old;
      if (nth < 0 || own >= end) return;
      const auto* from = (const Global<uint16_t>*)args.v_new + batch_ * args.v_new_batch +
                         head_ * args.v_new_head + int64_t(nth) * args.v_new_seq;
      constexpr int kLoads = S::kPacked ? S::kProducts : S::kPanels;
      unroll<kLoads>([&]<int p>() {
        constexpr int load = S::kPacked ? p : j * S::kPanels + p;
        const int column = v_column(load);
        if (column >= args.head_dim_v) return;
        auto* into = (Global<uint8_t>*)at.v + v_offset_[load];
        if constexpr (S::kPacked) {
          put_element<j>(to.v[n][load], from[column], into, at.is_there);
        } else {
          put_columns<S::each(p), 0>(to.v[n][load], from + column, into, at.is_there);
          constexpr int kNext = S::kOfStep;
          if (S::kFp8 && column + kNext < args.head_dim_v)
            put_columns<kNext, 1>(to.v[n][load], from + column + kNext, into + kNext, at.is_there);
        }
      });
    });
  }
  // Key j of four of a column.
  template <int j>
  __device__ __forceinline__ void put_element(u32x4& to, uint32_t x, Global<uint8_t>* into,
                                              bool writes) const {
    constexpr int kOfWord = 4 / S::kBytes, kWord = j / kOfWord,
                  kShift = j % kOfWord * 8 * S::kBytes;
    if constexpr (S::kFp8) x = fp8_of<S::kElement>(bf16x4{x, 0}, 1 / v_scale_) & 0xff;
    constexpr uint32_t kMask = (S::kFp8 ? 0xffu : 0xffffu) << kShift;
    to[kWord] = (to[kWord] & ~kMask) | x << kShift;
    if (!writes) return;
    if constexpr (S::kFp8)
      into[j] = uint8_t(x);
    else
      ((Global<uint16_t>*)into)[j] = uint16_t(x);
  }
  // The first columns of a load, or of 8 bits the next ones.
  template <int kCount, int kHalf>
  __device__ __forceinline__ void put_columns(u32x4& to, const Global<uint16_t>* from,
                                              Global<uint8_t>* into, bool writes) const {
    u32x4 x = {};
    if constexpr (kCount == 8) {
      x = global_load_dwordx4(from);
    } else {
      const u32x2 half = global_load_dwordx2(from);
      x = {half[0], half[1], 0, 0};
    }
    if constexpr (S::kFp8) {
      const float inverse = 1 / v_scale_;
      for (int word = 0; word < 2; ++word) {
        x[word] = fp8_of<S::kElement>(half_of(x, word), inverse);
        to[2 * kHalf + word] = x[word];
      }
    } else {
      to = x;
    }
    if (writes) store_bytes<kCount * S::kBytes>(into, x);
  }

  Arguments& all_args;
  int batch_, head_, row_;
  bool appends_, writes_;
  float spoil_;
  int first_, step_, end_;  // keys
  uint32_t whole_;          // from how many on behind the first seen not all of a turn are old
  Place at_;                // of the lane's 16 keys
  uint64_t k_, v_, table_;  // of the head; without pages of the row, too
  Length length_;
  float k_scale_, v_scale_;
  uint32_t k_offset_[S::kKLoads], v_offset_[S::kVLoads];
};
