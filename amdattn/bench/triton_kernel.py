"""Attention forward in Triton's language, as its users write it: one workgroup for a tile of Q.

Imported only where Triton is installed. Whole tiles of K and V need no mask; the rest has one.
"""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def attention_forward(
    q,
    k,
    v,
    o,
    softmax_scale_log2,
    q_stride_batch,
    q_stride_seq,
    q_stride_head,
    k_stride_batch,
    k_stride_seq,
    k_stride_head,
    v_stride_batch,
    v_stride_seq,
    v_stride_head,
    o_stride_batch,
    o_stride_seq,
    o_stride_head,
    seqlen_q,
    seqlen_kv,
    q_heads_per_kv_head,
    CAUSAL: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    TILE_Q: tl.constexpr,
    TILE_KV: tl.constexpr,
):
    """Mask aligned at the bottom right; strides in elements, of the head dimension 1."""
    tile, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    kv_head = head // q_heads_per_kv_head
    q += batch.to(tl.int64) * q_stride_batch + head * q_stride_head
    k += batch.to(tl.int64) * k_stride_batch + kv_head * k_stride_head
    v += batch.to(tl.int64) * v_stride_batch + kv_head * v_stride_head
    o += batch.to(tl.int64) * o_stride_batch + head * o_stride_head
    rows = tile * TILE_Q + tl.arange(0, TILE_Q)
    dims = tl.arange(0, HEAD_DIM)
    seen = rows[:, None] < seqlen_q
    queries = tl.load(q + rows[:, None] * q_stride_seq + dims[None, :], mask=seen, other=0.0)
    top = tl.full([TILE_Q], -float("inf"), tl.float32)
    total = tl.zeros([TILE_Q], tl.float32)
    result = tl.zeros([TILE_Q, HEAD_DIM], tl.float32)
    shift = seqlen_kv - seqlen_q
    end = seqlen_kv
    unmasked = seqlen_kv // TILE_KV * TILE_KV
    if CAUSAL:
        end = tl.maximum(tl.minimum(end, (tile + 1) * TILE_Q + shift), 0)
        first = tl.maximum(tile * TILE_Q + shift + 1, 0)
        unmasked = tl.minimum(unmasked, first // TILE_KV * TILE_KV)
    columns = tl.arange(0, TILE_KV)
    k_tile = k + columns[None, :] * k_stride_seq + dims[:, None]
    v_tile = v + columns[:, None] * v_stride_seq + dims[None, :]
    for _ in range(0, unmasked, TILE_KV):
        scores = tl.dot(queries, tl.load(k_tile)) * softmax_scale_log2
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(weights, axis=1)
        result = result * shrink[:, None]
        result = tl.dot(weights.to(tl.bfloat16), tl.load(v_tile), result)
        top = new_top
        k_tile += TILE_KV * k_stride_seq
        v_tile += TILE_KV * v_stride_seq
    for start in range(unmasked, end, TILE_KV):
        at = start + columns
        inside = at < seqlen_kv
        keys = tl.load(k_tile, mask=inside[None, :], other=0.0)
        scores = tl.dot(queries, keys) * softmax_scale_log2
        visible = inside[None, :]
        if CAUSAL:
            visible = visible & (at[None, :] <= rows[:, None] + shift)
        scores = tl.where(visible, scores, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        # A row that has seen no key keeps -inf, and exp2(-inf - -inf) would be NaN.
        safe_top = tl.where(new_top == -float("inf"), 0.0, new_top)
        weights = tl.exp2(scores - safe_top[:, None])
        shrink = tl.exp2(top - safe_top)
        total = total * shrink + tl.sum(weights, axis=1)
        result = result * shrink[:, None]
        values = tl.load(v_tile, mask=inside[:, None], other=0.0)
        result = tl.dot(weights.to(tl.bfloat16), values, result)
        top = new_top
        k_tile += TILE_KV * k_stride_seq
        v_tile += TILE_KV * v_stride_seq
    result = result / tl.where(total == 0.0, 1.0, total)[:, None]
    out = o + rows[:, None] * o_stride_seq + dims[None, :]
    tl.store(out, result.to(tl.bfloat16), mask=seen)
