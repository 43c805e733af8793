// Attention forward. One code object per member of the family: the build defines KERNEL (its name),
// HEAD_DIM, HEAD_DIM_V, WAVE_ROWS, ELEMENT, ROUNDING, CAPPED and, if they are not the first ones,
// whose instructions the schedule follows from, TARGET, the keys of a block, KEYS, and the rows of
// a matrix instruction, TILE_ROWS.
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
