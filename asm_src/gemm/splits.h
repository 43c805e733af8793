// Sums over the parts along k of a tile, through memory: in the order of the parts, or as they
// come. Nobody waits for a workgroup that has not started; the last one to arrive has the sums.
#pragma once
#include "gemm/arguments.h"
#include "gemm/arrival.h"
#include "gemm/mainloop.h"
#include "isa/wait.h"

// Sums that parts are added to are 0 between launches, as the counter of their tile is: the first
// workgroup of a tile to start finds 0 there and opens it. Whatever else it may find is of an older
// launch, which was aborted half-way; then one of those that found it clears the sums.
template <class S>
struct Claim {
  u32x4 word;  // to write, to find; then in its first half what was found

  static __device__ __forceinline__ uint64_t uniform(uint32_t lo, uint32_t hi) {
    return uint64_t(uint32_t(__builtin_amdgcn_readfirstlane(hi))) << 32 |
           uint32_t(__builtin_amdgcn_readfirstlane(lo));
  }
  static __device__ __forceinline__ u32x4 both(uint64_t write, uint64_t find) {
    return u32x4{uint32_t(write), uint32_t(write >> 32), uint32_t(find), uint32_t(find >> 32)};
  }
  static __device__ __forceinline__ uint64_t opened(const GemmArgs& args) {
    return args.generation << kGenerationBit | 1 << kOpenBit;
  }

  // By one lane of the workgroup, without a branch of lanes, behind which the compiler might copy
  // what has not come yet: the others ask beyond the end of a buffer.
  __device__ __forceinline__ void issue(uint64_t write, uint64_t find, uint64_t counter, int wave,
                                        int lane) {
    word = both(write, find);
    const u32x4 buffer = uniform_descriptor(counter, wave == 0 ? 8 : 0);
    ordered::end_clause();
    ordered::buffer_atomic_cmpswap_x2_return(word, lane == 0 ? 0 : kOutside, buffer);
    ordered::end_clause();
  }
  __device__ __forceinline__ void issue(const GemmArgs& args, uint64_t counter, int wave,
                                        int lane) {
    issue(opened(args), 0, counter, wave, lane);
  }
  // By the wave that claimed, when its loads are done: returns when sums may be added to.
  __device__ __forceinline__ void wait(const GemmArgs& args, uint64_t counter, uint64_t sums,
                                       int bytes, int lane) {
    ordered::settle(word);
    const uint64_t open = opened(args);
    uint64_t found = uniform(word[0], word[1]);
    if (found == 0) return;
    if (found >> kOpenBit == open >> kOpenBit) {
      acquire(word);
      return;
    }
    if (found >> kGenerationBit != args.generation) {
      issue(args.generation << kGenerationBit, found, counter, 0, lane);
      acquire(word);
      if (uniform(word[0], word[1]) == found) {
        for (int at = lane * 16; at < bytes; at += kWaveLanes * 16)
          ordered::global_store_dwordx4_sc1(sums, at, u32x4{});
        release();
        if (lane == 0) ordered::global_store_dwordx2_sc1(counter, 0, open);
        return;
      }
    }
    do {  // the one that clears them is running
      __builtin_amdgcn_s_sleep(1);
      ordered::global_load_dwordx2_sc1(found, counter, 0);
      ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      ordered::settle(found);
    } while (uniform(found, found >> 32) >> kOpenBit != open >> kOpenBit);
    acquire(found);
  }
};

template <class S>
struct Splits {
  using Sums = f32x4[S::kOwned];          // of the fragments that the wave finishes
  static constexpr int kFragment = 1024;  // bytes
  static constexpr int kWaveTile = S::kFragments * kFragment, kTileBytes = kWaveTile * S::kWavesM;

  const GemmArgs& args;
  int tile, split, wave, lane;
  Local<int>* arrived;  // in LDS

  static __device__ __forceinline__ uint64_t counter(const GemmArgs& args, int tile) {
    return args.counters + uint64_t(tile) * 8;
  }
  __device__ __forceinline__ int wave_m() const { return wave / S::kWavesK; }
  __device__ __forceinline__ int wave_k() const { return wave % S::kWavesK; }

  // Before the barrier in front of `reduce`.
  __device__ __forceinline__ void prepare(Claim<S>& claim) const {
    if (args.accumulates && wave == 0)
      claim.wait(args, counter(args, tile), args.partials + uint64_t(tile) * kTileBytes, kTileBytes,
                 lane);
  }
  // Whether this workgroup is the last one of its tile to arrive; then it has the sums over all
  // parts.
  __device__ __forceinline__ bool reduce(Sums& sums) const {
    return args.accumulates ? accumulate(sums) : in_order(sums);
  }

 private:
  // What the workgroup wrote is there before it is counted; whether all others have been. Then what
  // they wrote is there, too.
  __device__ __forceinline__ bool arrive() const {
    release();    // by each wave what it wrote
    s_barrier();  // all waves have
    if (Lane::in_workgroup() == 0) {
      uint64_t before;
      // Raised first: what a launch that was aborted left behind is of an older generation.
      if (!args.accumulates)
        ordered::global_atomic_umax_x2(counter(args, tile), 0, args.generation << kGenerationBit);
      ordered::global_atomic_add_x2_return(before, counter(args, tile), 0, 1);
      acquire(before);
      *arrived = int(before & kArrivals);
    }
    s_barrier();  // the count is in LDS
    return __builtin_amdgcn_readfirstlane(*arrived) == args.num_splits - 1;
  }
  // For the next launch.
  __device__ __forceinline__ void reset() const {
    if (Lane::in_workgroup() == 0) ordered::global_store_dwordx2_sc1(counter(args, tile), 0, 0);
  }
  // Of the wave's first fragment in a tile of sums; its o-th is kApart<o> bytes on, of which an
  // instruction adds kNear<o>.
  __device__ __forceinline__ uint64_t sums_of(int64_t nth) const {
    return args.partials + nth * kTileBytes + wave_m() * kWaveTile + wave_k() * kFragment;
  }
  template <int o>
  static constexpr int kApart = o * S::kWavesK * kFragment;
  template <int o>
  static constexpr int kNear = kApart<o> % 4096;
  template <int o>
  static constexpr int kFar = kApart<o> - kNear<o>;

  // Written through, so that the release finds little to write back.
  __device__ __forceinline__ bool in_order(Sums& sums) const {
    const uint32_t offset = lane * 16;
    const int64_t first = int64_t(tile) * args.num_splits;
    const uint64_t own = sums_of(first + split);
    S::owned(wave_k(), [&]<int o>(int) {
      ordered::global_store_dwordx4_sc1<kNear<o>>(own + kFar<o>, offset,
                                                  __builtin_bit_cast(u32x4, sums[o]));
    });
    if (!arrive()) return false;
    reset();
    // All fragments of a few parts at a time: the wait is for memory.
    constexpr int kAtOnce = S::kOwned > 2 ? 2 : 8 / S::kOwned;
    uint64_t its = sums_of(first);
    for (int s = 0; s < args.num_splits; s += kAtOnce) {
      u32x4 part[kAtOnce][S::kOwned];
      for (int p = 0; p < kAtOnce; ++p) {  // behind the last part that one again
        if (s + p > 0 && s + p < args.num_splits) its += kTileBytes;
        S::owned(wave_k(), [&]<int o>(int) {
          ordered::global_load_dwordx4_sc1<kNear<o>>(part[p][o], its + kFar<o>, offset);
        });
      }
      ordered::keep(offset);
      ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      for (int p = 0; p < kAtOnce; ++p)
        S::owned(wave_k(), [&]<int o>(int) {
          ordered::settle(part[p][o]);
          const f32x4 x = __builtin_bit_cast(f32x4, part[p][o]);
          if (s + p == 0)
            sums[o] = x;
          else if (s + p < args.num_splits)
            sums[o] += x;
        });
    }
    return true;
  }

  // The last one takes the sums and leaves 0 in their place, and only then opens the tile to the
  // next launch.
  __device__ __forceinline__ bool accumulate(Sums& sums) const {
    constexpr int kElements = kFragment / 4;  // bytes of one of a lane's four results, of all lanes
    const uint32_t offset = lane * 4;
    const uint64_t all = sums_of(tile);
    S::owned(wave_k(), [&]<int o>(int) {
      unroll<4>([&]<int i>() {
        ordered::global_atomic_add_f32<kNear<o> + i * kElements>(all + kFar<o>, offset, sums[o][i]);
      });
    });
    if (!arrive()) return false;
    uint32_t taken[S::kOwned][4];
    S::owned(wave_k(), [&]<int o>(int) {
      unroll<4>([&]<int i>() {
        ordered::global_atomic_swap_return<kNear<o> + i * kElements>(taken[o][i], all + kFar<o>,
                                                                     offset, 0);
      });
    });
    ordered::keep(offset);
    ordered::s_waitcnt<0, ordered::kAnyLgkm>();
    S::owned(wave_k(), [&]<int o>(int) {
      for (int i = 0; i < 4; ++i) {
        ordered::settle(taken[o][i]);
        sums[o][i] = __builtin_bit_cast(float, taken[o][i]);
      }
    });
    s_barrier();  // all waves have taken their sums
    reset();
    return true;
  }
};
