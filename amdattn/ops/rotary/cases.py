"""Rotary embedding as an operation: options, cases, and expected results."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import FLOAT32, as_dtype
from amdattn.op.head_norm import NORM_EPS
from amdattn.op.operation import Case, Expected, Operation
from amdattn.op.options import REQUIRED, Option
from amdattn.ops.rotary import planning
from amdattn.ops.rotary.planning import ROTARY
from amdattn.ops.rotary.problem import POSITIONS, RotaryProblem
from amdattn.ops.rotary.reference import normed
from amdattn.ops.rotary.rotary import RotaryPlan, planned

# The largest relative error of one rounding, and half of the least number.
_ROUNDING = {"bfloat16": (2.0**-8, 2.0**-134), "float16": (2.0**-11, 2.0**-25)}
_OF_PRODUCTS = 2.0**-22  # relative to the sum of magnitudes: two products and their sum in float32
# For a normalised head: the root's inverse, half of the error of a sum of squares in any order, and
# two products.
_OF_NORM = 2.0**-21


@dataclass(frozen=True)
class RotaryCase(Case[RotaryProblem]):
    """Normally distributed heads, with random angles and positions."""

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random host arrays by operand; equal seeds give equal arrays."""
        p, rng = self.problem, np.random.default_rng(seed)
        element, table = as_dtype(p.dtype).numpy(), p.table.numpy()
        tokens = (p.batch, p.seqlen)[p.packed :]
        angles = rng.uniform(0, 2 * np.pi, (p.table_rows, p.rotary_dim // 2))
        heads = {"x": p.heads} | ({"k": p.heads_k} if p.heads_k else {})
        normal = {
            name: rng.standard_normal((*tokens, count, p.head_dim), np.float32).astype(element)
            for name, count in heads.items()
        }
        made = {"x": normal.pop("x"), "cos": np.cos(angles).astype(table)}
        made |= {"sin": np.sin(angles).astype(table), **normal}
        if p.positions == "tokens":
            made["positions"] = rng.integers(0, p.table_rows, tokens, np.int32)
        if p.positions == "offsets":
            most = p.table_rows - p.seqlen
            made["seqlen_offsets"] = rng.integers(0, most, p.batch, np.int32, endpoint=True)
        for name, present in (("q_norm_weight", p.q_norm), ("k_norm_weight", p.k_norm)):
            if present:
                made[name] = rng.uniform(-2, 2, p.head_dim).astype(element)
        return made


def positions_of(problem: RotaryProblem, inputs: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """The position of every token."""
    counted = np.arange(problem.seqlen)
    if problem.positions == "tokens":
        return inputs["positions"].reshape(problem.batch, problem.seqlen)
    if problem.positions == "offsets":
        found: NDArray[Any] = inputs["seqlen_offsets"][:, None] + counted
        return found
    return np.broadcast_to(counted, (problem.batch, problem.seqlen))


def expected(case: RotaryCase, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
    """Results in float64, and their errors by rounding and float32; copies are exact."""
    p = case.problem
    of_result, least = _ROUNDING[p.dtype]
    at = positions_of(p, inputs).reshape(inputs["x"].shape[:-2])
    cos, sin = (inputs[name].astype(np.float64)[at][..., None, :] for name in ("cos", "sin"))
    found = {}
    for name, result in (("x", "out"), ("k", "k_out")):
        if name not in inputs:
            continue
        x = inputs[name].astype(np.float64)
        is_normed = p.q_norm if name == "x" else p.k_norm
        if is_normed:
            x = normed(x, inputs["q_norm_weight" if name == "x" else "k_norm_weight"], p.norm_eps)
        of_products = _OF_PRODUCTS + is_normed * (_OF_NORM + p.head_dim * 2.0**-26)
        half = p.rotary_dim // 2
        first = slice(0, p.rotary_dim, 2) if p.interleaved else slice(0, half)
        second = slice(1, p.rotary_dim, 2) if p.interleaved else slice(half, p.rotary_dim)
        out = x.copy()
        error = is_normed * ((of_result + of_products) * np.abs(x) + least)
        a, b = x[..., first], x[..., second]
        for place, one, other in (
            (first, a * cos, -b * sin),
            (second, b * cos, a * sin),
        ):
            out[..., place] = one + other
            wrong = of_result * np.abs(one + other) + least
            error[..., place] = wrong + of_products * (np.abs(one) + np.abs(other))
        found[result] = Expected(out, error)
    return found


# Batch, tokens, heads of x and k, head_dim, rotary_dim, rows of the tables.
_SIZES = (
    *((1, 1, 1, 0, 2, 2, 1), (2, 3, 1, 1, 16, 16, 9), (1, 7, 5, 3, 64, 32, 30)),
    *((3, 5, 8, 2, 128, 128, 70), (1, 65, 3, 1, 80, 80, 65), (2, 33, 4, 4, 96, 48, 40)),
    *((2, 9, 6, 2, 72, 36, 300), (1, 130, 32, 8, 128, 128, 131), (5, 1, 9, 1, 20, 10, 8)),
    *((1, 17, 2, 2, 256, 64, 20), (4, 2, 12, 0, 10, 6, 5), (1, 3, 71, 1, 64, 64, 2048)),
)


def _at(i: int, sizes: tuple[int, ...], dtype: str) -> RotaryProblem:
    batch, seqlen, heads, heads_k, dim, rotary_dim, rows = sizes
    return RotaryProblem(
        *(batch, seqlen, heads, dim, heads_k, rotary_dim, rows, dtype),
        table_dtype=dtype if i % 3 else "float32",
        interleaved=i % 2 == 1,
        positions=POSITIONS[i // 2 % 3],
        packed=batch == 1 and i % 2 == 0,
    )


def cases(row: KernelSpec | None) -> Iterator[RotaryCase]:
    """Sizes around those of heads and waves; for one kernel, every path through it."""
    if row is None:
        for i, sizes in enumerate(_SIZES):
            for j, dtype in enumerate(_ROUNDING):
                yield RotaryCase(_at(i + j, sizes, dtype))
        return
    for i, sizes in enumerate(_SIZES[1:]):
        for j in range(2):
            problem = _at(i + 3 * j, sizes, row.dtype)
            if row.params["norm"]:
                q_norm = i % 4 != 1 or not problem.heads_k
                k_norm = problem.heads_k > 0 and i % 4 != 2
                eps = (1e-6, 0.5)[j]
                problem = dataclasses.replace(problem, q_norm=q_norm, k_norm=k_norm, norm_eps=eps)
            yield RotaryCase(problem, kernel=row.name)
    for way in _ways(row.dtype):
        norms: dict[str, Any] = {
            "q_norm": way.positions != "tokens",
            "k_norm": way.positions != "none",
        }
        problem = dataclasses.replace(way, **norms) if row.params["norm"] else way
        yield RotaryCase(problem, kernel=row.name)


def _ways(dtype: str) -> Iterator[RotaryProblem]:
    """Every path through a kernel; a normalised head takes more than half of a wave."""
    of_pieces = ((72, 36), (1024, 512))
    for sizes, interleaved, table in itertools.product(
        of_pieces, (False, True), (dtype, FLOAT32.name)
    ):
        for positions in POSITIONS:
            yield RotaryProblem(
                *(2, 3, 3, sizes[0], 1, sizes[1], 9, dtype),
                table_dtype=table,
                interleaved=interleaved,
                positions=positions,
            )


def larger(on_gpu: bool) -> Iterator[RotaryCase]:
    """A case with the heads of a long prompt."""
    for dtype in _ROUNDING:
        yield RotaryCase(RotaryProblem(1, 8192 if on_gpu else 500, 32, 128, 8, dtype=dtype))


OPERATION = Operation(
    name="rotary",
    title="the rotary embedding",
    kernel_ops=(ROTARY,),
    plan_type=RotaryPlan,
    options=(
        Option("batch", int, REQUIRED, "Sequences."),
        Option("seqlen", int, REQUIRED, "Tokens per sequence."),
        Option("heads", int, REQUIRED, "Heads of x."),
        Option("head_dim", int, REQUIRED, "Columns of a head."),
        Option("heads_k", int, 0, "Heads of k; 0: no k."),
        Option("rotary_dim", int, 0, "Columns that are rotated; 0: all."),
        Option("table_rows", int, 0, "Positions in the tables; 0: seqlen."),
        Option("dtype", str, "bfloat16", "bfloat16 or float16."),
        Option(
            "table_dtype", str | None, None, "Element type of the tables: float32; default: dtype."
        ),
        Option("interleaved", bool, False, "Pairs are adjacent columns.", ("--interleaved",)),
        Option("positions", str, "none", "none, offsets (of sequences) or tokens."),
        Option("q_norm", bool, False, "Normalise the heads of x first.", ("--q-norm",)),
        Option("k_norm", bool, False, "Normalise the heads of k first.", ("--k-norm",)),
        Option("norm_eps", float, NORM_EPS, "Epsilon of the norms of heads."),
        Option("in_place", bool, False, "Write the results to x and k.", ("--in-place",)),
    ),
    problem=RotaryProblem,
    choices=planning.choices,
    build=planning.build,
    reference=expected,
    planned=planned,
    cases=cases,
    larger=larger,
)
