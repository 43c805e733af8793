// The order of the tiles of up to 64 sequences of several lengths, most keys first, found by each
// wave itself: a lane has a sequence, and the nth tile's class of keys is searched for by counting
// the tiles of at least so many keys, in closed form for each sequence.
#pragma once
#include "isa/device.h"
#include "isa/dpp_scan.h"

class TileOrder {
  static constexpr int kTopClass = 32;  // classes of keys are less than 64
  static constexpr int kFar = 1 << 29;

  const int tile_rows, class_log2;
  int tiles;
  int most;    // keys of a tile
  int before;  // of the sequence's first tile: how many keys less than a tile's rows it sees

 public:
  int q_base, kv_base, rows, keys;  // the lane's sequence, after find_tile the tile's

  template <class Args>
  __device__ __forceinline__ TileOrder(const Args& args, int rows_of_tile)
      : tile_rows(rows_of_tile), class_log2(args.num_heads_q_shift) {
    const int lane = Lane::in_wave(), at = smaller(lane, args.batch);
    const int next = smaller(lane + 1, args.batch);
    const auto* q = (const Global<int32_t>*)args.cu_seqlens_q;
    const auto* kv = (const Global<int32_t>*)args.cu_seqlens_kv;
    q_base = q[at];
    kv_base = kv[at];
    rows = greater(q[next] - q_base, 0);
    keys = greater(kv[next] - kv_base, 0);
    tiles = uint32_t(smaller(rows, args.seqlen_q) + tile_rows - 1) / uint32_t(tile_rows);
    const int left = args.window_left, right = args.window_right;
    const int diagonal = args.top_left ? 0 : keys - rows;
    // A window's width, whatever is cut off at its ends: a tile's class need not be exact.
    const int width = smaller(left, kFar) + smaller(right, kFar) + tile_rows + 1;
    most = smaller(smaller(keys, args.seqlen_kv), left < 0 || right < 0 ? kFar : width);
    before = right < 0 ? kFar : diagonal + smaller(right, kFar) + 1;
  }

  // Of the sequences together those of a class or one of more keys.
  __device__ __forceinline__ int count(int least_class) const {
    return of_last_lane(sum_upto(count_here(least_class)));
  }

  // The nth one: which of its sequence. If there are not so many, one without rows.
  __device__ __forceinline__ int find_tile(int nth) {
    int of = 0, others = 0;  // its class, and how many tiles have greater ones
#pragma clang loop unroll(disable)
    for (int bit = kTopClass; bit > 0; bit >>= 1) {
      const int tried = of | bit, many = count(tried);
      if (many > nth)
        of = tried;
      else
        others = many;
    }
    const int longer = count_here(of + 1), here = count_here(of) - longer;
    const int upto = sum_upto(here), in_class = nth - others;
    const uint64_t found = __builtin_amdgcn_ballot_w64(upto > in_class);
    if (found == 0) {
      rows = keys = q_base = kv_base = 0;
      return 0;
    }
    const int lane = __builtin_ctzll(found);
    q_base = __builtin_amdgcn_readlane(q_base, lane);
    kv_base = __builtin_amdgcn_readlane(kv_base, lane);
    rows = __builtin_amdgcn_readlane(rows, lane);
    keys = __builtin_amdgcn_readlane(keys, lane);
    // The last ones have most keys.
    const int last = tiles - 1 - longer + upto - here;
    return __builtin_amdgcn_readlane(last, lane) - in_class;
  }

 private:
  static __device__ __forceinline__ int smaller(int a, int b) { return a < b ? a : b; }
  static __device__ __forceinline__ int greater(int a, int b) { return a > b ? a : b; }
  // Tile t has min(most, (t + 1) * tile_rows + before) keys.
  __device__ __forceinline__ int count_here(int least_class) const {
    const int least = least_class << class_log2;
    const int fewer = uint32_t(greater(least - before - 1, 0)) / uint32_t(tile_rows);
    const int some = tiles - smaller(fewer, tiles);
    return least_class == 0 ? tiles : least > most ? 0 : some;
  }
  static __device__ __forceinline__ int sum_upto(int x) {
    constexpr int kAll = 0xf, kOddRows = 0xa, kUpperRows = 0xc;
    x += v_mov_b32_dpp<kRowShr<1>, kAll>(x);
    x += v_mov_b32_dpp<kRowShr<2>, kAll>(x);
    x += v_mov_b32_dpp<kRowShr<4>, kAll>(x);
    x += v_mov_b32_dpp<kRowShr<8>, kAll>(x);
    x += v_mov_b32_dpp<kRowBcast15, kOddRows>(x);
    return x + v_mov_b32_dpp<kRowBcast31, kUpperRows>(x);
  }
  static __device__ __forceinline__ int of_last_lane(int x) {
    return __builtin_amdgcn_readlane(x, kWaveLanes - 1);
  }
};
