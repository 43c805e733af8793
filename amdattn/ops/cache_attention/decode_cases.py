"""Attention over a cache as an operation: its cases."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import FLOAT32
from amdattn.op.operation import Operation
from amdattn.ops.cache_attention import decode_planning as planning
from amdattn.ops.cache_attention.cases import CacheCase, Sizes, case, expected, rotary
from amdattn.ops.cache_attention.command_options import DECODE_OPTIONS, decode_problem
from amdattn.ops.cache_attention.decode_plan import DecodePlan
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.kernels import DECODE, MOST_QUERIES
from amdattn.ops.cache_attention.planned import planned

_LENGTHS = (0, 1, 63, 64, 65, 127, 128, 129)


_case = partial(case, DecodeProblem)


def _rotary(seqlen_kv: int, dim: int, interleaved: bool) -> dict[str, Any]:
    return rotary(seqlen_kv, MOST_QUERIES, dim, interleaved)


def cases(row: KernelSpec | None) -> Iterator[CacheCase]:
    """Lengths around tiles, and every kind of cache, mask and step; or cases of a kernel."""
    if row is None:
        yield from _general()
        return
    columns, rows, keys = row.params["columns"], row.params["rows"], row.tile["keys"]
    some = (0, keys - 1, keys, keys + 1, 2 * keys + 63)
    is_packed, is_quantized = row.params["packed"], row.params["kv_dtype"] != row.dtype
    fewer = columns - (16 if is_packed else 8)

    def of_kernel(sizes: Sizes, *lengths: int, **options: Any) -> CacheCase:
        of_row = {"kernel": row.name, "dtype": row.dtype, "kv_dtype": row.params["kv_dtype"]}
        return _case(sizes, lengths, **of_row, **options)

    def lying(layout: str, page_size: int) -> dict[str, Any]:
        return {"kv_layout": layout, "page_size": page_size} if is_packed else {}

    scaled = {"k_descales": is_quantized, "v_descales": is_quantized}
    alike = {"k_descale": 0.3, "v_descale": 1.7} if is_quantized else {}
    # As many rows as a tile has, one less and one more; others have an incomplete last tile.
    yield of_kernel((5, 1, 3 * keys, rows, 1, columns), *some, **lying("packed", 32), **alike)
    pages = {"page_size": 16, "num_pages": 70, **lying("shuffled", 16)}
    yield of_kernel((3, 2, 336, rows, 2, fewer), *some[1:], **pages, **scaled)
    sized = 5, max(1, (rows + 1) // 5 + 1) * 2, 2
    yield of_kernel(
        (2, sized[0], 512, sized[1], sized[2], columns),
        *(129, 300),
        head_dim_v=columns - 8,
        causal=True,
        num_splits=3,
        **{"page_size": 256, **lying("packed", 256)},
        **scaled,
    )
    for layout in ("packed", "shuffled")[: 1 + is_packed]:
        yield of_kernel(
            (2, 2, 400, 6, 2, columns),
            *(keys - 1, 200),
            seqlen_new=2,
            causal=True,
            **_rotary(400, columns // 2, interleaved=row.dtype == "float16"),
            **lying(layout, 80),
            **scaled,
        )
    yield of_kernel(
        (2, 1, 400, 3, 1, columns),
        *(keys + 1, 30),
        seqlen_new=3,
        **_rotary(400, 16 * (columns // 16), interleaved=row.dtype == "bfloat16"),
        **{"rotary_dtype": FLOAT32.name, **lying("packed", 80), **scaled},
    )


def _general() -> Iterator[CacheCase]:
    fp16: dict[str, Any] = {"dtype": "float16"}
    yield _case((2, 1, 130, 4, 1, 64), return_lse=False)
    yield _case((8, 1, 129, 8, 2, 128), _LENGTHS, **fp16)
    yield _case((4, 2, 1000, 3, 1, 64), (1000, 0, 65, 999), causal=True)
    yield _case((4, 1, 320, 8, 1, 128), (63, 64, 65, 320), page_size=64, num_pages=23)
    yield _case((3, 5, 272, 6, 2, 64), (17, 272, 16), **fp16, page_size=16, shared=True)
    yield _case((3, 16, 200, 4, 4, 72), (128, 15, 200), causal=True, head_dim_v=40)
    yield _case((2, 1, 300, 8, 2, 192), (300, 1), num_splits=1, head_dim_v=128)
    yield _case((3, 1, 700, 4, 2, 256), (700, 129, 0), **fp16, num_splits=3, sinks=True)
    yield _case((2, 3, 400, 4, 2, 128), (399, 130), window_size=(100, 0), softcap=20.0)
    yield _case((2, 4, 300, 2, 1, 64), (300, 7), **fp16, window_size=(5, 2), sinks=True)
    indexed = {"cache_batch_idx": True, "cache_leftpad": True, "num_pages": 5}
    yield _case((3, 1, 260, 8, 8, 128), (129, 260, 64), **indexed)
    yield _case((4, 1, 140, 4, 1, 64), (0, 63, 127, 139), seqlen_new=1)
    pages = {"seqlen_new": 5, "page_size": 256, "causal": True}
    turned = _rotary(512, 64, interleaved=True)
    yield _case((3, 2, 512, 8, 2, 128), (255, 256, 300), **fp16, **pages, **turned)
    pages = {"seqlen_new": 3, "page_size": 16, "num_splits": 3}
    turned = _rotary(160, 64, interleaved=False)
    for angles in ("", FLOAT32.name):
        yield _case((3, 3, 160, 6, 2, 64), (0, 62, 127), rotary_dtype=angles, **pages, **turned)


def larger(on_gpu: bool) -> Iterator[CacheCase]:
    """Batches of contexts that are long, or of different lengths."""
    keys = 8192 if on_gpu else 1024
    for lengths in ((keys,), (keys, 100, keys // 2, 17)):
        yield _case((8, 1, keys, 32, 8, 128), lengths, page_size=64)


OPERATION = Operation(
    name="decode",
    title="attention over a cache",
    kernel_ops=(DECODE,),
    plan_type=DecodePlan,
    options=DECODE_OPTIONS,
    problem=decode_problem,
    choices=planning.choices,
    build=planning.build,
    reference=expected,
    planned=planned,
    cases=cases,
    larger=larger,
)
