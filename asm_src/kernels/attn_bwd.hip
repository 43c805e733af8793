// Attention backward: dK, dV of a block of keys of one head, and its share of dQ. The build defines
// KERNEL (its name), HEAD_DIM, HEAD_DIM_V, WAVE_TILES (tiles of 16 keys of a wave), ELEMENT, and
// for a step in an order of its own ORDERED, with TURNS if it adds to dQ in the order of blocks.
// Grid: x = batch * num_heads_kv * key_blocks * splits.
#include "attn_bwd/ordered_loop.h"

#ifndef ORDERED
#define ORDERED false
#endif
#ifndef TURNS
#define TURNS false
#endif
using S = BackwardShape<HEAD_DIM, HEAD_DIM_V, WAVE_TILES, Element::ELEMENT, ORDERED, TURNS>;

template <bool kOrdered>
struct Loop {
  using Type = Backward<S>;
};
template <>
struct Loop<true> {
  using Type = OrderedLoop<S>;
};

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(S::kLanes, 1) KERNEL(AttnBwdArgs args) {
  __shared__ u32x4 lds[S::kLdsBytes / sizeof(u32x4)];
  int id = __builtin_amdgcn_workgroup_id_x();
  if (TURNS || (!ORDERED && args.turns != 0)) id = take_ticket(args, (Local<int>*)lds);
  Loop<ORDERED>::Type(args, id, (Local<char>*)lds)();
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {S::kKeys, S::kRows};
