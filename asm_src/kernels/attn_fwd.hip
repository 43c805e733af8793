// Attention forward: O = softmax(scale * Q K^T) V and lse, for one tile of query rows of one head.
//
// Workgroup: 4 waves, one per SIMD. Each owns WAVE_ROWS rows of the tile and HEAD_DIM_V columns of
// O; all four share blocks of KEYS rows of K and V in LDS. attn/work.h picks the tile and its range
// of keys. Grid: x = whole tiles, then parts of tiles that are split along the keys.
//
//   phase, file of attn/        memory, LDS                       matrix unit      vector unit
//   prologue  first_loads.h,    Q; first blocks of K and V        S of 16 keys     reference of
//             prologue.h                                          for every tile   each row
//   loop      forward.h,        K, V two or more blocks ahead     S of unit n + 1  mask, softmax
//             steps.h           (kv_loads.h), a barrier a block   O of unit n - 1  of unit n
//   epilogue  epilogue.h,       O and lse; a split tile's parts   O of the last    O / sum, then
//             part_merge.h      are merged by the last to arrive  unit             round
//
//   registers    attn_fwd_bf16_d128_rtne of gfx942: 252 vector, 256 accumulation (512 available)
//   O^T          accumulation registers from 0: S::kAccOutput
//   Q            accumulation registers after O: S::kAccQuery; tiles that do not fit: operand.q
//   K, V         operand.k, operand.v; each is replaced right after its last use
//   S^T, P^T     operand.score, operand.p; in between softmax.x, in float32
//   rows         row.negative_ref, row.sum; all of these are members of Pipeline, attn/pipeline.h
//   LDS          stages of K and V, then one word per wave, kBaseVote: attn/lds_layout.h
//
// The loop, instruction by instruction: attn/schedules/*.txt (d128.txt for head_dim 128).
// The build defines KERNEL (its name), HEAD_DIM, HEAD_DIM_V, WAVE_ROWS, ELEMENT, ROUNDING, CAPPED
// and, unless it takes the defaults below, TARGET (instruction set), KEYS, TILE_ROWS (of an MFMA).
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
