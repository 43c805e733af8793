"""Attention forward in Triton's language, as its users write it: one workgroup for a tile of Q.

Imported only where Triton is installed. Tiles of K and V that every row sees whole need no mask;
those before and behind them have one.
"""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def _walk(
    queries,
    top,
    total,
    result,
    k,
    v,
    k_stride_seq,
    v_stride_seq,
    begin,
    end,
    first,
    rows,
    softmax_scale_log2,
    seqlen_kv,
    MASKED: tl.constexpr,
    WINDOW_LEFT: tl.constexpr,
    WINDOW_RIGHT: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    TILE_KV: tl.constexpr,
):
    """Online softmax over keys from `begin` to `end`; `first` is row 0's key on the diagonal."""
    columns = tl.arange(0, TILE_KV)
    dims, dims_v = tl.arange(0, HEAD_DIM), tl.arange(0, HEAD_DIM_V)
    k_tile = k + (begin + columns)[None, :] * k_stride_seq + dims[:, None]
    v_tile = v + (begin + columns)[:, None] * v_stride_seq + dims_v[None, :]
    for start in range(begin, end, TILE_KV):
        at = start + columns
        if MASKED:
            inside = at < seqlen_kv
            keys = tl.load(k_tile, mask=inside[None, :], other=0.0)
        else:
            keys = tl.load(k_tile)
        scores = tl.dot(queries, keys) * softmax_scale_log2
        if MASKED:
            visible = inside[None, :]
            if WINDOW_RIGHT >= 0:
                visible = visible & (at[None, :] <= rows[:, None] + (first + WINDOW_RIGHT))
            if WINDOW_LEFT >= 0:
                visible = visible & (at[None, :] >= rows[:, None] + (first - WINDOW_LEFT))
            scores = tl.where(visible, scores, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        safe_top = new_top
        if MASKED:
            # A row that has seen no key keeps -inf, and exp2(-inf - -inf) would be NaN.
            safe_top = tl.where(new_top == -float("inf"), 0.0, new_top)
        weights = tl.exp2(scores - safe_top[:, None])
        shrink = tl.exp2(top - safe_top)
        total = total * shrink + tl.sum(weights, axis=1)
        result = result * shrink[:, None]
        values = tl.load(v_tile, mask=inside[:, None], other=0.0) if MASKED else tl.load(v_tile)
        result = tl.dot(weights.to(tl.bfloat16), values, result)
        top = new_top
        k_tile += TILE_KV * k_stride_seq
        v_tile += TILE_KV * v_stride_seq
    return top, total, result


@triton.jit
def attention_forward(
    q,
    k,
    v,
    o,
    sinks,
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
    WINDOW_LEFT: tl.constexpr,
    WINDOW_RIGHT: tl.constexpr,
    SINKS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    TILE_Q: tl.constexpr,
    TILE_KV: tl.constexpr,
):
    """Mask aligned at the bottom right; strides in elements, of the head dimension 1.

    A side of the window that is less than 0 is open; a causal mask has a right side of 0.
    """
    tile, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    kv_head = head // q_heads_per_kv_head
    q += batch.to(tl.int64) * q_stride_batch + head * q_stride_head
    k += batch.to(tl.int64) * k_stride_batch + kv_head * k_stride_head
    v += batch.to(tl.int64) * v_stride_batch + kv_head * v_stride_head
    o += batch.to(tl.int64) * o_stride_batch + head * o_stride_head
    rows = tile * TILE_Q + tl.arange(0, TILE_Q)
    dims, dims_v = tl.arange(0, HEAD_DIM), tl.arange(0, HEAD_DIM_V)
    seen = rows[:, None] < seqlen_q
    queries = tl.load(q + rows[:, None] * q_stride_seq + dims[None, :], mask=seen, other=0.0)
    top = tl.full([TILE_Q], -float("inf"), tl.float32)
    total = tl.zeros([TILE_Q], tl.float32)
    if SINKS:
        # As scores of a key without a value, in log2 as all scores are.
        top = tl.full([TILE_Q], 1.4426950408889634, tl.float32) * tl.load(sinks + head)
        total += 1.0
    result = tl.zeros([TILE_Q, HEAD_DIM_V], tl.float32)
    first = seqlen_kv - seqlen_q
    begin, whole_begin = 0, 0
    end, whole_end = seqlen_kv, seqlen_kv // TILE_KV * TILE_KV
    if WINDOW_RIGHT >= 0:
        diagonal = tile * TILE_Q + first + WINDOW_RIGHT
        end = tl.maximum(tl.minimum(end, diagonal + TILE_Q), 0)
        whole_end = tl.minimum(whole_end, tl.maximum(diagonal + 1, 0) // TILE_KV * TILE_KV)
    if WINDOW_LEFT >= 0:
        left = tile * TILE_Q + first - WINDOW_LEFT
        begin = tl.maximum(left, 0) // TILE_KV * TILE_KV
        whole_begin = tl.maximum(left + TILE_Q - 1 + TILE_KV - 1, 0) // TILE_KV * TILE_KV
        whole_begin = tl.minimum(whole_begin, tl.maximum(end, begin))
        whole_end = tl.maximum(whole_end, whole_begin)
        top, total, result = _walk(
            queries, top, total, result, k, v, k_stride_seq, v_stride_seq,
            begin, whole_begin, first, rows, softmax_scale_log2, seqlen_kv,
            True, WINDOW_LEFT, WINDOW_RIGHT, HEAD_DIM, HEAD_DIM_V, TILE_KV,
        )  # fmt: skip
    top, total, result = _walk(
        queries, top, total, result, k, v, k_stride_seq, v_stride_seq,
        whole_begin, whole_end, first, rows, softmax_scale_log2, seqlen_kv,
        False, WINDOW_LEFT, WINDOW_RIGHT, HEAD_DIM, HEAD_DIM_V, TILE_KV,
    )  # fmt: skip
    top, total, result = _walk(
        queries, top, total, result, k, v, k_stride_seq, v_stride_seq,
        whole_end, end, first, rows, softmax_scale_log2, seqlen_kv,
        True, WINDOW_LEFT, WINDOW_RIGHT, HEAD_DIM, HEAD_DIM_V, TILE_KV,
    )  # fmt: skip
    result = result / tl.where(total == 0.0, 1.0, total)[:, None]
    out = o + rows[:, None] * o_stride_seq + dims_v[None, :]
    tl.store(out, result.to(tl.bfloat16), mask=seen)
