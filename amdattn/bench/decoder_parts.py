"""Decoders of known sizes, and the launches of a pass through one.

A pass has the launches of `examples/llama`: each product includes its bias, activation and sum, and
attention appends to the pages of a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdattn.arrays.buffers import DeviceArray, empty
from amdattn.arrays.interchange import asarray
from amdattn.device import runtime
from amdattn.op.executor import RunnablePlan
from amdattn.ops.cache_attention.planned import plan_decode, plan_prefill
from amdattn.ops.embedding.embedding import plan_embedding
from amdattn.ops.gemm.plans import plan_gemm
from amdattn.ops.norm.rms_norm import plan_rms_norm
from amdattn.ops.rotary.rotary import plan_rotary
from amdattn.ops.sample.sample import plan_sample
from amdattn.tuning import runner

DTYPE = "bfloat16"
PAGE = 64  # keys
FEW = 16  # up to this many queries per sequence, one kernel appends and attends
_EPS = 1e-5


@dataclass(frozen=True)
class Model:
    """Sizes of a decoder.

    Attributes
    ----------
    layers, hidden, heads, heads_kv : int
    inner : int
        Columns of the gate, and of the up projection.
    vocabulary, head_dim : int
    qk_norm : bool
        Whether the heads of q and k are normalised.
    """

    layers: int
    hidden: int
    heads: int
    heads_kv: int
    inner: int
    vocabulary: int
    head_dim: int = 128
    qk_norm: bool = False

    @property
    def qkv(self) -> int:
        """Columns of the first product, which computes q, k and v."""
        return (self.heads + 2 * self.heads_kv) * self.head_dim

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """(rows, columns) of the weights of a layer; gate and up are one matrix."""
        return {
            "qkv": (self.qkv, self.hidden),
            "o": (self.hidden, self.heads * self.head_dim),
            "gate_up": (2 * self.inner, self.hidden),
            "down": (self.hidden, self.inner),
        }


MODELS = {
    "llama3-8b": Model(32, 4096, 32, 8, 14336, 128256),
    "llama3-70b": Model(80, 8192, 64, 8, 28672, 128256),
    "qwen3-32b": Model(64, 5120, 64, 8, 25600, 151936, qk_norm=True),
}


@dataclass(frozen=True)
class Part:
    """One operation of a pass, and its launches.

    Attributes
    ----------
    name : str
    times : int
        How often a pass runs it.
    plan : RunnablePlan
    run : callable
        Enqueues the launches once.
    flops : int
        Operations of matrix products and attention in one run.
    """

    name: str
    times: int
    plan: RunnablePlan[Any]
    run: Callable[[], Any]
    flops: int = 0

    @property
    def launches(self) -> int:
        """Launches of one run."""
        return len(self.plan.launches)


def parts(model: Model, batch: int, tokens: int, context: int) -> Iterator[Part]:
    """Yield the parts in the order of a pass.

    The arrays of a part are freed before those of the next part are allocated.
    """
    props, rows, once = runtime.device_props(), batch * tokens, model.layers
    x = empty((rows, model.hidden), DTYPE)  # the activations that pass through the layers
    normed = empty((rows, model.hidden), DTYPE)
    attended = empty((rows, model.heads * model.head_dim), DTYPE)
    inner = empty((rows, model.inner), DTYPE)

    def part(
        name: str, times: int, plan: RunnablePlan[Any], flops: int = 0, **given: DeviceArray
    ) -> Part:
        return Part(name, times, plan, runner(plan, given=given), flops)

    def norm(name: str, times: int, count: int, source: DeviceArray) -> Part:
        plan = plan_rms_norm(count, model.hidden, device=props, dtype=DTYPE)
        return part(name, times, plan, x=source, out=normed[:count])

    def product(name: str, a: DeviceArray, out: DeviceArray, **options: Any) -> Part:
        n, k = model.products[name]
        columns = n // 2 if options.get("activation") else n
        plan = plan_gemm(rows, columns, k, device=props, dtype=DTYPE, **options)
        given = {"a": a, "b": empty((n, k), DTYPE), "out": out}
        if options.get("adds"):
            given["residual"] = out
        return part(name, once, plan, 2 * rows * n * k, **given)

    plan = plan_embedding(rows, model.hidden, model.vocabulary, dtype=DTYPE, device=props)
    table = empty((model.vocabulary, model.hidden), DTYPE)
    yield part("embedding", 1, plan, table=table, out=x)
    # With few rows the products normalise their input; with many a separate launch is faster.
    norms_rows = tokens <= FEW
    before, options = (x, {"rms_eps": _EPS}) if norms_rows else (normed, {})
    if not norms_rows:
        yield norm("norm", once, rows, x)
    yield product("qkv", before, empty((rows, model.qkv), DTYPE), **options)
    if model.qk_norm:
        yield _turn(model, batch, tokens, context)
    yield _attention(model, batch, tokens, context, attended)
    yield product("o", attended, x, adds="residual")
    if not norms_rows:
        yield norm("norm", once, rows, x)
    yield product("gate_up", before, inner, activation="silu_and_mul", **options)
    yield product("down", inner, x, adds="residual")
    yield norm("last norm", 1, batch, x[rows - batch :])
    head = plan_gemm(
        *(batch, model.vocabulary, model.hidden), device=props, dtype=DTYPE, out_dtype="float32"
    )
    weights, logits = (
        empty((model.vocabulary, model.hidden), DTYPE),
        empty((batch, model.vocabulary), "float32"),
    )
    flops = 2 * batch * model.vocabulary * model.hidden
    yield part("head", 1, head, flops, a=normed[:batch], b=weights, out=logits)
    token = plan_sample(batch, model.vocabulary, device=props, temperature=0.0)
    yield part("token", 1, token)


def _turn(model: Model, batch: int, tokens: int, context: int) -> Part:
    """Normalise the heads of q and k and apply rotary embeddings to them, in place."""
    plan = plan_rotary(
        *(batch, tokens, model.heads, model.head_dim),
        heads_k=model.heads_kv,
        table_rows=-(-context // PAGE) * PAGE,
        device=runtime.device_props(),
        dtype=DTYPE,
        table_dtype="float32",
        positions="offsets",
        q_norm=True,
        k_norm=True,
    )
    offsets = asarray(np.full(batch, context - tokens, np.int32))
    given = {"seqlen_offsets": offsets}
    return Part("norms, rotary", model.layers, plan, runner(plan, given=given), 0)


def _attention(model: Model, batch: int, tokens: int, context: int, attended: DeviceArray) -> Part:
    """Append and attend, after which every sequence has `context` keys.

    The launch also applies rotary embeddings, unless `_turn` does.
    """
    pages = -(-context // PAGE)
    turned: dict[str, Any] = {"rotary_dim": model.head_dim, "rotary_positions": pages * PAGE}
    turned |= {"rotary_interleaved": False, "rotary_dtype": "float32"}
    plan = (plan_decode if tokens <= FEW else plan_prefill)(
        *(batch, tokens, pages * PAGE, model.heads, model.heads_kv, model.head_dim),
        device=runtime.device_props(),
        dtype=DTYPE,
        causal=True,
        seqlen_new=tokens,
        page_size=PAGE,
        num_pages=batch * pages,
        cache_seqlens=True,
        **({} if model.qk_norm else turned),
    )
    lengths = asarray(np.full(batch, context - tokens, np.int32))
    out = attended.reshape((batch, tokens, model.heads, model.head_dim))
    before = context - tokens
    pairs = batch * (tokens * before + tokens * (tokens + 1) // 2)
    flops = 4 * pairs * model.heads * model.head_dim
    given = {"cache_seqlens": lengths, "out": out}
    return Part("attention", model.layers, plan, runner(plan, given=given), flops)
