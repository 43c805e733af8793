"""Products as an operation: their cases, what results must be."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import as_dtype
from amdattn.op.operation import Case, Expected, Operation
from amdattn.ops.gemm import mx, planning
from amdattn.ops.gemm.command_options import OPTIONS
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.matching import mismatches
from amdattn.ops.gemm.plans import planned
from amdattn.ops.gemm.problem import ADDENDS, BLOCK, BLOCKS, FACTORS, MX, GemmProblem

_EPSILON = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}
_FLOAT32 = 2.0**-24
_LIPSCHITZ = 1.13  # no activation changes faster than this times its argument
_OF_ACTIVATION = 2.0**-18  # relative error of the kernels' exponentials and error function


@dataclass(frozen=True)
class GemmCase(Case[GemmProblem]):
    """``a @ b^T`` on random inputs."""

    def inputs(self, seed: int | Sequence[int]) -> dict[str, NDArray[Any]]:
        """Random inputs. If parts are added in any order, every order gives the same sum."""
        problem, rng = self.problem, np.random.default_rng(seed)
        types = {"a": problem.dtype, "b": problem.b_dtype, "bias": problem.bias_dtype}
        types |= dict.fromkeys(ADDENDS, problem.out_dtype)
        shapes = problem.input_shapes
        if problem.is_packed:
            shapes |= {name: (*shapes[name][:-1], problem.k) for name in "ab"}
        found: dict[str, NDArray[Any]] = {
            name: values(rng, shape, problem).astype(as_dtype(types.get(name, "float32")).numpy())
            for name, shape in shapes.items()
        }
        if problem.is_mx:
            scales = {name: shapes[name] for name in ("scale_a", "scale_b")}
            found |= {name: mx_scales(rng, shape) for name, shape in scales.items()}
        if problem.is_packed:
            found |= {name: mx.packed(found[name]) for name in "ab"}
        if problem.groups:
            found["group_sizes"] = group_sizes(rng, problem)
        return found


def mx_scales(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Scales that are powers of 2 from 1/16 to 16."""
    return rng.integers(123, 132, shape, np.uint8)


def group_sizes(rng: np.random.Generator, problem: GemmProblem) -> NDArray[np.int32]:
    """Sizes of groups that hold all rows: any numbers, 0 among them."""
    rows = problem.k if problem.groups_share_k else problem.m
    ends = np.sort(rng.integers(0, rows + 1, problem.groups - 1))
    return np.diff(ends, prepend=0, append=rows).astype(np.int32)


def values(
    rng: np.random.Generator, shape: tuple[int, ...], problem: GemmProblem
) -> NDArray[np.float32]:
    """Normally distributed numbers; whole numbers if parts are added in any order."""
    if problem.deterministic:
        return rng.standard_normal(shape, np.float32)
    return rng.integers(-4, 5, shape).astype(np.float32)


def expected(case: GemmCase, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
    """The results of every product, in float64."""
    problem = case.problem
    if not problem.are_several:
        return {"out": _expected(problem, inputs)}
    found = [_expected(problem, one) for one in products(problem, inputs)]
    values = np.concatenate([one.values for one in found]).reshape(problem.out_shape)
    return {"out": Expected(values, max(one.tolerance for one in found))}


def products(
    problem: GemmProblem, inputs: Mapping[str, NDArray[Any]]
) -> Iterator[dict[str, NDArray[Any]]]:
    """Inputs of each product of a launch that has results, as if it were a launch of its own."""
    sizes = inputs.get("group_sizes", np.full(problem.products, problem.m))
    ends = np.cumsum(sizes)
    for i, (end, rows) in enumerate(zip(ends, sizes, strict=True)):
        own = slice(end - rows, end) if problem.groups else i
        of_rows = {"a", *ADDENDS} | ({"scale_a"} if problem.scale_a != "tensor" else set())
        of_columns = {"b", "bias"} | ({"scale_b"} if problem.scale_b != "tensor" else set())
        if problem.groups_share_k:
            of_rows, of_columns = {"a", "b"}, set(ADDENDS)
        if rows or problem.groups_share_k:
            yield {
                name: x[own] if name in of_rows else x[i] if name in of_columns else x
                for name, x in inputs.items()
                if name != "group_sizes"
            }


def _expected(problem: GemmProblem, inputs: Mapping[str, NDArray[Any]]) -> Expected:
    """The results of one product, and their error: one rounding, and float32 sums in any order."""
    if problem.is_mx:
        a, b = (mx.values(inputs[x], inputs[f"scale_{x}"], problem.dtype) for x in "ab")
    else:
        a, b = (
            _multiplied(inputs, name, is_by_k)
            for name, is_by_k in zip("ab", problem.by_k, strict=True)
        )
    if problem.rms_eps is not None:
        a = a / np.sqrt(np.mean(a * a, axis=1, keepdims=True) + problem.rms_eps)
    if problem.has_blocks:
        products, sizes = _of_blocks(a, b, inputs["scale_a"], inputs["scale_b"])
    else:
        products, sizes = a @ b.T, np.abs(a) @ np.abs(b).T
    sums, sizes = problem.alpha * products, abs(problem.alpha) * sizes
    for name, factor in (("bias", 1.0), ("c", problem.beta)):
        if name in inputs:
            sums = sums + factor * inputs[name].astype(np.float64)
            sizes = sizes + np.abs(factor * inputs[name].astype(np.float64))
    normed = 0 if problem.rms_eps is None else problem.k / 2 + 2  # the sum of squares, its root
    error = (problem.k + 2 + normed) * _FLOAT32 * float(sizes.max())
    out = sums
    if problem.activation is not None:
        out = activated(problem.activation.removesuffix(FACTORS), sums[:, : problem.n])
        error *= _LIPSCHITZ
        if problem.has_factors:
            factors = sums[:, problem.n :]
            error *= float(np.abs(out).max() + np.abs(factors).max())
            out = out * factors
        error += _OF_ACTIVATION * float(np.abs(out).max())
    if "residual" in inputs:
        out = out + inputs["residual"].astype(np.float64)
        error += _FLOAT32 * float(np.abs(out).max())
    rounding = _EPSILON[problem.out_dtype] * float(np.abs(out).max())
    return Expected(out, error + rounding)


def _multiplied(
    inputs: Mapping[str, NDArray[Any]], name: str, is_by_k: bool
) -> NDArray[np.float64]:
    """An operand stored by rows, times its scales."""
    found: NDArray[np.float64] = inputs[name].astype(np.float64)
    found = found.T if is_by_k else found
    scales = inputs.get(f"scale_{name}")
    if scales is None or scales.ndim == 2:
        return found
    return found * scales.astype(np.float64)[:, None]


def _of_blocks(
    a: NDArray[np.float64], b: NDArray[np.float64], scale_a: NDArray[Any], scale_b: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums of blocks, each times its scales, and the same for magnitudes."""
    rows = scale_b.astype(np.float64).repeat(BLOCK, 0)[: len(b)]
    sums, sizes = np.zeros((len(a), len(b))), np.zeros((len(a), len(b)))
    for block, scale in enumerate(scale_a.astype(np.float64).T):
        at = slice(block * BLOCK, (block + 1) * BLOCK)
        factors = scale[:, None] * rows[:, block]
        sums += factors * (a[:, at] @ b[:, at].T)
        sizes += np.abs(factors) * (np.abs(a[:, at]) @ np.abs(b[:, at]).T)
    return sums, sizes


def activated(name: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """At infinities the limits: 0 times what is infinite is none of them."""
    with np.errstate(over="ignore"):
        return _FUNCTIONS[name](np.maximum(x, _NOTHING_LEFT))


def _silu(x: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = x / (1 + np.exp(-x))
    return found


def _gelu_tanh(x: NDArray[np.float64]) -> NDArray[np.float64]:
    inner: NDArray[np.float64] = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    found: NDArray[np.float64] = x / (1 + np.exp(-2 * inner))
    return found


def _gelu(x: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = x * (0.5 * np.vectorize(math.erfc)(-x / math.sqrt(2)))
    return found


_FUNCTIONS = {"silu": _silu, "gelu_tanh": _gelu_tanh, "gelu": _gelu}
_NOTHING_LEFT = -2000.0  # all of them are -0 here, in float64

# -- cases -----------------------------------------------------------------------------------------

# Sizes around those of tiles and of lines of k, with and without parts, for every kernel.
_CASES: tuple[tuple[int, int, int, dict[str, Any]], ...] = (
    (1, 1, 8, {}),
    (19, 70, 200, {"bias": True, "out_dtype": "float32"}),
    (66, 33, 1096, {"alpha": -0.5}),
    (35, 50, 840, {"split_k": 3, "bias": True}),
    (35, 50, 840, {"split_k": 3, "deterministic": False, "bias": True}),
    (18, 21, 328, {"activation": "silu", "bias": True}),
    (18, 21, 328, {"activation": "silu_and_mul", "bias": True}),
)
_ADDED: tuple[tuple[int, int, int, dict[str, Any]], ...] = (
    (19, 70, 200, {"adds": "c", "beta": 0.75, "activation": "silu", "out_dtype": "float32"}),
    (35, 50, 840, {"split_k": 3, "adds": "residual", "bias": True}),
    (19, 72, 200, {"adds": "residual", "out_dtype": "float16"}),
)
_SEVERAL: tuple[tuple[int, int, int, dict[str, Any]], ...] = (
    (19, 70, 200, {"batch": 3, "bias": True, "adds": "c", "beta": -2.0}),
    (18, 24, 136, {"batch": 2, "activation": "silu_and_mul"}),
    (150, 70, 72, {"groups": 5, "bias": True, "adds": "residual"}),
    (9, 24, 64, {"groups": 70, "out_dtype": "float32"}),
)
_OF_K: tuple[tuple[int, int, int, dict[str, Any]], ...] = (
    (150, 70, 137, {"groups": 5, "bias": True, "adds": "residual"}),
    (18, 24, 9, {"groups": 70, "out_dtype": "float32"}),
    (34, 70, 260, {"groups": 2, "activation": "silu_and_mul"}),
)
_EPS = 1e-5
_ODD = (5, 18, 131, {"split_k": 2})
_LAYOUTS = (
    (19, 70, 200, {"layout": "nn", "bias": True}),
    (34, 70, 131, {"layout": "tn", "activation": "silu_and_mul"}),
)
_OF_8_BITS: tuple[tuple[int, int, int, dict[str, Any]], ...] = (
    (1, 1, 16, {}),
    (19, 70, 208, {"bias": True, "out_dtype": "float32", "scale_a": "row", "scale_b": "row"}),
    (66, 33, 1104, {"alpha": -0.5, "scale_a": "tensor", "out_dtype": "float16", "bias": True}),
    (18, 21, 336, {"activation": "silu_and_mul", "scale_b": "row", "bias": True}),
)
_OF_BLOCKS: tuple[tuple[int, int, int, dict[str, Any]], ...] = (
    (1, 1, 16, {}),
    (19, 70, 208, {"bias": True, "out_dtype": "float32"}),
    (66, 133, 1104, {"alpha": -0.5, "out_dtype": "float16", "bias": True}),
    (258, 130, 656, {"activation": "silu"}),
    (18, 96, 400, {"activation": "silu_and_mul", "bias": True}),
)
_OF_MX: tuple[tuple[int, int, int, dict[str, Any]], ...] = (
    (1, 1, 128, {}),
    (19, 70, 256, {"bias": True, "out_dtype": "float32"}),
    (66, 133, 1152, {"alpha": -0.5, "out_dtype": "float16", "bias": True}),
    (258, 130, 640, {"activation": "silu"}),
    (18, 90, 384, {"activation": "silu_and_mul", "bias": True}),
)
_ACTIVATIONS = tuple(
    (7, 33, 264, {"activation": name + suffix})
    for name in ("gelu", "gelu_tanh")
    for suffix in ("", FACTORS)
)


def cases(row: KernelSpec | None) -> Iterator[GemmCase]:
    """Cases of a kernel at sizes that fit no tile, or of the kernels that plans choose."""
    if row is None:
        for m, n, k, options in (
            *(*_CASES, _ODD, *_ACTIVATIONS, *_LAYOUTS),
            *(*_ADDED, *_SEVERAL),
            *((*one[:3], {**one[3], "layout": "tn"}) for one in _OF_K),
        ):
            aligned = k % 2 == 0 or "layout" in options
            yield GemmCase(GemmProblem(m, n, k, aligned=aligned, **options))
        return
    *sizes, _ = _ODD
    of_parts = {} if row.accepts["max_splits"] == 1 else _ODD[-1]
    odd = ((*sizes, of_parts),) if row.accepts["k_multiple"] == 1 else ()
    of_8_bits = as_dtype(row.dtype).itemsize == 1
    (b_dtype,) = row.accepts["b_dtype"]
    layout, multiples = row.accepts["layout"], [row.accepts[f"{axis}_multiple"] for axis in "mn"]
    several = _SEVERAL if row.accepts["max_products"] else ()
    if layout == "tn":
        several = (*(one for one in several if "groups" not in one[-1]), *_OF_K)
    found = (*(_OF_8_BITS if of_8_bits else _CASES), *odd, *_ADDED, *several)
    of_parts_of_k = {BLOCKS: _OF_BLOCKS, MX: _OF_MX}
    if (kind := row.accepts["scales"][0]) in of_parts_of_k:
        of_kernel = (*of_parts_of_k[kind], *_ADDED, *several)
        both = {"scale_a": kind, "scale_b": kind}
        found = tuple((m, n, k, {**both, **options}) for m, n, k, options in of_kernel)
    if "norms_rows" in row.accepts:
        found = tuple((*one[:3], {**one[3], "rms_eps": _EPS}) for one in found)
    for *rows, k, options in found:
        m, n = (x + -x % multiple for x, multiple in zip(rows, multiples, strict=True))
        multiple = row.accepts["k_multiple"]
        k_of_row = k + -k % multiple if multiple > 1 else k
        types = {"b_dtype": b_dtype, "layout": layout}
        problem = GemmProblem(m, n, k_of_row, row.dtype, **types, **options)
        if not mismatches(row, problem):
            yield GemmCase(problem, kernel=row.name)


def larger(on_gpu: bool) -> Iterator[GemmCase]:
    """A layer of decoding with a gated activation."""
    sizes = (64, 7168, 4096) if on_gpu else (17, 700, 1024)
    yield GemmCase(GemmProblem(*sizes, activation="silu_and_mul", bias=True))


OPERATION = Operation(
    name="gemm",
    title="a matrix product",
    kernel_ops=(planning.GEMM,),
    plan_type=GemmPlan,
    options=OPTIONS,
    problem=GemmProblem,
    choices=planning.choices,
    cost=lambda choice: choice.cost.clk,
    best=planning.least_estimated,
    build=planning.build,
    reference=expected,
    planned=planned,
    cases=cases,
    larger=larger,
)
