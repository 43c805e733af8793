// Attention forward, one tile of q rows of one head: O = softmax(scale * Q K^T) V, and its lse.
//
// Workgroup: 4 waves, one a SIMD, each with WAVE_ROWS rows of the tile and HEAD_DIM_V columns of O;
// they share blocks of KEYS rows of K and V in LDS. Which tile, and which part of its keys:
// attn/work.h. Grid: x = whole tiles, then parts. Two workgroups of WAVE_ROWS 32 share a gfx942 CU.
//
//   phase      memory, LDS                     matrix unit              vector unit
//   prologue   Q; the first blocks of K, V     S of 16 keys, all tiles  a reference for each row
//   loop       K, V two blocks ahead or more;  S of unit n + 1,         softmax of unit n
//              a barrier a block               O of unit n - 1
//   epilogue   O, lse; of a part O and sums,   O of the last unit       O / sum, rounded
//              merged by the last to arrive
//
//   registers    attn_fwd_bf16_d128_rtne of gfx942: 252 vector, 256 accumulation; 512 there are
//   O^T          accumulation registers from 0 on: S::kAccOutput
//   Q            accumulation registers behind them, S::kAccQuery; what does not fit: operand.q
//   K, V         operand.k, operand.v: each replaced behind its last use
//   S^T, P^T     operand.score, operand.p; softmax.x between them, in float32
//   rows         row.negative_ref, row.sum     all of them members of Pipeline, attn/pipeline.h
//   LDS          stages of K and of V; a word of each wave, kBaseVote: attn/lds_layout.h
//
// The loop's schedule, instruction by instruction: attn/schedules/*.txt, d128.txt of head_dim 128.
// The build defines KERNEL (its name), HEAD_DIM, HEAD_DIM_V, WAVE_ROWS, ELEMENT, ROUNDING, CAPPED,
// and unless as below TARGET (whose instructions), KEYS, TILE_ROWS (of a matrix instruction).
#include "attn/forward.h"
#include "isa/uniform.h"

#ifndef TARGET
#define TARGET Cdna3
#endif
#ifndef KEYS
#define KEYS kUnitKeys
#endif
#ifndef TILE_ROWS
#define TILE_ROWS tile_rows<TARGET>(HEAD_DIM)
#endif
using S = Shape<HEAD_DIM, HEAD_DIM_V, WAVE_ROWS, Element::ELEMENT, Rounding::ROUNDING, CAPPED,
                TARGET, KEYS, TILE_ROWS>;

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kWaves* kWaveLanes, S::kResidents) KERNEL(AttnFwdArgs) {
  __shared__ u32x4 lds[S::kLdsBytes / sizeof(u32x4)];
  const auto address = (uint32_t)(Local<u32x4>*)lds;
  auto* from = (Arguments*)__builtin_amdgcn_kernarg_segment_ptr();
  const uint32_t id = __builtin_amdgcn_workgroup_id_x();
  uint32_t kept = id;
  if constexpr (S::kDirect && S::kCapped) park(kept);  // the first attempt takes all SGPRs
  if (Forward<S, false>(*(const AttnFwdArgs*)from, from, id, address)(address, true)) return;
  // Sums that overflow once more are done with smaller probabilities.
  bool done;
  int attempt = 0;
  do {
    from = read_again(from);
    ordered::s_barrier();  // all waves have read what is in LDS
    done = Forward<S, true>(*(const AttnFwdArgs*)from, from, uniform(kept), address)(address,
                                                                                     attempt == 0);
  } while (!done && ++attempt < 2);
}

// Read back from the code object when the manifest is made: the launcher's only source of these.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {S::kRows, S::kKeys};
