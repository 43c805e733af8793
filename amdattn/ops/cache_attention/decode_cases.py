"""Attention over a cache as an operation: options, cases, what results must be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import FLOAT32, as_dtype
from amdattn.op.operation import Case, Expected, Operation
from amdattn.ops.cache_attention import decode_planning as planning
from amdattn.ops.cache_attention.decode_command_options import OPTIONS, problem
from amdattn.ops.cache_attention.decode_plan import DecodePlan
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.kernels import DECODE, MOST_QUERIES
from amdattn.ops.cache_attention.layouts import LAYOUTS
from amdattn.ops.cache_attention.planned import planned
from amdattn.ops.cache_attention.reference import decode

# Largest relative error of one rounding, and half of a denormal.
_ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
_LEAST = {"bfloat16": 2.0**-134, "float16": 2.0**-25}
_FLOAT32 = 2.0**-23
_OF_8_BITS, _LEAST_NORMAL = 2.0**-3, 2.0**-6  # of e4m3: one unit of the last place
_OF_WEIGHTS = 2.0**-12  # exponentials, caps and sums in float32


@dataclass(frozen=True)
class DecodeCase(Case[DecodeProblem]):
    """Normally distributed rows; what is behind the last key is NaN, unless keys are appended.

    Attributes
    ----------
    lengths : tuple of int
        Keys of the sequences before the call, in turn; another seed begins with another one.
    shared : bool
        Whether sequences have their first page in common, as those of one prompt.
    """

    lengths: tuple[int, ...] = ()
    shared: bool = False

    @property
    def title(self) -> str:
        """One line for people."""
        lengths = ",".join(map(str, self.lengths))
        return super().title + f" lengths={lengths}" * bool(lengths) + " shared" * self.shared

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random host arrays by operand, the same for the same seed."""
        p, rng = self.problem, np.random.default_rng(seed)
        element = as_dtype(p.dtype).numpy()

        def normal(*shape: int) -> NDArray[Any]:
            return rng.standard_normal(shape, np.float32).astype(element)

        of_cache = as_dtype(p.kv_dtype).numpy()
        made = {"q": normal(p.batch, p.seqlen_q, p.num_heads_q, p.head_dim)}
        for name in ("k_cache", "v_cache"):
            made[name] = normal(*p.cache_shape(name)).astype(of_cache)
        if p.seqlen_new:
            new = p.batch, p.seqlen_new, p.num_heads_kv
            made |= {"k": normal(*new, p.head_dim), "v": normal(*new, p.head_dim_v)}
        if p.rotary_dim:
            angles = rng.uniform(0, 2 * np.pi, (p.rotary_positions, p.rotary_dim // 2))
            of_angles = as_dtype(p.rotary_dtype).numpy()
            made["rotary_cos"] = np.cos(angles).astype(of_angles)
            made["rotary_sin"] = np.sin(angles).astype(of_angles)
        if p.cache_seqlens:
            most = p.seqlen_kv - p.seqlen_new
            lengths = np.resize(np.roll(self.lengths or (most,), seed), p.batch)
            made["cache_seqlens"] = np.minimum(lengths, most).astype(np.int32)
        if p.cache_batch_idx:
            order = rng.permutation(p.num_pages)[: p.batch]
            made["cache_batch_idx"] = np.resize(order, p.batch).astype(np.int32)
        if p.cache_leftpad:
            made["cache_leftpad"] = rng.integers(0, p.seqlen_kv // 3 + 1, p.batch, np.int32)
        if p.page_size:
            made["block_table"] = self._table(rng)
        for name in ("k", "v"):
            if p.is_scaled(name):
                # Powers of two: a quotient that is halfway is so in float32, too.
                exponents = rng.integers(-3, 3, (p.num_heads_kv, 1))
                made[f"{name}_descale"] = np.exp2(exponents).astype(np.float32)
        if p.sinks:
            made["sinks"] = rng.standard_normal(p.num_heads_q, np.float32)
        if not p.seqlen_new:
            self._spoil(made)
        return made

    def _table(self, rng: np.random.Generator) -> NDArray[np.int32]:
        """Pages in any order, as many as there are: others recur in the rows of a table."""
        p = self.problem
        pages = np.resize(rng.permutation(p.num_pages), (p.batch, p.pages_of_sequence))
        if self.shared:
            pages[:, 0] = pages[0, 0]
        return pages.astype(np.int32)

    def _spoil(self, inputs: dict[str, NDArray[Any]]) -> None:
        """NaN where no sequence has a key, in all pages but those that one reaches."""
        p = self.problem
        used = np.zeros((p.num_pages, p.page_keys), np.bool_)
        for b in range(p.batch):
            keys = int(inputs["cache_seqlens"][b]) if p.cache_seqlens else p.seqlen_kv
            position = np.arange(keys)
            if p.page_size:
                pages = inputs["block_table"][b, position // p.page_size]
                used[pages, position % p.page_size] = True
            else:
                row = inputs["cache_batch_idx"][b] if p.cache_batch_idx else b
                used[row, :keys] = True
        for name, layout in LAYOUTS[p.kv_layout].items():
            rows = np.array(layout.rows(inputs[name]))
            rows[~used] = np.nan
            inputs[name] = np.ascontiguousarray(layout.of_rows(rows, p.chunk))


def expected(case: DecodeCase, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
    """In float64; wrong by the rounding of weights and results, and a little by float32.

    What is turned is rounded, too: to the nearest of the float64 value, or to its neighbour.
    """
    p, found = case.problem, decode(case.problem, inputs)
    one = _ROUNDING[p.dtype]
    of_weights = one * (2 if p.rotary_dim else 1) + _OF_WEIGHTS
    out = one * np.abs(found.out) + of_weights * found.weighted
    out += _LEAST[p.dtype] * (1 + p.seqlen_kv)
    of_scores = _FLOAT32 * p.head_dim * 4 + (one if p.rotary_dim else 0)
    finite = np.abs(np.where(np.isfinite(found.lse), found.lse, 0))
    must = {"out": Expected(found.out, out)}
    if p.return_lse:
        must["lse"] = Expected(found.lse, of_scores * (1 + finite))
    if p.seqlen_new:
        # One rounding of products and sums in float32; then perhaps to the neighbour in 8 bits.
        of_turned = (one + 4 * _FLOAT32) * np.abs(found.k_cache) + 8 * _FLOAT32
        if p.is_quantized:
            of_turned = of_turned + _OF_8_BITS * np.maximum(np.abs(found.k_cache), _LEAST_NORMAL)
        must["k_cache"] = Expected(found.k_cache, np.where(found.turned, of_turned, 0))
        must["v_cache"] = Expected(found.v_cache, np.zeros_like(found.v_cache))
    return must


# batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim.
_Sizes = tuple[int, int, int, int, int, int]
_LENGTHS = (0, 1, 63, 64, 65, 127, 128, 129)


def _case(sizes: _Sizes, lengths: tuple[int, ...] = (), **options: Any) -> DecodeCase:
    kernel, shared = options.pop("kernel", ""), options.pop("shared", False)
    options = {"return_lse": True, "cache_seqlens": bool(lengths), **options}
    return DecodeCase(DecodeProblem(*sizes, **options), "", kernel, lengths, shared)


def _rotary(seqlen_kv: int, dim: int, interleaved: bool) -> dict[str, Any]:
    return {
        "rotary_dim": dim,
        "rotary_positions": seqlen_kv + MOST_QUERIES,
        "rotary_interleaved": interleaved,
    }


def cases(row: KernelSpec | None) -> Iterator[DecodeCase]:
    """Lengths around tiles, every kind of cache, mask and step; of a kernel its own dimensions."""
    if row is None:
        yield from _general()
        return
    columns, rows, keys = row.params["columns"], row.params["rows"], row.tile["keys"]
    some = (0, keys - 1, keys, keys + 1, 2 * keys + 63)
    is_packed, is_quantized = row.params["packed"], row.params["kv_dtype"] != row.dtype
    fewer = columns - (16 if is_packed else 8)

    def of_kernel(sizes: _Sizes, *lengths: int, **options: Any) -> DecodeCase:
        of_row = {"kernel": row.name, "dtype": row.dtype, "kv_dtype": row.params["kv_dtype"]}
        return _case(sizes, lengths, **of_row, **options)

    def lying(layout: str, page_size: int) -> dict[str, Any]:
        return {"kv_layout": layout, "page_size": page_size} if is_packed else {}

    scaled = {"k_descales": is_quantized, "v_descales": is_quantized}
    alike = {"k_descale": 0.3, "v_descale": 1.7} if is_quantized else {}
    # As many rows as a tile has, one less and one more; the last tile of others is a part.
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


def _general() -> Iterator[DecodeCase]:
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


def larger(on_gpu: bool) -> Iterator[DecodeCase]:
    """A batch of contexts that are long, or that differ."""
    keys = 8192 if on_gpu else 1024
    for lengths in ((keys,), (keys, 100, keys // 2, 17)):
        yield _case((8, 1, keys, 32, 8, 128), lengths, page_size=64)


OPERATION = Operation(
    name="decode",
    title="attention over a cache",
    kernel_ops=(DECODE,),
    plan_type=DecodePlan,
    options=OPTIONS,
    problem=problem,
    choices=planning.choices,
    cost=lambda choice: choice.clk,
    best=planning.best,
    build=planning.build,
    reference=expected,
    planned=planned,
    cases=cases,
    larger=larger,
)
