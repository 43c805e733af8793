// Sums over the parts along k of a tile, through memory, in the order of the parts. Nobody waits
// for a workgroup that has not started; the last one to arrive has the sums.
#pragma once
#include "gemm/arrival.h"
#include "gemm_tiles/products.h"
#include "isa/acc.h"
#include "isa/ordered_acc.h"
#include "isa/wait.h"

template <class S>
struct TileSplits {
  static constexpr int kFragment = 4096, kQuarter = 1024;  // bytes of a wave's sums
  static constexpr int kWaveTile = S::kFragments * kFragment, kTileBytes = S::kWaves * kWaveTile;
  static constexpr int kAtOnce = 4;  // fragments that are added side by side

  const GemmTilesArgs& args;
  int tile, part, wave, lane;
  Local<int>* arrived;  // in LDS

  // Whether this workgroup is the last one of its tile to arrive; then accumulation registers have
  // the sums over all parts.
  __device__ __forceinline__ bool reduce() const {
    store();
    if (!arrive()) return false;
    if (Lane::in_workgroup() == 0) ordered::global_store_dwordx2_sc1(counter(), 0, 0);
    s_barrier();  // all have read how many arrived: the LDS is the epilogue's
    unroll<(S::kFragments + kAtOnce - 1) / kAtOnce>([&]<int group>() { add<group * kAtOnce>(); });
    ordered::s_nop<4>();  // between accumulation registers and what stores them
    return true;
  }

 private:
  __device__ __forceinline__ uint64_t counter() const { return args.counters + uint64_t(tile) * 8; }
  __device__ __forceinline__ int parts() const { return -args.batches; }
  // The wave's sums of a part.
  __device__ __forceinline__ uint64_t sums_of(int nth) const {
    return args.partials + (int64_t(tile) * parts() + nth) * kTileBytes + wave * kWaveTile;
  }
  // Written through, so that the release finds little to write back.
  __device__ __forceinline__ void store() const {
    const uint64_t own = sums_of(part);
    unroll<4 * S::kFragments>([&]<int quarter>() {
      constexpr int kNear = quarter % 4 * kQuarter;
      ordered::global_store_dwordx4_acc_sc1<4 * quarter, kNear>(own + quarter / 4 * kFragment,
                                                                lane * 16);
    });
  }
  // What the workgroup wrote is there before it is counted; whether all others have been. Then what
  // they wrote is there, too.
  __device__ __forceinline__ bool arrive() const {
    release();    // by each wave what it wrote
    s_barrier();  // all waves have
    if (Lane::in_workgroup() == 0) {
      uint64_t before;
      // Raised first: what a launch that was aborted left behind is of an older generation.
      ordered::global_atomic_umax_x2(counter(), 0, args.generation << kGenerationBit);
      ordered::global_atomic_add_x2_return(before, counter(), 0, 1);
      acquire(before);
      *arrived = int(before & kArrivals);
    }
    s_barrier();  // the count is in LDS
    return __builtin_amdgcn_readfirstlane(*arrived) == parts() - 1;
  }
  // The parts of fragments from kFirst on, one after the other: all of a part are under way at
  // once.
  template <int kFirst>
  __device__ __forceinline__ void add() const {
    constexpr int kCount = S::kFragments - kFirst < kAtOnce ? S::kFragments - kFirst : kAtOnce;
    f32x4 sums[4 * kCount];
    for (auto& sum : sums) sum = f32x4{};
    for (int nth = 0; nth < parts(); ++nth) {
      const uint64_t its = sums_of(nth) + kFirst * kFragment;
      u32x4 brought[4 * kCount];
      const uint32_t offset = lane * 16;
      unroll<4 * kCount>([&]<int quarter>() {
        ordered::global_load_dwordx4_sc1<quarter % 4 * kQuarter>(
            brought[quarter], its + quarter / 4 * kFragment, offset);
      });
      ordered::keep(offset);
      ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      unroll<4 * kCount>([&]<int quarter>() {
        ordered::settle(brought[quarter]);
        const f32x4 x = __builtin_bit_cast(f32x4, brought[quarter]);
        sums[quarter] = nth == 0 ? x : sums[quarter] + x;
      });
    }
    unroll<4 * kCount>([&]<int quarter>() {
      const u32x4 words = __builtin_bit_cast(u32x4, sums[quarter]);
      unroll<4>([&]<int i>() { v_accvgpr_write_b32<4 * (4 * kFirst + quarter) + i>(words[i]); });
    });
  }
};
