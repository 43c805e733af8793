"""Decoders of known sizes, and the launches of a pass through one.

A pass is as `examples/llama` has it: products with their bias, activation and sum in one launch,
and attention that appends to pages of a cache.
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
FEW = 16  # queries of a sequence for which one kernel appends and attends
_EPS = 1e-5


@dataclass(frozen=True)
class Model:
    """Sizes of a decoder."""

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
        """Columns of the first product."""
        return (self.heads + 2 * self.heads_kv) * self.head_dim

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of a layer's weights, gate and up in one."""
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
    """Launches of a pass that do one thing.

    Attributes
    ----------
    times : int
        How often a pass has them.
    flops : int
        Of one time, of matrix products and attention.
    """

    name: str
    times: int
    plan: RunnablePlan[Any]
    run: Callable[[], Any]
    flops: int = 0

    @property
    def launches(self) -> int:
        """Of one time."""
        return len(self.plan.launches)


def parts(model: Model, batch: int, tokens: int, context: int) -> Iterator[Part]:
    """In the order of a pass; arrays of one are given back before the next one is made."""
    props, rows, once = runtime.device_props(), batch * tokens, model.layers
    x = empty((rows, model.hidden), DTYPE)  # what goes through the layers
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
    # Of few rows products normalise them; of many that is slower than a launch before.
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
    """Of models that normalise heads of q and k: with what turns them, in place."""
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
    """Appends, turns what is not and attends; every sequence has `context` keys then."""
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
