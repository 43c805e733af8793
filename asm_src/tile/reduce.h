// Exchanges and reductions across a wave, most of them across its lane groups: the four lanes that
// share a column of an accumulator.
#pragma once
#include "isa/ds.h"
#include "isa/valu.h"
#include "tile/operand.h"

// Whether it holds in some lane of the wave; uniform.
__device__ __forceinline__ bool any_lane(bool holds) {
  return __builtin_amdgcn_ballot_w64(holds) != 0;
}

// What lane `lane` has.
__device__ __forceinline__ float from_lane(float x, int lane) {
  return ds_bpermute_b32(4 * lane, x);
}
__device__ __forceinline__ f32x4 from_lane(f32x4 x, int lane) {
  f32x4 there;
  for (int i = 0; i < 4; ++i) {
    const float one = x[i];  // a cast of x[i] itself would take the bits of x[0]
    there[i] = from_lane(one, lane);
  }
  return there;
}
// The lane whose number differs in the bits of kMask.
template <int kMask, class T>
__device__ __forceinline__ T from_lane_xor(T x) {
  return from_lane(x, Lane::in_wave() ^ kMask);
}

__device__ __forceinline__ float max_over_groups(float x) {
  x = v_max_f32(x, from_lane_xor<16>(x));
  return v_max_f32(x, from_lane_xor<32>(x));
}

template <class T>
__device__ __forceinline__ T sum_over_groups(T x) {
  x += from_lane_xor<16>(x);
  return x + from_lane_xor<32>(x);
}
