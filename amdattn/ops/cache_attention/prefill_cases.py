"""Attention of many queries over a cache as an operation: options, cases, what results must be."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.device.manifest import KernelSpec
from amdattn.op.operation import Expected, Operation
from amdattn.ops.attention.planning import TileChoice
from amdattn.ops.attention.scheduling import SCHEDULE
from amdattn.ops.attention.select import ATTENTION, MERGE
from amdattn.ops.cache_attention import prefill_planning as planning
from amdattn.ops.cache_attention.decode_cases import DecodeCase, expected as of_sequences
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.kernels import CACHE_ROWS, LSE_ROWS
from amdattn.ops.cache_attention.planned import planned
from amdattn.ops.cache_attention.prefill_command_options import OPTIONS, problem
from amdattn.ops.cache_attention.prefill_plan import PrefillPlan
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem

# Besides what decoding is wrong by: keys of 8 bits are rounded once with their scales, scores are
# sums of products that are not exact then.
_OF_SCALED = 2.0**-7


@dataclass(frozen=True)
class PrefillCase(DecodeCase):
    """As of few queries; what is behind the last key is NaN, unless keys are appended.

    Attributes
    ----------
    chunks : tuple of int
        Queries of the sequences, in turn, of chunks of several lengths; `lengths` are their keys
        then.
    """

    problem: PrefillProblem
    chunks: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """One line for people."""
        chunks = ",".join(map(str, self.chunks))
        return super().title + f" chunks={chunks}" * bool(chunks)

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random host arrays by operand, the same for the same seed."""
        p = self.problem
        if not p.is_ragged:
            return super().inputs(seed)
        rows = self._rows(seed)
        lengths = np.roll([keys for _, keys in rows], -seed)  # which the seed turns back
        alike = dataclasses.replace(
            self, problem=_decoded(p, p.batch, p.seqlen_q), lengths=tuple(lengths), chunks=()
        )
        made = DecodeCase.inputs(alike, seed)
        if p.has_key_sums:
            del made["cache_seqlens"]
        q = made["q"].reshape(-1, p.num_heads_q, p.head_dim)
        made["q"] = np.resize(q, (p.total_q, p.num_heads_q, p.head_dim))
        of_q, of_kv = np.cumsum([(0, 0), *rows], axis=0).astype(np.int32).T.copy()
        made["cu_seqlens_q"] = of_q
        if p.has_key_sums:
            made["cu_seqlens_kv"] = of_kv
        if p.sinks:  # in the order of the operands
            made["sinks"] = made.pop("sinks")
        return made

    def _rows(self, seed: int) -> list[tuple[int, int]]:
        """Queries and keys of every sequence; another seed begins with another one."""
        p = self.problem
        pairs = list(zip(self.chunks, self.lengths, strict=True))
        turn = seed % len(pairs)
        pairs = pairs[turn:] + pairs[:turn]
        assert len(pairs) == p.batch and sum(self.chunks) == p.total_q
        return pairs


def _decoded(p: PrefillProblem, batch: int, rows: int) -> PrefillProblem:
    """The same of sequences of one number of queries."""
    return dataclasses.replace(
        p,
        batch=batch,
        seqlen_q=rows,
        total_q=0,
        max_total_kv=0,
        cache_seqlens=True,
    )


def expected(case: PrefillCase, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
    """In float64, of chunks of several lengths sequence by sequence."""
    p = case.problem
    if not p.is_ragged:
        return _loosened(p, of_sequences(case, inputs))
    parts: dict[str, list[Expected]] = {}
    sums = inputs["cu_seqlens_q"]
    keys = np.diff(inputs["cu_seqlens_kv"]) if p.has_key_sums else inputs["cache_seqlens"]
    for b, (q0, q1) in enumerate(zip(sums, sums[1:], strict=False)):
        if q0 == q1:
            continue
        one = {**inputs, "q": inputs["q"][None, q0:q1]}
        one["cache_seqlens"] = keys[b : b + 1]
        one["block_table"] = inputs["block_table"][b : b + 1]
        alone = dataclasses.replace(case, problem=_decoded(p, 1, int(q1 - q0)), chunks=())
        for name, found in of_sequences(alone, one).items():
            parts.setdefault(name, []).append(found)
    joined = {}
    for name, axis in (("out", 0), ("lse", 1)):
        if name in parts:
            joined[name] = Expected(
                *(
                    np.concatenate([np.broadcast_to(x, y.values.shape)[0] for x, y in pairs], axis)
                    for pairs in (
                        [(one.values, one) for one in parts[name]],
                        [(one.tolerance, one) for one in parts[name]],
                    )
                )
            )
    return _loosened(p, joined)


def _loosened(p: PrefillProblem, found: dict[str, Expected]) -> dict[str, Expected]:
    """With what rounding of scaled keys adds."""
    if not (p.is_quantized and _is_scaled(p)):
        return found
    for name in ("out", "lse"):
        if name in found:
            must = found[name]
            more = _OF_SCALED * (1 + np.abs(np.where(np.isfinite(must.values), must.values, 0)))
            found[name] = Expected(must.values, must.tolerance + more)
    return found


def _is_scaled(p: DecodeProblem) -> bool:
    """Whether elements are multiplied by what is no power of two."""
    return any(np.frexp(scale)[0] != 0.5 for scale in (p.k_descale, p.v_descale))


# batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim.
_Sizes = tuple[int, int, int, int, int, int]


def _case(sizes: _Sizes, lengths: tuple[int, ...] = (), **options: Any) -> PrefillCase:
    kernel, shared = options.pop("kernel", ""), options.pop("shared", False)
    chunks = options.pop("chunks", ())
    if chunks:
        options |= {"total_q": sum(chunks)}
    options = {"return_lse": True, "cache_seqlens": bool(lengths) and not chunks, **options}
    return PrefillCase(PrefillProblem(*sizes, **options), "", kernel, lengths, shared, chunks)


def _rotary(seqlen_kv: int, rows: int, dim: int, interleaved: bool) -> dict[str, Any]:
    return {
        "rotary_dim": dim,
        "rotary_positions": seqlen_kv + rows,
        "rotary_interleaved": interleaved,
    }


def cases(row: KernelSpec | None) -> Iterator[PrefillCase]:
    """Lengths around pages and tiles, every kind of cache and mask; of a kernel its own types."""
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
        **_rotary(192, 33, 48, interleaved=row.dtype == "float16"),
        **alike,
    )
    for layout in ("packed", "shuffled"):
        yield _case(
            (2, 20, 128, 2, 2, 64),
            (10, 107),
            **{"seqlen_new": 20, "causal": True, "page_size": 32, "kv_layout": layout, **of_row},
            **_rotary(128, 20, 32, interleaved=row.dtype == "bfloat16"),
            **{"rotary_dtype": "float32" if layout == "packed" else "", **scaled},
        )
    yield _case((2, 17, 90, 2, 1, 64), (60, 5), seqlen_new=17, **of_row, **scaled)


def _general() -> Iterator[PrefillCase]:
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
    turned = _rotary(256, 30, 64, interleaved=True)
    pages = {"seqlen_new": 30, "page_size": 128, "causal": True}
    yield _case((2, 30, 256, 2, 1, 64), (127, 226), **fp16, **pages, **turned, shared=False)
    turned = _rotary(160, 20, 32, interleaved=False)
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


def larger(on_gpu: bool) -> Iterator[PrefillCase]:
    """Chunks of long contexts."""
    keys, rows = (8192, 1024) if on_gpu else (512, 100)
    pages = {"page_size": 64, "causal": True}
    yield _case((2, rows, keys, 16, 4, 128), (keys, keys // 2), **pages)
    yield _case((1, rows, keys, 16, 4, 128), (keys // 2,), causal=True, seqlen_new=rows)


OPERATION: Operation[Any, TileChoice] = Operation(
    name="prefill",
    title="chunks of queries over a cache",
    kernel_ops=(CACHE_ROWS, ATTENTION, MERGE, SCHEDULE, LSE_ROWS),
    plan_type=PrefillPlan,
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
