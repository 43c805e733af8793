"""Attention of many queries over a cache as an operation: its cases."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from amdattn.device.manifest import KernelSpec
from amdattn.op.operation import Operation
from amdattn.ops.attention.planning import TileChoice
from amdattn.ops.attention.scheduling import SCHEDULE
from amdattn.ops.attention.select import ATTENTION, MERGE
from amdattn.ops.cache_attention import prefill_planning as planning
from amdattn.ops.cache_attention.cases import CacheCase, case, expected, rotary
from amdattn.ops.cache_attention.command_options import PREFILL_OPTIONS, prefill_problem
from amdattn.ops.cache_attention.kernels import CACHE_ROWS, LSE_ROWS
from amdattn.ops.cache_attention.planned import planned
from amdattn.ops.cache_attention.prefill_plan import PrefillPlan
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem

_case = partial(case, PrefillProblem)


def cases(row: KernelSpec | None) -> Iterator[CacheCase]:
    """Lengths around pages and tiles, and every kind of cache and mask; or cases of a kernel."""
    if row is None or row.op != CACHE_ROWS:
        yield from _general()
        return
    quantized = row.params["kv_dtype"] != row.dtype
    of_row = {"kernel": row.name, "dtype": row.dtype, "kv_dtype": row.params["kv_dtype"]}
    scaled = {"k_descales": quantized, "v_descales": quantized}
    alike = {"k_descale": 0.3, "v_descale": 1.7} if quantized else {}
    pages = {"page_size": 16, "num_pages": 31, **of_row}
    yield _case((3, 40, 160, 4, 2, 64), (33, 160, 0), **pages, **scaled)
    yield _case(
        (2, 33, 192, 2, 1, 72),
        (159, 31),
        **{"head_dim_v": 40, "seqlen_new": 33, "causal": True, "page_size": 64, **of_row},
        **rotary(192, 33, 48, interleaved=row.dtype == "float16"),
        **alike,
    )
    for layout in ("packed", "shuffled"):
        yield _case(
            (2, 20, 128, 2, 2, 64),
            (10, 107),
            **{"seqlen_new": 20, "causal": True, "page_size": 32, "kv_layout": layout, **of_row},
            **rotary(128, 20, 32, interleaved=row.dtype == "bfloat16"),
            **{"rotary_dtype": "float32" if layout == "packed" else "", **scaled},
        )
    yield _case((2, 17, 90, 2, 1, 64), (60, 5), seqlen_new=17, **of_row, **scaled)


def _general() -> Iterator[CacheCase]:
    fp16: dict[str, Any] = {"dtype": "float16"}
    yield _case((2, 63, 130, 4, 1, 64), return_lse=False)
    yield _case((2, 17, 96, 4, 2, 64), (96, 1), **fp16, page_size=32, causal=True)
    ragged = {"page_size": 16, "causal": True}
    yield _case((4, 65, 112, 2, 1, 64), (100, 17, 0, 65), chunks=(64, 1, 0, 65), **ragged)
    yield _case((3, 64, 80, 4, 2, 64), (64, 80, 1), **fp16, page_size=16, num_pages=11)
    yield _case((2, 40, 320, 2, 2, 128), (300, 41), window_size=(100, 0), page_size=64, sinks=True)
    yield _case((1, 65, 128, 2, 1, 72), (127,), **fp16, head_dim_v=40, softcap=20.0)
    indexed = {"cache_batch_idx": True, "cache_leftpad": True, "num_pages": 5, "causal": True}
    yield _case((3, 33, 130, 2, 2, 64), (129, 130, 64), **indexed)
    yield _case((2, 24, 100, 2, 1, 64), (70, 0), seqlen_new=24, causal=True)
    turned = rotary(256, 30, 64, interleaved=True)
    pages = {"seqlen_new": 30, "page_size": 128, "causal": True}
    yield _case((2, 30, 256, 2, 1, 64), (127, 226), **fp16, **pages, **turned, shared=False)
    turned = rotary(160, 20, 32, interleaved=False)
    turned["rotary_dtype"] = "float32"
    yield _case((3, 20, 160, 2, 2, 64), (0, 62, 155), **turned, seqlen_new=5, page_size=16)
    yield _case((3, 100, 64, 4, 2, 64), (64, 3, 40), **fp16, chunks=(5, 100, 40), page_size=32)
    counted = {"cache_seqlens": True, "page_size": 16, "window_size": (70, 0)}
    yield _case((4, 50, 192, 4, 2, 64), (192, 50, 0, 7), chunks=(33, 50, 1, 0), **counted)
    bounded = {"max_seqlen_kv": 60, "max_total_kv": 100, "page_size": 16, "sinks": True}
    yield _case((3, 32, 160, 2, 1, 64), (60, 1, 39), chunks=(32, 1, 0), **bounded)
    narrow = {"window_size": (40, 0), "causal": True, "num_splits": 1}
    yield _case((2, 48, 400, 2, 1, 64), (399, 200), page_size=16, seqlen_new=1, **narrow)
    yield _case((3, 36, 80, 4, 2, 64), (80, 36, 2), page_size=16, shared=True, causal=True)


def larger(on_gpu: bool) -> Iterator[CacheCase]:
    """Chunks of long contexts."""
    keys, rows = (8192, 1024) if on_gpu else (512, 100)
    pages = {"page_size": 64, "causal": True}
    yield _case((2, rows, keys, 16, 4, 128), (keys, keys // 2), **pages)
    yield _case((1, rows, keys, 16, 4, 128), (keys // 2,), causal=True, seqlen_new=rows)


OPERATION: Operation[Any, TileChoice] = Operation(
    name="prefill",
    title="attention of chunks of queries over a cache",
    kernel_ops=(CACHE_ROWS, ATTENTION, MERGE, SCHEDULE, LSE_ROWS),
    plan_type=PrefillPlan,
    options=PREFILL_OPTIONS,
    problem=prefill_problem,
    choices=planning.choices,
    build=planning.build,
    reference=expected,
    planned=planned,
    cases=cases,
    larger=larger,
)
