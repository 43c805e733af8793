// Attention forward with a window of at most 129 keys per row: O = softmax(scale * Q K^T) V, lse.
//
// Workgroup: one wave; two fit on a SIMD. It owns 16 query rows of up to 4 heads that share a KV
// head, one head after the other, and holds all 144 keys that those rows can see in registers.
// Grid: x = tiles, or parts of a tile's heads.
//
//   phase        memory              matrix unit          vector unit
//   start        Q; all K and V
//   each head    Q of the next head  S^T = K Q^T          mask, row maximum, exponentials, sum;
//                                    O^T += V^T P^T       P is truncated
//                O, lse                                   O / sum, sink, round
//   carefully    Q, K, V once more   both again           heads with a result that is not finite
//
//   registers    255 to 256 vector registers, no accumulation registers; no LDS, no barrier
//   K, V         k[tile of 16 keys][octet], v[tile][16 columns]: NarrowKeys, attn/narrow_keys.h
//   Q, S, P, O   Query::octets, score[tile], a local of output(), o[16 columns]: attn/narrow.h
//
// The compiler schedules it. The build defines KERNEL (its name), HEAD_DIM, ELEMENT and ROUNDING.
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
