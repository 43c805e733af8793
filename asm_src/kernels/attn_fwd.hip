// Attention forward. One code object per member of the family: the build defines KERNEL (its name),
// HEAD_DIM, HEAD_DIM_V, TILES_Q, ELEMENT, ROUNDING, CAPPED and SLACK.
#include "attn/forward.h"

namespace {
template <int kSlack, Element kProduct>
using Member = Shape<HEAD_DIM, HEAD_DIM_V, TILES_Q, Element::ELEMENT, Rounding::ROUNDING, CAPPED,
                     kSlack, kProduct>;
// Truncation is no less exact in bf16 than that of O.
using S =
    Member<SLACK, Rounding::ROUNDING == Rounding::kTowardZero ? Element::ELEMENT : Element::kF16>;
// Where V is no fp16.
using Again = Member<0, Element::ELEMENT>;
}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kWaves* kWaveLanes, 1) KERNEL(AttnFwdArgs args) {
  __shared__ u32x4 lds[S::kLdsBytes / sizeof(u32x4)];
  const auto address = (uint32_t)(Local<u32x4>*)lds;
  auto* from = (Arguments*)__builtin_amdgcn_kernarg_segment_ptr();
  const bool done = Forward<S>(args, from)(address);
  if constexpr (S::kConverts) {
    if (done) return;
    from = read_again(from);
    ordered::s_barrier();  // all waves have read what is in LDS
    Forward<Again>(*(const AttnFwdArgs*)from, from)(address);
  }
}

// Read back from the code object when the manifest is made: the launcher's only source of these.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {S::kRows, kKeys};
