// Attention backward, one block of keys of one head. With P = exp(scale * Q K^T - lse) and
// dS = P * (dO V^T - delta): dV = P^T dO, dK = scale * dS^T Q, and dQ += scale * dS K.
// attn_bwd_rows.hip computes lse and delta; dQ is float32 and rounded by attn_bwd_round.hip.
//
// Workgroup: 4 waves. Each owns WAVE_TILES tiles of 16 keys with their dK and dV, and a quarter of
// the columns of dQ. One step is a tile of 16 query rows (32 on gfx950); the last tile comes first.
// Grid: x = batch * num_heads_kv * key_blocks * splits.
//
//   step n    matrix unit                     vector unit        memory, LDS
//             S and dP of tile n              P, dS; dS to LDS   tile n + 1 to LDS
//             dV += P^T dO, dK += dS^T Q                         Q, dO of tile n + 2 from memory
//             dQ of tile n - 1 = dS K                            dQ: atomic adds
//             one barrier (two with a single LDS stage): a step reads what the one before wrote
//
//   registers   attn_bwd_bf16_d128 of gfx942: 208 vector, 256 accumulation (512 available)
//   K, V        k, v: operands of S and dP; k_columns: K by columns, operand of dQ
//   dK, dV      dk, dv; if ORDERED accumulation registers from kDk and kDv, K by columns from kK
//   S, dP       s, dp; rounded: p_of, ds_of; lse and delta: next_sums, or lse and minus_delta
//   LDS         stages of Q and dO by rows and by columns, then dS twice: attn_bwd/shape.h
//
// Schedule: of ORDERED members (head_dim 64 and 128 without softcap) attn_bwd/step_order.h, loop in
// ordered_loop.h, LDS in step_lds.h; of others the compiler's, loop in backward.h. With TURNS
// blocks of keys add to dQ in order (turns.h). The build defines KERNEL (its name), HEAD_DIM,
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
