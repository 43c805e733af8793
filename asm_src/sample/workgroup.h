// What all lanes of a workgroup come to, by LDS; each call ends behind a barrier of its own.
#pragma once
#include "isa/ds.h"
#include "isa/uniform.h"

template <int kLanes>
struct Workgroup {
  static constexpr int kWaves = kLanes / kWaveLanes;
  Local<uint64_t>* of_waves;  // kWaves of them

  template <class With>
  __device__ __forceinline__ uint64_t all(uint64_t x, With with) const {
#pragma clang loop unroll(full)
    for (int mask = 1; mask < kWaveLanes; mask *= 2) x = with(x, there(x, mask));
    join();
    if (Lane::in_wave() == 0) of_waves[Lane::wave()] = x;
    join();
    uint64_t found = of_waves[0];
    for (int wave = 1; wave < kWaves; ++wave) found = with(found, of_waves[wave]);
    return found;
  }
  __device__ __forceinline__ uint64_t greatest(uint64_t x) const {
    return all(x, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
  }
  __device__ __forceinline__ uint64_t sum(uint64_t x) const {
    return all(x, [](uint64_t a, uint64_t b) { return a + b; });
  }
  // LDS that was written is there for all lanes.
  static __device__ __forceinline__ void join() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
  }

 private:
  static __device__ __forceinline__ uint64_t there(uint64_t x, int mask) {
    const int from = (Lane::in_wave() ^ mask) * 4;
    const uint32_t low = __builtin_amdgcn_ds_bpermute(from, int(uint32_t(x)));
    const uint32_t high = __builtin_amdgcn_ds_bpermute(from, int(uint32_t(x >> 32)));
    return uint64_t(high) << 32 | low;
  }
};
