"""Attention over a shared prefix as an operation: options, cases, and expected results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import as_dtype
from amdattn.op.choices import KernelChoice
from amdattn.op.operation import Case, Expected, Operation
from amdattn.ops.attention.scheduling import SCHEDULE
from amdattn.ops.attention.select import ATTENTION, MERGE
from amdattn.ops.cache_attention import cascade_planning as planning
from amdattn.ops.cache_attention.cascade_plan import CascadePlan
from amdattn.ops.cache_attention.cascade_problem import CascadeProblem
from amdattn.ops.cache_attention.cases import CacheCase, Sizes, expected as of_cache
from amdattn.ops.cache_attention.command_options import CASCADE_OPTIONS, cascade_problem
from amdattn.ops.cache_attention.decode_problem import DecodeProblem, as_problem
from amdattn.ops.cache_attention.kernels import (
    CACHE_ROWS,
    CASCADE_MERGE,
    DECODE,
    LSE_ROWS,
    MOST_QUERIES,
)
from amdattn.ops.cache_attention.layouts import LAYOUTS
from amdattn.ops.cache_attention.planned import planned
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem
from amdattn.ops.cache_attention.reference import places, turn

_OF_MERGE = 2.0**-21  # exponentials and sums in float32
_ROUNDINGS = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


@dataclass(frozen=True)
class CascadeCase(Case[CascadeProblem]):
    """Normally distributed rows; rows beyond the last own key are NaN, unless keys are appended.

    Attributes
    ----------
    lengths : tuple of int
        Own keys of the sequences before the call, repeated in turn.
    """

    lengths: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """One line for people."""
        lengths = ",".join(map(str, self.lengths))
        return super().title + f" lengths={lengths}" * bool(lengths)

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random host arrays by operand, the same for the same seed."""
        p, own = self.problem, self.problem.own
        made = CacheCase(own, lengths=self.lengths).inputs(seed)
        rng = np.random.default_rng([seed, p.prefix_len])
        element = as_dtype(own.dtype).numpy()
        sinks = {name: made.pop(name) for name in ("sinks",) if name in made}

        def normal(*shape: int) -> NDArray[Any]:
            return rng.standard_normal(shape, np.float32).astype(element)

        if not p.prefix_pages:
            made["k_prefix"] = normal(p.prefix_len, own.num_heads_kv, own.head_dim)
            made["v_prefix"] = normal(p.prefix_len, own.num_heads_kv, own.head_dim_v)
            return made | sinks
        # Pages that no sequence names: the last ones, which the table is moved off.
        free = own.num_pages - p.prefix_pages
        made["block_table"] = (made["block_table"] % free).astype(np.int32)
        pages = rng.permutation(np.arange(free, own.num_pages)).astype(np.int32)
        for name in ("k_cache", "v_cache"):
            made[name] = normal(*own.cache_shape(name)).astype(as_dtype(own.kv_dtype).numpy())
        made["prefix_table"] = pages
        return made | sinks


def _whole(case: CascadeCase, inputs: Mapping[str, NDArray[Any]]) -> CacheCase:
    """The problem on caches with room for the prefix before the keys of each sequence."""
    p, own = case.problem, case.problem.own
    others: dict[str, Any] = {"page_size": 0, "num_pages": own.batch, "kv_layout": "NHD"}
    others |= {"rotary_dim": 0, "rotary_positions": 0, "seqlen_new": 0, "cache_seqlens": True}
    others |= {"cache_batch_idx": False, "cache_leftpad": False}
    return CacheCase(
        as_problem(DecodeProblem, own, seqlen_kv=own.seqlen_kv + p.prefix_len, **others)
    )


def expected(case: CascadeCase, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
    """Attention in float64 over the prefix and the keys of the updated cache together."""
    p, own = case.problem, case.problem.own
    layouts = LAYOUTS[own.kv_layout]
    after = of_cache(CacheCase(own, lengths=case.lengths), inputs) if own.seqlen_new else {}
    rows = {name: layouts[name].rows(inputs[name]) for name in layouts}
    stored = {
        name: layouts[name].rows(after[name].values).astype(inputs["q"].dtype)
        if name in after
        else rows[name]
        for name in rows
    }
    lengths = inputs["cache_seqlens"] if own.cache_seqlens else np.full(own.batch, own.seqlen_kv)
    whole = _whole(case, inputs)
    room = whole.problem.seqlen_kv
    made: dict[str, Any] = {"q": np.array(inputs["q"])}
    keys = np.empty(own.batch, np.int32)
    for name, prefix in (("k_cache", "k_prefix"), ("v_cache", "v_prefix")):
        first = inputs.get(prefix)
        if first is None:
            of_pages = rows[name][inputs["prefix_table"]]
            first = of_pages.reshape(-1, *of_pages.shape[2:])[: p.prefix_len]
        cache = np.full((own.batch, room, *first.shape[1:]), np.nan, first.dtype)
        for b in range(own.batch):
            count = int(lengths[b]) + own.seqlen_new
            at = places(own, inputs, b, count)
            pad = int(inputs["cache_leftpad"][b]) if own.cache_leftpad else 0
            of_own = stored[name][at][min(pad, count) :]
            keys[b] = p.prefix_len + len(of_own)
            cache[b, : p.prefix_len], cache[b, p.prefix_len : keys[b]] = first, of_own
        made[name] = cache
    if own.rotary_dim:
        steps = np.arange(own.seqlen_q) if own.is_masked else np.zeros(own.seqlen_q, int)
        for b in range(own.batch):
            turned = turn(inputs["q"][b], int(lengths[b]) + steps, inputs, own.rotary_interleaved)
            made["q"][b] = turned.astype(inputs["q"].dtype)
    made |= {"cache_seqlens": keys}
    made |= {name: inputs[name] for name in ("sinks",) if name in inputs}
    found = of_cache(whole, made)
    # Parts are rounded before they are merged, by as much as weights are; so are rotated rows.
    out, lse = found["out"], found["lse"]
    times = 3 if own.rotary_dim else 2
    results = {"out": Expected(out.values, times * out.tolerance)}
    if p.return_lse:
        one = _ROUNDINGS[own.dtype] if own.rotary_dim else _OF_MERGE
        finite = np.abs(np.where(np.isfinite(lse.values), lse.values, 0))
        results["lse"] = Expected(lse.values, lse.tolerance + one * (1 + finite))
    return results | {name: after[name] for name in ("k_cache", "v_cache") if name in after}


def _case(
    sizes: Sizes, prefix_len: int, lengths: tuple[int, ...] = (), **options: Any
) -> CascadeCase:
    kernel, pages = options.pop("kernel", ""), options.pop("prefix_pages", 0)
    with_lse = options.pop("return_lse", True)
    options = {"cache_seqlens": bool(lengths), **options}
    kind = PrefillProblem if sizes[1] > MOST_QUERIES else DecodeProblem
    own = kind(*sizes, **options)
    return CascadeCase(CascadeProblem(own, prefix_len, pages, with_lse), "", kernel, lengths)


def cases(row: KernelSpec | None) -> Iterator[CascadeCase]:
    """Prefixes around tiles and own keys in every kind of cache, or cases of a kernel's type."""
    if row is None:
        yield from _general()
        return
    of_row: dict[str, Any] = {"kernel": row.name, "dtype": row.dtype}
    yield _case((3, 1, 96, 4, 2, 72), 65, (0, 96, 17), **of_row, head_dim_v=40, page_size=16)
    turned = {"rotary_dim": 32, "rotary_positions": 200, "causal": True}
    yield _case((2, 20, 96, 4, 2, 64), 100, (70, 3), **of_row, **turned, seqlen_new=20)
    yield _case((5, 1, 64, 8, 1, 128), 300, (1, 2, 3, 63, 0), **of_row, sinks=True)
    yield _case((2, 1, 64, 4, 2, 64), 70, (64, 5), **of_row, return_lse=False)


def _general() -> Iterator[CascadeCase]:
    fp16: dict[str, Any] = {"dtype": "float16"}
    yield _case((2, 1, 130, 4, 1, 64), 63, return_lse=False)
    yield _case((4, 1, 96, 8, 2, 128), 64, (96, 1, 0, 33), **fp16, page_size=32)
    yield _case((3, 5, 112, 2, 1, 64), 1, (100, 17, 65), causal=True, page_size=16)
    pages = {"page_size": 16, "num_pages": 30, "prefix_pages": 5}
    yield _case((3, 2, 80, 4, 2, 64), 80, (64, 80, 2), **fp16, **pages, causal=True)
    yield _case((3, 1, 80, 4, 4, 64), 70, (64, 80, 1), **pages, sinks=True)
    yield _case((2, 40, 160, 2, 2, 64), 129, (160, 41), sinks=True, causal=True)
    indexed = {"cache_batch_idx": True, "cache_leftpad": True, "num_pages": 5}
    yield _case((3, 1, 130, 2, 2, 64), 257, (129, 130, 64), **indexed, softcap=20.0)
    yield _case((2, 24, 100, 2, 1, 64), 65, (70, 0), seqlen_new=24, causal=True)
    turned: dict[str, Any] = {"rotary_dim": 64, "rotary_positions": 300}
    turned["rotary_interleaved"] = True
    yield _case((2, 30, 256, 4, 1, 64), 50, (127, 226), **fp16, **turned, seqlen_new=30,
                page_size=64, causal=True)  # fmt: skip
    turned |= {"rotary_dim": 32, "rotary_interleaved": False, "rotary_dtype": "float32"}
    yield _case((3, 1, 160, 4, 2, 64), 200, (0, 62, 155), **turned, seqlen_new=1, page_size=16)
    yield _case((1, 1, 64, 4, 2, 64), 33, (64,), head_dim_v=128)
    yield _case((9, 16, 64, 2, 1, 64), 40, (64, 0, 1, 17), **fp16, num_splits=2)
    yield _case((2, 17, 64, 3, 1, 256), 90, (64, 20), page_size=16)
    yield _case((4, 1, 64, 4, 2, 64), 70, (64, 1, 16, 40), page_size=16)


def larger(on_gpu: bool) -> Iterator[CascadeCase]:
    """Many sequences of one long prompt."""
    batch, prefix = (64, 8192) if on_gpu else (8, 512)
    yield _case((batch, 1, 256, 16, 4, 128), prefix, (256, 17, 100), page_size=16)


OPERATION: Operation[Any, KernelChoice] = Operation(
    name="cascade",
    title="attention over a shared prefix and a cache",
    kernel_ops=(CASCADE_MERGE, CACHE_ROWS, ATTENTION, MERGE, SCHEDULE, LSE_ROWS, DECODE),
    plan_type=CascadePlan,
    options=CASCADE_OPTIONS,
    problem=cascade_problem,
    choices=planning.choices,
    build=planning.build,
    reference=expected,
    planned=planned,
    cases=cases,
    larger=larger,
)
