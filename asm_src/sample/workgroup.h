// What all lanes of a workgroup come to, by LDS; each call ends behind a barrier of its own.
#pragma once
#include "isa/dpp_scan.h"
#include "isa/uniform.h"

// Where what has been added up is what is wanted, or more.
struct Crossing {
  int at;           // the first one; as many as there are: nowhere
  uint64_t before;  // what those in front of it come to
};

template <int kLanes>
struct Workgroup {
  static constexpr int kWaves = kLanes / kWaveLanes;
  struct Lds {
    uint64_t of_waves[kWaves];
    Crossing found;
  };
  Local<Lds>* lds;

  template <class With>
  __device__ __forceinline__ uint64_t all(uint64_t x, With with) const {
    to_waves(scanned(x, with));
    uint64_t found = lds->of_waves[0];
    for (int wave = 1; wave < kWaves; ++wave) found = with(found, lds->of_waves[wave]);
    return found;
  }
  __device__ __forceinline__ uint64_t greatest(uint64_t x) const {
    return all(x, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
  }
  __device__ __forceinline__ uint64_t sum(uint64_t x) const {
    return all(x, [](uint64_t a, uint64_t b) { return a + b; });
  }
  // Of kEach numbers of each lane, those of the first lane first. `wanted` is more than 0.
  template <int kEach>
  __device__ __forceinline__ Crossing crossing(const uint64_t (&x)[kEach], uint64_t wanted) const {
    uint64_t own = 0;
    for (int i = 0; i < kEach; ++i) own += x[i];
    uint64_t before = scanned(own, [](uint64_t a, uint64_t b) { return a + b; });
    to_waves(before);
    uint64_t all = 0;
    before -= own;
    for (int wave = 0; wave < kWaves; ++wave) {
      if (wave < Lane::wave()) before += lds->of_waves[wave];
      all += lds->of_waves[wave];
    }
    if (all < wanted) return {kLanes * kEach, all};
    if (before < wanted && wanted <= before + own) {
      int at = Lane::in_workgroup() * kEach;
      for (int i = 0; i < kEach - 1; ++i) {
        if (before + x[i] >= wanted) break;
        before += x[i];
        ++at;
      }
      lds->found.at = at;
      lds->found.before = before;
    }
    join();
    return {uniform(lds->found.at), lds->found.before};
  }
  // LDS that was written is there for all lanes.
  static __device__ __forceinline__ void join() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
  }

 private:
  __device__ __forceinline__ void to_waves(uint64_t scanned) const {
    join();
    if (Lane::in_wave() == kWaveLanes - 1) lds->of_waves[Lane::wave()] = scanned;
    join();
  }
  template <int kFrom, int kRows>
  static __device__ __forceinline__ uint64_t moved(uint64_t x) {
    const uint32_t low = v_mov_b32_dpp<kFrom, kRows>(int(uint32_t(x)));
    const uint32_t high = v_mov_b32_dpp<kFrom, kRows>(int(uint32_t(x >> 32)));
    return uint64_t(high) << 32 | low;
  }
  // What all lanes of a wave up to each one come to, as in tile/scan.h; 0 changes nothing.
  template <class With>
  static __device__ __forceinline__ uint64_t scanned(uint64_t x, With with) {
    constexpr int kAll = 0xf, kOddRows = 0xa, kUpperRows = 0xc;
    x = with(x, moved<kRowShr<1>, kAll>(x));
    x = with(x, moved<kRowShr<2>, kAll>(x));
    x = with(x, moved<kRowShr<4>, kAll>(x));
    x = with(x, moved<kRowShr<8>, kAll>(x));
    x = with(x, moved<kRowBcast15, kOddRows>(x));
    return with(x, moved<kRowBcast31, kUpperRows>(x));
  }
};
