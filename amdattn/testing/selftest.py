"""Attention on the bound device against the float64 reference, at sizes that fit no tile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.dtypes import BFLOAT16
from amdattn.ops.attention.dense import flash_attn_func
from amdattn.testing.reference import attention, attention_rounded
from amdattn.testing.tolerance import Comparison, compare, compare_lse


@dataclass(frozen=True, slots=True)
class Case:
    """One problem; `packed` slices q, k and v from one array, `special` plants NaN and inf."""

    seqlen_q: int
    seqlen_kv: int
    batch: int = 1
    num_heads_q: int = 1
    num_heads_kv: int = 1
    head_dim: int = 128
    layout: str = "bshd"
    softmax_scale: float | None = None
    packed: bool = False
    special: bool = False

    def __str__(self) -> str:
        text = (
            f"b{self.batch} sq{self.seqlen_q} skv{self.seqlen_kv} "
            f"h{self.num_heads_q}/{self.num_heads_kv}"
        )
        if self.layout != "bshd":
            text += f" {self.layout}"
        if self.softmax_scale is not None:
            text += f" scale={self.softmax_scale}"
        return text + " packed" * self.packed + " NaN/inf" * self.special


CASES = (
    Case(1, 1),
    Case(1, 65),
    Case(63, 1),
    Case(127, 63),
    Case(128, 64),
    Case(129, 127, batch=2),
    Case(33, 257, num_heads_q=4, num_heads_kv=2),
    Case(100, 130, num_heads_q=3, num_heads_kv=1, layout="bhsd"),
    Case(97, 97, num_heads_q=2, num_heads_kv=2, packed=True),
    Case(65, 65, softmax_scale=-0.25),
    Case(40, 70, special=True),
)


@dataclass(frozen=True, slots=True)
class Result:
    """What one case gave. `seconds` is the call's wall time, copies included."""

    case: Case
    out: Comparison
    lse: Comparison
    seconds: float

    @property
    def ok(self) -> bool:
        """True if both results hold."""
        return bool(self.out) and bool(self.lse)


def inputs(case: Case, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Normally distributed bfloat16 q, k and v of a case."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> NDArray[Any]:
        return rng.standard_normal(shape, np.float32).astype(BFLOAT16.numpy())

    if case.packed:
        qkv = normal(case.batch, case.seqlen_q, 3, case.num_heads_q, case.head_dim)
        return qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    arrays = []
    for seqlen, num_heads in (
        (case.seqlen_q, case.num_heads_q),
        (case.seqlen_kv, case.num_heads_kv),
        (case.seqlen_kv, case.num_heads_kv),
    ):
        axes = (seqlen, num_heads) if case.layout == "bshd" else (num_heads, seqlen)
        arrays.append(normal(case.batch, *axes, case.head_dim))
    q, k, v = arrays
    if case.special:
        # With positive keys, rows of NaN, of only -inf and of only +inf scores.
        k[...] = np.abs(k)
        rows = q.reshape(-1, case.head_dim)
        rows[3], rows[5], rows[11] = np.nan, -np.inf, np.inf
    return q, k, v


def run_case(case: Case, seed: int = 0) -> Result:
    """Run one case on the bound device."""
    q, k, v = inputs(case, seed)
    start = time.perf_counter()
    out, lse = flash_attn_func(
        q, k, v, softmax_scale=case.softmax_scale, layout=case.layout, return_lse=True
    )
    seconds = time.perf_counter() - start
    with np.errstate(invalid="ignore"):
        expected, expected_lse = attention(q, k, v, case.softmax_scale, case.layout)
        rounded = attention_rounded(q, k, v, case.softmax_scale, case.layout)
    return Result(
        case,
        compare(out, expected, rounded),
        compare_lse(lse, expected_lse, case.head_dim),
        seconds,
    )


def run_all(seed: int = 0) -> Iterator[Result]:
    """Run every case, one at a time."""
    for case in CASES:
        yield run_case(case, seed)
