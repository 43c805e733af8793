// Attention forward under narrow windows. The build defines KERNEL (its name), HEAD_DIM, ELEMENT
// and ROUNDING.
#include "attn/narrow.h"

namespace {
using S = NarrowShape<HEAD_DIM, Element::ELEMENT, Rounding::ROUNDING>;
}

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kWaveLanes, 2) KERNEL(AttnFwdArgs args) {
  Narrow<S> narrow(args);
  narrow();
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {S::kRows, kTile};
