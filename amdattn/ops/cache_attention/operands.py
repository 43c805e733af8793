"""Specs of the operands of attention over a cache: for few queries, chunks, and cascades."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from amdattn.dtypes import FLOAT32, as_dtype
from amdattn.op.colocation import view_colocated
from amdattn.op.spec import HostCheck, OperandSpec, Role
from amdattn.ops.attention.lengths import SumsOfLengths
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.indices import IndexCheck
from amdattn.ops.cache_attention.layouts import LAYOUTS
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem
from amdattn.ops.cache_attention.quantized import AsQuantized, AsScales, normal, ones

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_INT32 = as_dtype("int32")


def operands(problem: DecodeProblem, *others: OperandSpec) -> dict[str, OperandSpec]:
    """Specs of q, the caches, appended rows, indices and lengths, `others`, out and lse.

    Chunks of several lengths are packed.
    """
    p = problem
    element, of_kv = as_dtype(p.dtype), as_dtype(p.kv_dtype)
    angles = (p.rotary_positions, p.rotary_dim // 2), as_dtype(p.rotary_dtype)
    new = p.batch, p.seqlen_new, p.num_heads_kv
    of_cache: Role = "inout" if p.seqlen_new else "in"
    by_sequence = "batch, seqlen, num_heads, head_dim of q and k_cache"
    rows: tuple[int, ...] = (p.batch, p.seqlen_q, p.num_heads_q)
    axes: tuple[str, ...] = ("batch", "seq", "head")
    of_rows, of_lse = by_sequence, "batch, num_heads, seqlen of q"
    if p.is_ragged:
        rows, axes = (p.total_q, p.num_heads_q), ("seq", "head")
        of_rows, of_lse = "total_q, num_heads, head_dim", "num_heads, total_q"

    def if_given(condition: str, layout: str = "") -> dict[str, Any]:
        present = bool(getattr(p, condition))
        return {"present": present, "condition": condition, "layout": layout}

    def index(
        name: str, check: HostCheck, typical: Callable[[], Any], condition: str, label: str = ""
    ) -> OperandSpec:
        shape = (p.batch, p.pages_of_sequence) if name == "block_table" else (p.batch,)
        return OperandSpec(
            *(name, "in", shape, _INT32, ("batch",)[: len(shape) - 1], label),
            **if_given(condition),
            host_check=check,
            typical=typical,
        )

    appended, turned = "seqlen_new", "rotary_dim"
    specs = [
        OperandSpec("q", "in", (*rows, p.head_dim), element, axes, layout=of_rows),
        *(
            OperandSpec(
                *(name, of_cache, p.cache_shape(name), of_kv, layout.axes[:-1]),
                label=name[0] if p.is_ragged else "",
                layout=layout.text(p.page_size > 0),
                host_check=AsQuantized(of_kv) if p.is_quantized else None,
                typical=partial(normal, p.cache_shape(name), of_kv) if p.is_quantized else None,
            )
            for name, layout in LAYOUTS[p.kv_layout].items()
        ),
        *(
            OperandSpec(
                *(name, "in", (*new, dim), element, ("batch", "seq", "head")),
                **if_given(appended, by_sequence),
            )
            for name, dim in (("k", p.head_dim), ("v", p.head_dim_v))
        ),
        *(
            OperandSpec(
                *(name, "in", *angles, ("position",)),
                **if_given(turned, "positions, rotary_dim / 2"),
            )
            for name in ("rotary_cos", "rotary_sin")
        ),
        _lengths(p, index),
        index(
            "cache_batch_idx",
            IndexCheck(
                *((p.batch,), p.num_pages - 1, "the sequences of k_cache"),
                differ="k and v would be appended to one sequence twice" * bool(p.seqlen_new),
            ),
            *(partial(in_order, p.num_pages, p.batch), "cache_batch_idx"),
        ),
        index(
            "cache_leftpad",
            IndexCheck((p.batch,), p.seqlen_kv, "the rows of a sequence of k_cache"),
            *(partial(alike, 0, p.batch), "cache_leftpad"),
        ),
        index(
            "block_table",
            IndexCheck((p.batch, p.pages_of_sequence)),
            partial(spread_pages, (p.batch, p.pages_of_sequence), p.num_pages),
            "page_size",
        ),
        *(
            OperandSpec(
                *(name, "in", (p.num_heads_kv, 1), FLOAT32, ("head",)),
                **if_given(f"{name}s", "num_heads of k_cache, 1"),
                host_check=AsScales(p.num_heads_kv, p.batch),
                typical=partial(ones, p.num_heads_kv),
            )
            for name in ("k_descale", "v_descale")
        ),
        *(_sums(p) if isinstance(p, PrefillProblem) else ()),
        *others,
        OperandSpec(
            *("sinks", "in", (p.num_heads_q,), FLOAT32, ()),
            **if_given("sinks", "num_heads of q"),
            host_check=view_colocated,
        ),
        OperandSpec(
            *("out", "out", (*rows, p.head_dim_v), element, axes),
            layout=of_rows,
            partly=p.is_ragged,
        ),
        OperandSpec(
            *("lse", "out", (*rows[:-2], p.num_heads_q, *rows[-2:-1]), FLOAT32),
            (*axes[:-2], "head"),
            **if_given("return_lse", of_lse),
            partly=p.is_ragged,
        ),
    ]
    return {spec.name: spec for spec in specs}


def _lengths(p: DecodeProblem, index: Callable[..., OperandSpec]) -> OperandSpec:
    """The operand of lengths, limited by the room in the cache and by what is declared."""
    room, total = p.max_seqlen_kv - p.seqlen_new, p.max_total_kv - p.batch * p.seqlen_new
    is_bounded = total < p.batch * room
    check = IndexCheck(
        *((p.batch,), room),
        "keys that the cache has room for" + " beside those of k" * bool(p.seqlen_new),
    )
    if p.max_seqlen_kv < p.seqlen_kv or is_bounded:
        check = IndexCheck(
            *((p.batch,), room, f"max_seqlen_k={p.max_seqlen_kv} is declared"),
            *((total, f"max_total_k={p.max_total_kv} is declared") if is_bounded else ()),
        )
    typical = partial(alike, min(room, total // p.batch), p.batch)
    return index("cache_seqlens", check, typical, "cache_seqlens", "seqused_k" * p.is_ragged)


def _sums(p: PrefillProblem) -> list[OperandSpec]:
    """The operands of cumulative lengths of chunks and of their keys."""
    return [
        OperandSpec(
            *(name, "in", (p.batch + 1,), _INT32, (), label),
            present=present,
            condition="total_q",
            host_check=SumsOfLengths(total, longest),
            typical=partial(_alike_sums, total, longest, p.batch),
        )
        for name, label, present, total, longest in (
            ("cu_seqlens_q", "", p.is_ragged, p.total_q, p.seqlen_q),
            ("cu_seqlens_kv", "cu_seqlens_k", p.has_key_sums, p.max_total_kv, p.max_seqlen_kv),
        )
    ]


# -- typical indices -------------------------------------------------------------------------------


def spread_pages(shape: tuple[int, int], num_pages: int) -> NDArray[np.int32]:
    """A table of pages spread over the cache, each used once if there are enough."""
    import numpy as np

    order = np.random.default_rng(0).permutation(num_pages)
    return np.resize(order, shape).astype(np.int32)


def alike(value: int, count: int) -> NDArray[np.int32]:
    """An array with the same number for every sequence."""
    import numpy as np

    return np.full(count, value, np.int32)


def in_order(num_pages: int, count: int) -> NDArray[np.int32]:
    """The first sequences or pages of a cache."""
    import numpy as np

    return np.resize(np.arange(num_pages), count).astype(np.int32)


def _alike_sums(total: int, longest: int, count: int) -> NDArray[np.int32]:
    """Cumulative lengths of sequences that are equally long, as far as rows suffice."""
    import numpy as np

    each = min(longest, -(-total // count))
    return np.minimum(np.arange(count + 1) * each, total).astype(np.int32)
