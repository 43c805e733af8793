// The prologue of attention forward: constants, a reference for each row, the scores of the first
// unit and its operands.
#pragma once
#include "attn/first_loads.h"

template <class S, bool kExact>
struct Prologue : FirstLoads<S> {
  using Loads = FirstLoads<S>;
  using Loads::args, Loads::group, Loads::lane, Loads::loop, Loads::padded_q;
  using Loads::row, Loads::wave, Loads::wave_row, Loads::work;
  using typename Loads::Loop;
  static constexpr int kN = S::kTilesQ;

  // Inherited constructors are not inlined at once, and the objects would differ.
  __device__ __forceinline__ Prologue(const AttnFwdArgs& arguments, Arguments* again, uint32_t id,
                                      uint32_t lds)
      : Loads(arguments, again, id, lds) {}

  Global<uint16_t>* o;  // the lane's first element of the wave's first tile

  __device__ __forceinline__ void set_constants([[maybe_unused]] bool can_overflow) {
    Uniform& u = loop.uniform;
    u.scale = args.softmax_scale_log2;
    if (__builtin_expect(args.scales != 0, false)) u.scale = head_scales(args, work.head_kv).scores;
    if constexpr (S::kCapped) {
      const float cap = args.softcap_log2;
      u.cap_rate = uniform_float(2 * kLog2E * u.scale * v_rcp_f32(cap));
      u.scale = -2 * cap;
    }
    u.low_halves = kLowHalfOfBoth;
    u.high_halves = kHighHalfOfBoth;
    u.top = S::kTop + S::kLog2Bias;
    const int log2_keys = S::kLog2Keys + 33 - __builtin_clz(work.end - work.first);
    u.limit =
        S::kWide ? __builtin_bit_cast(float, (127 + S::log2_limit(log2_keys - 1)) << 23) : 65504.0f;
    if constexpr (kExact) {
      // Every sum is beyond the limit. If need be, no sum of probabilities is greater than 1, by
      // the rounding of references neither, so that those of products with V cannot overflow.
      u.top = uniform_float(can_overflow ? 0.0f : -float(log2_keys));
      u.limit = -1;
    } else {  // in registers over the loop
      ordered::settle_uniform(u.limit);
      ordered::settle_uniform(u.low_halves);
      ordered::settle_uniform(u.high_halves);
    }
    this->set_offsets();
  }

  __device__ __forceinline__ void set_mask() {
    const int first = work.first * S::kKeys;
    const int diagonal = wave_row + row + work.diagonal - first - 4 * group, far = 1 << 30;
    loop.mask.keys = work.keys - first - 4 * group;
    loop.mask.to = args.window_right < 0 ? far : diagonal + args.window_right + 1;
    loop.mask.from = args.window_left < 0 ? -far : diagonal - args.window_left;
    ordered::settle(loop.mask.keys);
    ordered::settle(loop.mask.to);
    ordered::settle(loop.mask.from);
  }

  // ---- References. The greatest of the first 16 scores is a row's reference. In turn t the matrix
  // unit has tile t, the vector unit those before; tile t + kTilesAhead is on its way, and then the
  // second block of keys. Windows of matrix instructions from a tile's last one to its scaling, to
  // the exchanges over the lanes of a row, and to the end:
  // Scores may be read 7 instructions behind the matrix unit's last, 11 where it has 32 rows: where
  // turns are short, those of other tiles' exchanges are among them.
  static constexpr int kExchanges = S::kGroups / 2, kFirstKeys = 16 / S::kGroups;  // of a lane
  static constexpr int kToScale = S::kStepsD > 8 || S::kTile == 32 ? 6 : S::kCapped ? 3 : 2;
  static constexpr int kToFirst = kToScale + 2, kToSecond = kToFirst + 4;
  static constexpr int kToLast = kExchanges == 2 ? kToSecond : kToFirst, kToEnd = kToLast + 5;
  static constexpr int kTilesAhead = least(kN, 4), kWindows = S::kStepsD;
  static constexpr int kLoadsOfBlock = S::kLoadsV + S::kLoadsToLds;
  // Of the second block, in the turns before window w of this one: evenly over two or three turns,
  // behind the first one, which finds the block.
  static constexpr int kFirstLoads = most(kN - 2, 1),
                       kLoadWindows = (kN + 1 - kFirstLoads) * kWindows;
  // Direct ones: a block in each of the first turns, but for the one whose stage the loop fills.
  // Where loads of V are a block later than those of K, K of that one, too.
  static constexpr int kFurtherBlocks = S::kStages - 2;
  static constexpr int loads_of_block(int turn, int w) {
    if (S::kDirect) return 0;
    const int windows = (turn - kFirstLoads) * kWindows + w;
    return most(0, least(kLoadsOfBlock, windows * kLoadsOfBlock / kLoadWindows));
  }
  static constexpr int loads_since(int t) {  // behind those of tile t when turn t begins
    const int behind = S::kDirect ? least(t, kFurtherBlocks) * kLoadsOfBlock : loads_of_block(t, 0);
    return (least(t + kTilesAhead, kN) - t - 1) * S::kReadsK + behind;
  }
  static constexpr int kTurns = kN + 1 + kToEnd / kWindows;
  // Of which tile a window is so many behind; none: -1.
  static constexpr int tile_at(int turn, int w, int behind) {
    const int windows = turn * kWindows + w - behind, tile = windows / kWindows - 1;
    return windows >= kWindows && windows % kWindows == 0 && tile < kN ? tile : -1;
  }
  // Between the last exchange of a tile and its end. In a window second ones come first.
  static constexpr int exchanges_since(int tile) {
    int n = 0;
    const int begin = (tile + 1) * kWindows, exchange = begin + kToLast, end = begin + kToEnd;
    for (int w = exchange; w < end; ++w)
      n += ((w > exchange || kExchanges == 2) && tile_at(0, w, kToFirst) >= 0) +
           (w > exchange && kExchanges == 2 && tile_at(0, w, kToSecond) >= 0);
    return n;
  }
  struct References {
    FloatVector<S::kAccRegs> score[kN];
    float scaled[kN][kFirstKeys], max[kN], other[kN];
    const Global<uint8_t>* from;
  };

  __device__ __forceinline__ void find_references(bool masked) {
    References r;
    unroll<kTurns>([&]<int turn>() {
      if constexpr (turn < kN) {
        ordered::s_waitcnt<kExact ? 0 : loads_since(turn), ordered::kAnyLgkm>();
        if constexpr (turn >= S::kTilesQAcc)
          for (auto& octet : loop.operand.q[turn - S::kTilesQAcc]) ordered::settle(octet);
      }
      unroll<kWindows>([&]<int w>() {
        if constexpr (turn == 0 && w % S::kOperandsOf16 == 0)
          ordered::s_waitcnt<ordered::kAnyVm,
                             least(14, S::kHalves * S::kReadsK - 1 - w / S::kOperandsOf16)>();
        // With more tiles an exchange has been waited for, and with it what was read before.
        if constexpr (kN == 2 && S::kHalves == 2 && turn == kN && w == 0)
          ordered::s_waitcnt<ordered::kAnyVm, 0>();
        if constexpr (turn < kN) loop.template multiply_keys<turn, S::kHalves * w>(r.score[turn]);
        if constexpr (turn == kN && S::kHalves == 2)
          loop.template multiply_keys<0, 2 * w + 1>(loop.operand.score[0][1]);
        load_more<turn, w>(r);
        // Those of the second unit, where they are not those of the first one.
        if constexpr (Loop::Plan::kLone && turn == kN)
          loop.lds.template read_keys<1, w>(loop.operand);
        reduce<turn, w>(r, masked);
      });
    });
    loop.operand.score[0][0] = r.score[0];
  }
  template <int block, int w>
  __device__ __forceinline__ void load_further() {
    constexpr bool kKeysOnly = block > kFurtherBlocks;
    if constexpr (w == 0) {
      unroll<Loop::Plan::kNextBlockOps>([&]<int n>() {
        constexpr bool kOfV = n == 1 || n >= 8;
        if constexpr (!kKeysOnly || !kOfV) loop.load.template next_block_in_order<n>();
      });
      loop.load.m0 ^= S::kStage << (block % 2 == 0);
    }
    constexpr int kLoads = kKeysOnly ? S::kLoadsK : S::kLoadsToLds;
    unroll_from<w * kLoads / kWindows, (w + 1) * kLoads / kWindows>([&]<int n>() {
      loop.load.template set_m0<n>();
      ordered::s_nop<1>();
      loop.load.template load_k<n>();
    });
  }
  template <int turn, int w>
  __device__ __forceinline__ void load_more(References& r) {
    if constexpr (S::kDirect && turn < kFurtherBlocks + S::kLagsV) load_further<turn + 1, w>();
    constexpr int tile = turn + kTilesAhead, kReads = S::kReadsK;
    if constexpr (tile < kN) {
      if constexpr (w == 0) r.from = this->template find_q<tile>();
      if (__builtin_expect(!padded_q, true))
        unroll_from<w * kReads / kWindows, (w + 1) * kReads / kWindows>(
            [&]<int octet>() { this->template load_q<tile, octet>(r.from); });
    }
    if constexpr (turn == 0 && !S::kDirect)
      unroll_from<w * Loop::Plan::kNextBlockOps / kWindows,
                  (w + 1) * Loop::Plan::kNextBlockOps / kWindows>(
          [&]<int n>() { loop.load.template next_block<n>(); });
    unroll_from<loads_of_block(turn, w), loads_of_block(turn, w + 1)>([&]<int n>() {
      // First what the loop waits for first.
      constexpr int k = Loop::Plan::kShort ? n : n - S::kLoadsV;
      constexpr int v = Loop::Plan::kShort ? n - S::kLoadsK : n;
      if constexpr (v >= 0 && v < S::kLoadsV) loop.load.template load_v<v>();
      if constexpr (k >= 0 && k < S::kLoadsToLds) {
        loop.load.template set_m0<k>();
        ordered::s_nop<1>();
        loop.load.template load_k<k>();
      }
    });
  }
  template <int turn, int w>
  __device__ __forceinline__ void reduce(References& r, bool masked) {
    constexpr int halves[2] = {tile_at(turn, w, kToScale), tile_at(turn, w, kToScale + 1)};
    constexpr int first = tile_at(turn, w, kToFirst), last = tile_at(turn, w, kToEnd);
    constexpr int second = kExchanges == 2 ? tile_at(turn, w, kToSecond) : -1;
    if constexpr (second >= 0)
      ordered::s_waitcnt<ordered::kAnyVm, 0>();
    else if constexpr (last >= 0)
      ordered::s_waitcnt<ordered::kAnyVm, exchanges_since(last)>();
    if constexpr (last >= 0)
      loop.row.negative_ref[last] =
          loop.uniform.top - ordered::v_max_f32(r.max[last], r.other[last]);
    if constexpr (second >= 0) {
      r.max[second] = ordered::v_max_f32(r.max[second], r.other[second]);
      r.other[second] = ordered::ds_bpermute_b32(4 * lane ^ 4 * 32, r.max[second]);
    }
    unroll<2>([&]<int half>() {
      constexpr int tile = halves[half];
      if constexpr (tile >= 0) {
        if constexpr (half == 0) {
          // No other tile's are beside the last one's.
          if constexpr (S::kHalves == 1)
            ordered::s_nop<Here::kWaitOf8Passes - (tile == kN - 1 ? 0 : 6)>();
          ordered::settle(r.score[tile]);  // those that are not read, too
          for (int i = 0; i < kFirstKeys; ++i) r.scaled[tile][i] = r.score[tile][i];
          if constexpr (S::kCapped) loop.cap(r.scaled[tile]);
        }
        for (int i = half * kFirstKeys / 2; i < (half + 1) * kFirstKeys / 2; ++i)
          r.scaled[tile][i] = ordered::v_mul_f32(loop.uniform.scale, r.scaled[tile][i]);
      }
    });
    if constexpr (first >= 0) {
      auto& x = r.scaled[first];
      if (__builtin_expect(masked, false)) {
        const auto keys =
            loop.mask.template further_down<typename Softmax<S>::Seen, first * S::kTile, 0>();
        for (int i = 0; i < kFirstKeys; ++i)
          if (!keys.has(S::key(i))) x[i] = -kInf;
      }
      float max = ordered::v_max_f32(x[0], x[1]);
      for (int i = 2; i < kFirstKeys; i += 2) max = ordered::v_max3_f32(x[i], x[i + 1], max);
      r.max[first] = max;
      r.other[first] = ordered::ds_bpermute_b32(4 * lane ^ 4 * S::kTile, max);
    }
  }

  // The unit before the first one has probabilities 0.
  static __device__ __forceinline__ void zero(float& x) {
    x = 0;
    ordered::settle(x);  // here, where the wave waits anyway
  }
  __device__ __forceinline__ void zero_sums() {
    for (float& sum : loop.row.sum) zero(sum);
    for (float& sum : loop.row.sample) zero(sum);
    for (float& sum : loop.row.rounded_sample) zero(sum);
  }
  __device__ __forceinline__ void zero_operands() {
    for (auto& step : loop.operand.v)
      for (auto& octet : step) octet = bf16x8{};
    for (auto& step : loop.operand.p[S::set_of(-1)]) step = {};
    zero(loop.row.unit_sum);
    zero(loop.row.unit_rounded_sample);
    zero(loop.softmax.x[kSampled]);
    for (auto& step : loop.operand.p[S::set_of(-1)]) ordered::settle(step);
    for (auto& step : loop.operand.v)
      for (auto& octet : step) ordered::settle(octet);
  }

  __device__ __forceinline__ void prologue(uint32_t lds, bool can_overflow) {
    this->find_q_rows();
    if (__builtin_expect(!padded_q, true)) this->template load_tile<0>();
    set_constants(can_overflow);
    this->load_first();
    zero_sums();
    set_mask();
    if constexpr (Loop::Plan::kPrefetches > 0) this->set_prefetch();
    o = output_row(args, work, wave_row + row) + S::column_of_group(group);
    ordered::settle(o);
    if constexpr (S::kResidents == 1) ordered::ds_write_b32(lds + S::kBaseVote + 4 * wave, 0.0f);
    const auto load_tiles = [&] {
      if (__builtin_expect(!padded_q, true))
        unroll_from<1, kTilesAhead>([&]<int t>() { this->template load_tile<t>(); });
    };
    if constexpr (S::kDirect) load_tiles();
    // For K and V, whichever way Q was loaded.
    ordered::s_waitcnt<S::kDirect ? loads_since(0) : 0, ordered::kAnyLgkm>();
    if constexpr (!S::kDirect) {
      load_tiles();
      unroll<Loop::Plan::kTransposes>(
          [&]<int n>() { loop.load.template transpose<n>(kLowHalfOfBoth, kHighHalfOfBoth); });
      unroll<S::kWidthV / 2>(
          [&]<int n>() { loop.lds.template write_values<n>(loop.load.transposed); });
    }
    zero_operands();
    ordered::s_waitcnt<ordered::kAnyVm, 0>();
    // Every wave has waited for its share: the first block of K and V is in LDS.
    ordered::s_barrier();
    if constexpr (!S::kDirect) loop.load.m0 ^= S::kStageK;
    unroll<S::kHalves * S::kReadsK>([&]<int n>() {  // one half of the keys, then the other
      constexpr int half = n / S::kReadsK, octet = n % S::kReadsK;
      loop.lds.template read_keys<0, octet * S::kHalves + half>(loop.operand);
    });
    if constexpr (Loop::Plan::kLone) {
      loop.lds.read_v ^= 2 * S::kStage;  // the loop begins with a change of both
    } else if constexpr (S::kDirect) {
      if (Loop::Plan::kReadsAhead)
        for (auto& address : loop.lds.read_k) address ^= S::kStage;
    } else if constexpr (!Loop::Plan::kFlipsFirst) {
      for (auto& address : loop.lds.read_k) address ^= S::kStageK;
      loop.lds.write_v ^= S::kStageV;
    }
    find_references(work.full_first > work.first || work.full_end == work.full_first);
    if constexpr (S::kDirect && Loop::Plan::kReadsAhead) {  // the second block is in LDS
      constexpr int kBehind = (S::kStages - 3) * kLoadsOfBlock + S::kLagsV * S::kLoadsK;
      ordered::s_waitcnt<kBehind, Loop::Plan::kLone ? 0 : ordered::kAnyLgkm>();
      ordered::s_barrier();
    }
  }
};
