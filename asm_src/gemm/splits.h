// Sums over the parts along k of a tile, through memory: in the order of the parts, or as they
// come. Nobody waits for a workgroup that has not started; the last one to arrive has the sums.
#pragma once
#include "gemm/late_args.h"
#include "gemm/stream.h"
#include "isa/wait.h"

// What a tile's counter holds: the number of the launch, whether parts may be added to the tile's
// sums in memory, how many parts have arrived.
inline constexpr int kArrivals = 0xffff, kOpenBit = 16, kGenerationBit = 17;

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
  static __device__ __forceinline__ uint64_t opened(const LateArgs& args) {
    return args.generation << kGenerationBit | 1 << kOpenBit;
  }

  // By one lane of the workgroup, without a branch of lanes, behind which the compiler might copy
  // what has not come yet: the others ask beyond the end of a buffer.
  __device__ __forceinline__ void issue(uint64_t write, uint64_t find, uint64_t counter, int wave,
                                        int lane) {
    word = both(write, find);
    ordered::buffer_atomic_cmpswap_x2_return(word, lane == 0 ? 0 : kOutside,
                                             uniform_descriptor(counter, wave == 0 ? 8 : 0));
  }
  __device__ __forceinline__ void issue(const LateArgs& args, uint64_t counter, int wave,
                                        int lane) {
    issue(opened(args), 0, counter, wave, lane);
  }
  // By the wave that claimed, when its loads are done: returns when sums may be added to.
  __device__ __forceinline__ void wait(const LateArgs& args, uint64_t counter, uint64_t sums,
                                       int bytes, int lane) {
    ordered::settle(word);
    const uint64_t open = opened(args);
    uint64_t found = uniform(word[0], word[1]);
    if (found == 0 || found >> kOpenBit == open >> kOpenBit) return;
    if (found >> kGenerationBit != args.generation) {
      issue(args.generation << kGenerationBit, found, counter, 0, lane);
      ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      ordered::settle(word);
      if (uniform(word[0], word[1]) == found) {
        for (int at = lane * 16; at < bytes; at += kWaveLanes * 16)
          ordered::global_store_dwordx4_sc1(sums + at, u32x4{});
        ordered::s_waitcnt<0, ordered::kAnyLgkm>();
        if (lane == 0) ordered::global_store_dwordx2_sc1(counter, open);
        return;
      }
    }
    do {  // the one that clears them is running
      __builtin_amdgcn_s_sleep(1);
      ordered::global_load_dwordx2_sc1(found, counter);
      ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      ordered::settle(found);
    } while (uniform(found, found >> 32) >> kOpenBit != open >> kOpenBit);
  }
};

template <class S>
struct Splits {
  using Sums = f32x4[S::kOwned];          // of the fragments that the wave finishes
  static constexpr int kFragment = 1024;  // bytes
  static constexpr int kWaveTile = S::kFragments * kFragment, kTileBytes = kWaveTile * S::kWavesM;

  const LateArgs& args;
  int splits, tile, split, wave, lane;
  Local<int>* arrived;  // in LDS

  static __device__ __forceinline__ uint64_t counter(const LateArgs& args, int tile) {
    return args.counters + uint64_t(tile) * 8;
  }
  __device__ __forceinline__ int wave_m() const { return wave / S::kWavesK; }
  __device__ __forceinline__ int wave_k() const { return wave % S::kWavesK; }

  // Before the barrier in front of `reduce`.
  __device__ __forceinline__ void prepare(Claim<S>& claim) const {
    if (args.adding && wave == 0)
      claim.wait(args, counter(args, tile), args.partials + uint64_t(tile) * kTileBytes, kTileBytes,
                 lane);
  }
  // Whether this workgroup is the last one of its tile to arrive; then it has the sums over all
  // parts.
  __device__ __forceinline__ bool reduce(Sums& sums) const {
    return args.adding ? add(sums) : in_order(sums);
  }

 private:
  // What the workgroup wrote is there before it is counted; whether all others have been.
  __device__ __forceinline__ bool arrive() const {
    ordered::s_waitcnt<0, ordered::kAnyLgkm>();
    s_barrier();
    if (Lane::in_workgroup() == 0) {
      uint64_t before;
      // Raised first: what a launch that was aborted left behind is of an older generation.
      if (!args.adding)
        ordered::global_atomic_umax_x2(counter(args, tile), args.generation << kGenerationBit);
      ordered::global_atomic_add_x2_return(before, counter(args, tile), 1);
      ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      ordered::settle(before);
      *arrived = int(before & kArrivals);
    }
    s_barrier();
    return __builtin_amdgcn_readfirstlane(*arrived) == splits - 1;
  }
  __device__ __forceinline__ void reset() const {
    if (Lane::in_workgroup() == 0) ordered::global_store_dwordx2_sc1(counter(args, tile), 0);
  }

  __device__ __forceinline__ bool in_order(Sums& sums) const {
    const uint64_t first =
        args.partials + uint64_t(tile) * splits * kTileBytes + wave_m() * kWaveTile + lane * 16;
    S::owned(wave_k(), [&](int o, int f) {
      ordered::global_store_dwordx4_sc1(first + uint64_t(split) * kTileBytes + f * kFragment,
                                        __builtin_bit_cast(u32x4, sums[o]));
    });
    if (!arrive()) return false;
    reset();
    // All fragments of a few parts at a time: the wait is for memory.
    constexpr int kAtOnce = S::kOwned > 2 ? 2 : 8 / S::kOwned;
    for (int s = 0; s < splits; s += kAtOnce) {
      u32x4 part[kAtOnce][S::kOwned];
      for (int p = 0; p < kAtOnce; ++p) {
        const int from = s + p < splits ? s + p : splits - 1;
        S::owned(wave_k(), [&](int o, int f) {
          ordered::global_load_dwordx4_sc1(part[p][o],
                                           first + uint64_t(from) * kTileBytes + f * kFragment);
        });
      }
      ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      for (int p = 0; p < kAtOnce; ++p)
        S::owned(wave_k(), [&](int o, int) {
          ordered::settle(part[p][o]);
          const f32x4 x = __builtin_bit_cast(f32x4, part[p][o]);
          if (s + p == 0)
            sums[o] = x;
          else if (s + p < splits)
            sums[o] += x;
        });
    }
    return true;
  }

  // The last one takes the sums and leaves 0 in their place, and only then opens the tile to the
  // next launch.
  __device__ __forceinline__ bool add(Sums& sums) const {
    const uint64_t first =
        args.partials + uint64_t(tile) * kTileBytes + wave_m() * kWaveTile + lane * 4;
    const auto address = [&](int f, int i) { return first + f * kFragment + i * (kFragment / 4); };
    S::owned(wave_k(), [&](int o, int f) {
      for (int i = 0; i < 4; ++i) ordered::global_atomic_add_f32(address(f, i), sums[o][i]);
    });
    if (!arrive()) return false;
    uint32_t taken[S::kOwned][4];
    S::owned(wave_k(), [&](int o, int f) {
      for (int i = 0; i < 4; ++i) ordered::global_atomic_swap_return(taken[o][i], address(f, i), 0);
    });
    ordered::s_waitcnt<0, ordered::kAnyLgkm>();
    S::owned(wave_k(), [&](int o, int) {
      for (int i = 0; i < 4; ++i) {
        ordered::settle(taken[o][i]);
        sums[o][i] = __builtin_bit_cast(float, taken[o][i]);
      }
    });
    s_barrier();
    reset();
    return true;
  }
};
