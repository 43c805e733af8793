// Reductions across a wave, most of them across its lane groups: the four lanes that share a
// fragment column.
#pragma once
#include "isa/ds.h"
#include "isa/valu.h"
#include "tile/fragment.h"

// Whether it holds in some lane of the wave; uniform.
__device__ __forceinline__ bool any_lane(bool holds) {
  return __builtin_amdgcn_ballot_w64(holds) != 0;
}

// The value of the lane whose index differs in bit `kMask`.
template <int kMask>
__device__ __forceinline__ float lane_xor(float x) {
  return ds_bpermute_b32((Lane::in_wave() ^ kMask) * 4, x);
}

__device__ __forceinline__ float max_over_groups(float x) {
  x = v_max_f32(x, lane_xor<16>(x));
  return v_max_f32(x, lane_xor<32>(x));
}

__device__ __forceinline__ float sum_over_groups(float x) {
  x += lane_xor<16>(x);
  return x + lane_xor<32>(x);
}
