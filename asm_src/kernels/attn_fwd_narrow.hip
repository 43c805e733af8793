// Attention forward under narrow windows. The build defines KERNEL (its name), HEAD_DIM, ELEMENT
// and ROUNDING.
#include "attn/narrow.h"

namespace {
using S = NarrowShape<HEAD_DIM, Element::ELEMENT, Rounding::ROUNDING>;
}

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kWaveLanes, 2) KERNEL(AttnFwdArgs args) {
  const uint64_t careful = Narrow<S>(args)();
  if (__builtin_expect(__builtin_amdgcn_ballot_w64(careful != 0) == 0, true)) return;
  auto* from = read_again((Arguments*)__builtin_amdgcn_kernarg_segment_ptr());
  Narrow<S>(*(const AttnFwdArgs*)from).carefully(careful);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {S::kRows, kMatrix};
