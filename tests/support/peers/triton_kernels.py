"""Kernels in Triton's language, each with what its compiler does that others do not."""

import triton
import triton.language as tl


@triton.jit
def vector_add(x, y, out, n, TILE: tl.constexpr):
    """out = x + y. Arguments arrive preloaded in SGPRs; the tail is masked by EXEC."""
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def softmax(x, out, columns, TILE: tl.constexpr):
    """Row-wise softmax. Reductions: DPP within a wave, dynamic LDS across waves."""
    row = tl.program_id(0).to(tl.int64) * columns
    i = tl.arange(0, TILE)
    scores = tl.load(x + row + i, mask=i < columns, other=-float("inf")).to(tl.float32)
    weights = tl.exp(scores - tl.max(scores, axis=0))
    tl.store(out + row + i, weights / tl.sum(weights, axis=0), mask=i < columns)


@triton.jit
def layer_norm(x, weight, bias, out, columns, epsilon, TILE: tl.constexpr):
    """Layer normalisation of bfloat16 rows in chunks. Loops with divergent tails, v_rsq."""
    row = tl.program_id(0) * columns
    total = tl.zeros([TILE], tl.float32)
    for start in range(0, columns, TILE):
        i = start + tl.arange(0, TILE)
        total += tl.load(x + row + i, mask=i < columns, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / columns
    squares = tl.zeros([TILE], tl.float32)
    for start in range(0, columns, TILE):
        i = start + tl.arange(0, TILE)
        value = tl.load(x + row + i, mask=i < columns, other=0.0).to(tl.float32)
        centred = tl.where(i < columns, value - mean, 0.0)
        squares += centred * centred
    scale = tl.rsqrt(tl.sum(squares, axis=0) / columns + epsilon)
    for start in range(0, columns, TILE):
        i = start + tl.arange(0, TILE)
        inside = i < columns
        value = tl.load(x + row + i, mask=inside, other=0.0).to(tl.float32)
        gain = tl.load(weight + i, mask=inside, other=0.0).to(tl.float32)
        offset = tl.load(bias + i, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + row + i, ((value - mean) * scale * gain + offset), mask=inside)


@triton.jit
def matmul(a, b, d, m, n, k, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr):
    """D = A @ B, row-major, float32 result. Software pipelined through LDS into MFMA."""
    rows = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    columns = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    inner = tl.arange(0, TILE_K)
    total = tl.zeros([TILE_M, TILE_N], tl.float32)
    for start in range(0, k, TILE_K):
        depth = start + inner
        left = tl.load(
            a + rows[:, None] * k + depth[None, :],
            mask=(rows[:, None] < m) & (depth[None, :] < k),
            other=0.0,
        )
        right = tl.load(
            b + depth[:, None] * n + columns[None, :],
            mask=(depth[:, None] < k) & (columns[None, :] < n),
            other=0.0,
        )
        total = tl.dot(left, right, total)
    tl.store(
        d + rows[:, None] * n + columns[None, :],
        total,
        mask=(rows[:, None] < m) & (columns[None, :] < n),
    )


@triton.jit
def attention_forward(
    q,
    k,
    v,
    out,
    lse,
    softmax_scale_log2,
    seqlen_q,
    seqlen_kv,
    num_heads_q,
    num_heads_kv,
    CAUSAL: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    TILE_Q: tl.constexpr,
    TILE_KV: tl.constexpr,
):
    """Attention of (seqlen, num_heads, head_dim) tensors, mask aligned at the bottom right."""
    q_tile, head = tl.program_id(0), tl.program_id(1)
    kv_head = head // (num_heads_q // num_heads_kv)
    rows = q_tile * TILE_Q + tl.arange(0, TILE_Q)
    dims = tl.arange(0, HEAD_DIM)
    q_at = (rows[:, None] * num_heads_q + head) * HEAD_DIM + dims[None, :]
    queries = tl.load(q + q_at, mask=rows[:, None] < seqlen_q, other=0.0)
    top = tl.full([TILE_Q], -float("inf"), tl.float32)
    total = tl.zeros([TILE_Q], tl.float32)
    result = tl.zeros([TILE_Q, HEAD_DIM], tl.float32)
    shift = seqlen_kv - seqlen_q
    end = seqlen_kv
    if CAUSAL:
        end = tl.minimum(end, (q_tile + 1) * TILE_Q + shift)
    for start in range(0, end, TILE_KV):
        columns = start + tl.arange(0, TILE_KV)
        inside = columns < seqlen_kv
        kv_at = (columns[:, None] * num_heads_kv + kv_head) * HEAD_DIM + dims[None, :]
        keys = tl.load(k + kv_at, mask=inside[:, None], other=0.0)
        scores = tl.dot(queries, tl.trans(keys)) * softmax_scale_log2
        visible = inside[None, :]
        if CAUSAL:
            visible = visible & (columns[None, :] <= rows[:, None] + shift)
        scores = tl.where(visible, scores, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        safe_top = tl.where(new_top == -float("inf"), 0.0, new_top)
        weights = tl.exp2(scores - safe_top[:, None])
        rescale = tl.exp2(top - safe_top)
        total = total * rescale + tl.sum(weights, axis=1)
        values = tl.load(v + kv_at, mask=inside[:, None], other=0.0)
        result = tl.dot(weights.to(values.dtype), values, result * rescale[:, None])
        top = new_top
    result = result / total[:, None]
    tl.store(out + q_at, result.to(out.dtype.element_ty), mask=rows[:, None] < seqlen_q)
    natural = (top + tl.log2(total)) * 0.6931471805599453
    tl.store(lse + head * seqlen_q + rows, natural, mask=rows < seqlen_q)
