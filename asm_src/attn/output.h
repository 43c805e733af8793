// What the kernels of the family write, and where it goes.
#pragma once
#include "attn/head_scales.h"
#include "attn/sink.h"
#include "isa/ordered.h"
#include "tile/round.h"

using Arguments = Constant<AttnFwdArgs>;

// Arguments to be read from memory once more: kept over a loop they would take more SGPRs than
// there are.
__device__ __forceinline__ Arguments* read_again(Arguments* from) {
  ordered::settle_uniform(from);
  return from;
}

// The first element of a row of O that the workgroup has.
template <class Args>
__device__ __forceinline__ Global<uint16_t>* output_row(const Args& args, const AttnWork& work,
                                                        int row) {
  return (Global<uint16_t>*)args.o + work.batch * args.o_stride_batch +
         work.head_q * args.o_stride_head + (work.q_base + row) * args.o_stride_seq + work.column;
}

// The log-sum-exp of a sequence's first row; those of the others follow.
template <class Args>
__device__ __forceinline__ Global<float>* lse_of_rows(const Args& args, const AttnWork& work) {
  return (Global<float>*)args.lse + work.batch * args.lse_stride_batch +
         work.head_q * args.lse_stride_head + work.q_base;
}
