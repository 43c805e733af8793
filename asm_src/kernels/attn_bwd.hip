// Attention backward for one block of keys of one head: with P = exp(scale * Q K^T - lse) and
// dS = P * (dO V^T - delta), dV = P^T dO and dK = scale * dS^T Q, and what it adds to dQ: scale *
// dS K. lse and delta come from attn_bwd_rows.hip; dQ is float32, and rounded by attn_bwd_round.
//
// Workgroup: 4 waves. Each has WAVE_TILES tiles of 16 keys and their dK and dV; of dQ a quarter of
// the columns. A step is a tile of 16 rows of q (gfx950: 32), the last one first.
//
//   step n      matrix unit                   vector unit        memory, LDS
//               S, dP of tile n               P, dS; dS to LDS   rows of tile n + 1 to LDS
//               dV += P^T dO, dK += dS^T Q                       Q, dO of tile n + 2
//               dQ of tile n - 1 = dS K                          dQ: atomic adds, or in turns
//               one barrier (two with one stage of LDS): what is read was written a step before
//
//   registers   attn_bwd_bf16_d128 of gfx942: 208 vector, 256 accumulation; 512 there are
//   K, V        k, v: operands of S and dP; k_columns, K by columns: operand of dQ
//   dK, dV      dk, dv; ordered: accumulation registers from kDk and kDv on, K by columns from kK
//   S, dP       s, dp (or locals of scores()); P, dS of 16 bits: p_of, ds_of; rows: next_sums, lse
//   LDS         stages of Q and dO by rows and by columns, kQ to kDoColumns; dS twice, kDs: shape.h
//
// Schedule: attn_bwd/step_order.h places each instruction of ordered_loop.h (ORDERED); the others,
// backward.h, have the compiler's. TURNS: dQ in the order of blocks of keys (turns.h). Grid: x =
// batch * num_heads_kv * key_blocks * splits. The build defines KERNEL (its name), HEAD_DIM,
// HEAD_DIM_V, WAVE_TILES, ELEMENT, ORDERED and TURNS.
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
