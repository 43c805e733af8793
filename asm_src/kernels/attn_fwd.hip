// Attention forward. One code object per member of the family: the build defines KERNEL (its name),
// HEAD_DIM, HEAD_DIM_V, TILES_Q, ELEMENT, ROUNDING and CAPPED.
#include "attn/forward.h"

namespace {
using S = Shape<HEAD_DIM, HEAD_DIM_V, TILES_Q, Element::ELEMENT, Rounding::ROUNDING, CAPPED>;
}

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kWaves* kWaveLanes, 1) KERNEL(AttnFwdArgs args) {
  __shared__ u32x4 lds[S::kLdsBytes / sizeof(u32x4)];
  Forward<S> forward(args);
  forward((uint32_t)(Local<u32x4>*)lds);
}

// Read back from the code object when the manifest is made: the launcher's only source of these.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {S::kRows, kKeys};
