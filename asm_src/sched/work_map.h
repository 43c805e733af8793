// Which part of an attention problem a workgroup computes.
#pragma once
#include "tile/load.h"
// The kernarg header is plain C for other parsers; its fixed-width types come from device.h.
// clang-format off
#include "args/attn_fwd.h"
// clang-format on

// grid = (num_heads_q, ceil(seqlen_q / tile_q), batch). Consecutive workgroups go to the XCDs in
// turn: with the head innermost, the q tiles of a head run on few XCDs and find K, V in their L2.
struct AttnWork {
  int head_q_idx, head_kv_idx, batch_idx;
  int q_start;  // first q row

  __device__ __forceinline__ AttnWork(const AttnFwdArgs& args, int tile_q)
      : head_q_idx(__builtin_amdgcn_workgroup_id_x()),
        head_kv_idx(head_q_idx / (args.num_heads_q / args.num_heads_kv)),
        batch_idx(__builtin_amdgcn_workgroup_id_z()),
        q_start(__builtin_amdgcn_workgroup_id_y() * tile_q) {}

  // The rows of this batch element and head; q from q_start on.
  __device__ __forceinline__ RowSource q_rows(const AttnFwdArgs& args) const {
    return {(const Global<uint16_t>*)args.q + batch_idx * args.q_stride_batch +
                head_q_idx * args.q_stride_head + q_start * args.q_stride_seq,
            args.q_stride_seq, args.seqlen_q - q_start};
  }
  __device__ __forceinline__ RowSource k_rows(const AttnFwdArgs& args) const {
    return {(const Global<uint16_t>*)args.k + batch_idx * args.k_stride_batch +
                head_kv_idx * args.k_stride_head,
            args.k_stride_seq, args.seqlen_kv};
  }
  __device__ __forceinline__ RowSource v_rows(const AttnFwdArgs& args) const {
    return {(const Global<uint16_t>*)args.v + batch_idx * args.v_stride_batch +
                head_kv_idx * args.v_stride_head,
            args.v_stride_seq, args.seqlen_kv};
  }
};
