"""Normalisation with all options as an operation: options, cases, and expected results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.arch.architectures import architecture
from amdattn.device import runtime
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import FLOAT32, as_dtype
from amdattn.op.operation import Case, Expected, Operation
from amdattn.op.options import Option
from amdattn.ops.layer_norm import planning
from amdattn.ops.layer_norm.layer_norm import LayerNormPlan, planned
from amdattn.ops.layer_norm.planning import NORM
from amdattn.ops.layer_norm.problem import MADE, NARROW, LayerNormProblem
from amdattn.ops.layer_norm.reference import dropped, normalised
from amdattn.ops.norm.cases import IN_PLACE_OPTION, RESIDUAL_OPTION, ROWS_OPTIONS, TINY
from amdattn.ops.quantize.cases import greatest_number
from amdattn.ops.quantize.problem import LEAST_SCALE

# The largest relative error of one rounding, and of float32 sums.
_ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
_OF_SUMS = 2.0**-17


@dataclass(frozen=True)
class LayerNormCase(Case[LayerNormProblem]):
    """Normally distributed rows around different means.

    Attributes
    ----------
    arch : str
        The architecture whose 8-bit type results have; "": the bound device's.
    scale : float
        A factor of the rows.
    """

    arch: str = ""
    scale: float = 1.0

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random host arrays by operand; equal seeds give equal arrays."""
        p, rng = self.problem, np.random.default_rng(seed)
        element, weights = as_dtype(p.dtype).numpy(), p.weight_element.numpy()
        shape = *p.shape, p.columns

        def normal(*sizes: int) -> NDArray[np.float32]:
            return rng.standard_normal(sizes, np.float32)

        found: dict[str, NDArray[Any]] = {
            "x": (self.scale * (normal(*shape) + 2 * normal(*p.shape, 1))).astype(element),
            "weight": (1 + normal(p.columns) / 4).astype(weights),
        }
        if p.makes_scale:  # the last column then decides the scale
            found["x"][..., -1] *= 4
        if p.bias:
            found["bias"] = normal(p.columns).astype(weights)
        if p.residual:
            found["residual"] = normal(*shape).astype(element)
        if p.narrow and not p.makes_scale:  # then some results exceed the greatest number
            scales = (1,) if p.scale == "tensor" else p.shape
            found["scale"] = np.exp2(rng.uniform(-9, -4, scales)).astype(np.float32)
        if p.draws:
            found["state"] = rng.integers(0, 2**60, 2, np.int64).view(np.int32)
        return found

    @property
    def most(self) -> float:
        """The greatest number of the result's 8-bit type."""
        props = runtime.device_props() if not self.arch else None
        known = architecture(self.arch) if props is None else props.architecture
        return float(greatest_number(self.problem.out_element(known).numpy()))


def expected(case: LayerNormCase, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
    """Results in float64, and their errors by rounding and float32; the sum is exact."""
    p = case.problem
    h = dropped(p, inputs)
    found = {}
    if p.residual:
        found["residual_out"] = Expected(h.astype(np.float64), 0.0)
    if p.draws:
        state = (inputs["state"].view(np.int64) + np.array([0, 1])).view(np.int32)
        found["state"] = Expected(state.astype(np.float64), 0.0)
    y, size = normalised(p, h, inputs)
    slack = _OF_SUMS * size
    if not p.narrow:
        rounding = _ROUNDING[p.dtype]
        allowed = rounding * np.abs(y) + slack + np.where(y == 0, 0, 2.0**-25)
        return {"out": Expected(y, allowed), **found}
    if p.makes_scale:
        greatest = np.abs(y).max(-1, keepdims=True)
        scale = np.maximum(greatest / case.most, LEAST_SCALE)
        of_row = slack.max(-1, keepdims=True) / case.most + 2.0**-23 * scale
        found["out_scale"] = Expected(scale, of_row)
    else:
        scale = inputs["scale"].astype(np.float64)
        if p.scale == "row":
            scale = scale.reshape(*p.shape, 1)
    quotient = np.clip(y / scale, -case.most, case.most)
    # A unit of 3 mantissa bits is an eighth of the number; ties may go either way.
    allowed = 2.0**-4 * np.abs(quotient) * (1 + 2.0**-10) + 2.0**-10 + 2 * slack / scale
    return {"out": Expected(quotient, allowed), **found}


_SIZES = (
    *((1, 1), (3, 2), (2, 7), (5, 8), (9, 9), (33, 63), (31, 64), (65, 65), (3, 127), (2, 513)),
    *((2, 1025), (7, 1000), (4, 4095), (3, 4096), (2, 8193), (1, 16384), (1, 16385)),
)
_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"bias": True, "residual": True},
    {"bias": True, "residual": True, "dropout_p": 0.1},
    {"dropout_p": 0.75, "to": NARROW, "scale": "row", "residual": True},
    {"bias": True, "to": NARROW},
    {"rms": True, "dropout_p": 0.5, "residual": True},
    {"rms": True, "residual": True, "to": NARROW},
    {"bias": True, "to": NARROW, "scale": "tensor", "eps": 0.0},
)


def cases(row: KernelSpec | None) -> Iterator[LayerNormCase]:
    """Sizes around those of chunks, waves and tiles, or around the least and most of one kernel."""
    if row is None:
        for i, (rows, columns) in enumerate(_SIZES):
            for j, dtype in enumerate(("bfloat16", "float16")):
                options = {**_OPTIONS[(3 * i + j) % len(_OPTIONS)]}
                if columns == 1 and options.get("eps") == 0.0:
                    options["eps"] = 1e-5
                if i % 3 == 0:
                    options["weight_dtype"] = FLOAT32.name
                yield LayerNormCase(LayerNormProblem((rows,), columns, dtype, **options))
        return
    least, most = row.accepts["columns"]
    tile = row.tile["rows"]
    for i, options in enumerate(_OPTIONS):
        # Every number of columns in the last chunk; the last columns of a step that is not the
        # last.
        sizes = (
            *((1, least), (tile + 1, most), (2 * tile + 1, max(least, most - 1 - i))),
            (tile + 2, min(most, max(least, most // 2 + 1 + i))),
            (1, max(least, most // 2 - 1 - i)),
        )
        # Whole rows with every option.
        for rows, columns in dict.fromkeys((sizes[i % 5], sizes[(i + 2) % 5], sizes[1])):
            eps = 1e-5 if columns == 1 else options.get("eps", 1e-5)
            facts = {**options, "eps": eps, "weight_dtype": row.params["weight_dtype"]}
            problem = LayerNormProblem((rows,), columns, row.dtype, **facts)
            yield LayerNormCase(problem, kernel=row.name, arch=row.arch)
    for odd in (1, 3, 5):  # the greatest is in the last chunk
        problem = LayerNormProblem(
            *((1,), min(most, max(least, most // 2 + odd)), row.dtype),
            **{"bias": True, "to": NARROW, "weight_dtype": row.params["weight_dtype"]},
        )
        yield LayerNormCase(problem, kernel=row.name, arch=row.arch)
    for columns in (most, max(least, most - 1)):
        weights = row.params["weight_dtype"]
        problem = LayerNormProblem((1,), columns, row.dtype, eps=0.0, weight_dtype=weights)
        yield LayerNormCase(problem, kernel=row.name, arch=row.arch, scale=TINY[row.dtype])


def larger(on_gpu: bool) -> Iterator[LayerNormCase]:
    """A case with the rows of a long prompt."""
    for dtype in ("bfloat16", "float16"):
        options: dict[str, Any] = {"bias": True, "residual": True, "dropout_p": 0.1}
        yield LayerNormCase(LayerNormProblem((8192 if on_gpu else 400,), 4096, dtype, **options))


def _problem(rows: int, **options: Any) -> LayerNormProblem:
    return LayerNormProblem((rows,), **options)


OPERATION = Operation(
    name="layer_norm",
    title="layer normalisation with bias, dropout and 8-bit results",
    kernel_ops=(NORM,),
    plan_type=LayerNormPlan,
    options=(
        *ROWS_OPTIONS,
        Option("bias", bool, False, "Add a bias at the end.", ("--bias",)),
        RESIDUAL_OPTION,
        Option("eps", float, 1e-5, "Epsilon that is added to the variance."),
        IN_PLACE_OPTION,
        Option(
            "weight_dtype",
            str | None,
            None,
            "Element type of weight and bias: float32; default: dtype.",
        ),
        Option("dropout_p", float, 0.0, "Probability that an element of x is dropped."),
        Option("to", str, "same", "Element type of the result: same, or the device's e4m3."),
        Option(
            "scale",
            str,
            MADE,
            "Scale of an 8-bit result: made per row, or given per row or tensor.",
        ),
        Option("rms", bool, False, "Subtract no mean.", ("--rms",)),
    ),
    problem=_problem,
    choices=planning.choices,
    build=planning.build,
    reference=expected,
    planned=planned,
    cases=cases,
    larger=larger,
)
