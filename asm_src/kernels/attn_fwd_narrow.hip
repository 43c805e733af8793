// Attention forward under windows of at most 129 keys a row: O = softmax(scale * Q K^T) V and lse.
//
// Workgroup: one wave, two of them a SIMD. It has 16 rows of q of up to 4 heads that share a head
// of keys, one head after the other, and the 144 keys that those rows see. No LDS, no barrier.
//
//   phase    memory              matrix unit          vector unit
//   start    Q; K and V, all
//   head     Q of the next head  S^T = K Q^T          mask, the row's maximum, exponentials, sum
//                                O^T += V^T P^T       P truncated
//   end      O, lse                                   O / sum, sink, rounded
//   anew     Q, K, V again: heads with elements that are not finite, `carefully`
//
//   registers                    255 to 256 vector registers, no accumulation registers
//   K, V         NarrowKeys::k[tile of 16 keys][octet], v[tile][16 columns]: narrow_keys.h
//   Q            Query::octets; S, P and O: Narrow::score[tile], o[16 columns]: narrow.h
//
// The compiler's order: there is no schedule. The build defines KERNEL (its name), HEAD_DIM,
// ELEMENT and ROUNDING. Grid: x = tiles, or parts of their heads.
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
